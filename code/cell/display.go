package cell

import "berth/proto"

// displays are the results of a cell in the order in which they were shown, for a client that follows the cell.
type displays struct {
	wanted  bool
	begun   *displayed   // the latest; its data may not be complete
	on      proto.Stream // that its data come on
	list    []displayed
	changed chan struct{} // closed at the next change
	over    bool          // no more will come
}

type displayed struct {
	parts parts
	main  bool
	at    [2]int64
}

// KeepDisplays has the cell keep its displays for a follower. It is called before the code begins.
func (c *Cell) KeepDisplays() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.displays.wanted, c.displays.changed = true, make(chan struct{})
}

// DisplayAt returns how many bytes of each stream came before a display, if the code has shown that many.
func (c *Cell) DisplayAt(i int) (at [2]int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i >= len(c.displays.list) {
		return at, false
	}
	return c.displays.list[i].at, true
}

// Display returns a display that DisplayAt has found.
func (c *Cell) Display(i int) (d proto.Display) {
	c.mu.Lock()
	defer c.mu.Unlock()
	shown := c.displays.list[i]
	d.Rich, d.Text = shown.parts.bundle()
	d.Main = shown.main
	return d
}

// AwaitDisplay returns a channel that is closed at the next display or at the end, and whether the end has come.
func (c *Cell) AwaitDisplay() (changed <-chan struct{}, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.displays.changed, c.displays.over
}

// begin keeps a result whose data follow. mu is held.
func (d *displays) begin(p parts, main bool, on proto.Stream) {
	if d.wanted {
		d.begun, d.on = &displayed{parts: p, main: main}, on
	}
}

// finishDisplay shows the latest result, which is complete. mu is held.
func (c *Cell) finishDisplay() {
	d := &c.displays
	if d.begun == nil {
		return
	}
	d.begun.at[0], d.begun.at[1] = c.Out.Totals()
	d.list = append(d.list, *d.begun)
	d.begun = nil
	d.signal()
}

// endDisplays tells the follower that no display will come. mu is held.
func (c *Cell) endDisplays() {
	c.finishDisplay()
	if c.displays.over = true; c.displays.wanted {
		c.displays.signal()
	}
}

func (d *displays) signal() {
	close(d.changed)
	d.changed = make(chan struct{})
}

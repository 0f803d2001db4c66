package pid1

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"berth/guest/wire"
	"berth/proto"
)

// Times between two looks at what listens. The kernel reports no new listener to a container, and a look is one short
// question. Most programs that will listen do so soon after they were started.
const (
	firstLooks = 100 * time.Millisecond // after a command was started; each time is twice the one before
	restLooks  = time.Second
)

// portsAlive is how often a watch without changes shows that it goes on; less than wire.ShortWait.
const portsAlive = 10 * time.Second

// errPortsOver ends the connection of a watch.
var errPortsOver = errors.New("the watch of the ports is over")

// watchPorts sends what listens as lines of JSON: at once, and after each change. It ends when no process lives but the
// guest, and before that with the connection.
func (k *caller) watchPorts(ctx context.Context) error {
	if err := k.conn.SendJSON(wire.FrameReply, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer k.conn.Close() // ends the reader
	defer cancel()
	reader.Go(func() { // a client sends nothing more, so this ends with the connection
		_, _, _ = k.conn.ReadFrame()
		cancel()
	})
	listeners := k.s.procs.Listeners()
	var told []proto.Port
	var toldAt time.Time
	var newest int64
	pause := firstLooks
	for {
		// Asked first: what the last process opened before it ended is gone at the look.
		over := k.s.procs.Childless()
		if now := k.s.procs.Newest(); now != newest {
			newest, pause = now, firstLooks
		}
		list, err := listeners.Look()
		if err != nil {
			k.s.log.Warn("looking what listens", "err", err)
			return err
		}
		list = list[:min(len(list), wire.MaxWatchedPorts)]
		line := []byte{'\n'}
		changed := toldAt.IsZero() || !slices.Equal(list, told)
		if changed {
			text, _ := json.Marshal(wire.PortList{Ports: list})
			line = append(text, '\n')
		}
		if changed || time.Since(toldAt) >= portsAlive {
			if err := k.conn.Send(wire.FrameBody, line); err != nil {
				return err
			}
			told, toldAt = list, time.Now()
		}
		if over {
			_ = k.conn.Send(wire.FrameClose, nil)
			return errPortsOver
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errPortsOver
		}
		pause = min(2*pause, restLooks)
	}
}

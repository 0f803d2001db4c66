// Package cell turns the two streams of an interpreter into the outcome of one cell: what the code printed, and the
// results and errors that its driver reports among the output.
//
// protocol.go has the form of a report. Each report carries a number that the daemon draws for the cell. The code can
// see that number and forge a report, which then is its own result; the daemon trusts nothing beyond that, and bounds
// all of it. Package code sends cells to interpreters and feeds their output to this package.
package cell

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"berth/guest/output"
	"berth/proto"
)

// Limits of what one cell may return.
const (
	maxReported = 16 << 20 // bytes of all its results, and of its error
	maxResults  = 200
	maxParts    = 16 // media types of one result
)

// The output of each stream that a cell keeps by default, and the most that a request may ask for, in bytes. Both are
// as for commands.
const (
	defaultOutput = 1 << 20
	MaxOutput     = 16 << 20
)

// A Cell is one piece of code that runs, and its result so far.
type Cell struct {
	Out  *output.Output
	Done chan struct{} // closed when both streams have ended

	nonce    string
	budget   *output.Budget // of all commands and cells
	scanners [2]*scanner    // used by one goroutine, which calls Receive and Finish

	mu      sync.Mutex // guards what follows
	results []parts
	main    int // index in results of the value of the last expression; -1: it has none
	failure parts
	part    parts  // that names and data belong to at the moment; nil: none
	kept    bool   // part is the main result or the error, for which other results make room
	name    string // of the data that follow
	size    int    // bytes of all results, and of the error
	cut     bool   // something was left out
	closed  bool   // its output is dropped from now on
	// what a client that follows the cell has to see
	displays displays
	ended    [2]bool
}

// parts are the named pieces of a result or an error.
type parts map[string][]byte

// New creates a cell that keeps limit bytes of each stream; 0 is the default. The bytes count against the budget. The
// caller must close the cell.
func New(limit int64, budget *output.Budget) *Cell {
	var nonce [16]byte  // which output does not contain by chance
	rand.Read(nonce[:]) // never fails
	c := &Cell{nonce: hex.EncodeToString(nonce[:]), Out: output.New(cmp.Or(limit, defaultOutput), budget),
		budget: budget, Done: make(chan struct{}), main: -1}
	c.scanners = [2]*scanner{newScanner(c.nonce), newScanner(c.nonce)}
	return c
}

// Close releases the memory of the cell. Its interpreter may continue to print.
func (c *Cell) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.Out.Drop()
	c.budget.Take(-int64(c.size))
	c.results, c.main, c.failure, c.part, c.size = nil, -1, nil, nil, 0
}

// Receive takes the next bytes of a stream, with the reports among them.
func (c *Cell) Receive(s proto.Stream, b []byte) { c.scanners[s-1].feed(b, listenerOf{c, s}) }

// Finish ends the output. An incomplete report becomes output.
func (c *Cell) Finish() {
	for i, scan := range c.scanners {
		scan.flush(listenerOf{c, proto.Stream(i + 1)})
	}
	c.mu.Lock()
	c.endDisplays()
	c.mu.Unlock()
	c.Out.Finish()
}

// Ended reports whether a stream of the cell has ended. Later output there belongs to the next cell.
func (c *Cell) Ended(s proto.Stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended[s-1]
}

// Print keeps printed output.
func (c *Cell) Print(s proto.Stream, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.Out.Write(s, b)
	}
}

// A listenerOf receives the contents of one stream of a cell.
type listenerOf struct {
	*Cell
	stream proto.Stream
}

func (l listenerOf) printed(b []byte) { l.Print(l.stream, b) }

func (l listenerOf) reported(kind byte, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch { // the end of the other stream may come before the data of a result
	case kind == kindEnd && l.stream != l.displays.on:
	case kind != kindName && kind != kindData || kind == kindName && len(data) == 0:
		l.finishDisplay()
	}
	if kind == kindEnd {
		if l.ended[l.stream-1] = true; l.ended[0] && l.ended[1] {
			select {
			case <-l.Done:
			default:
				close(l.Done)
			}
		}
		return
	}
	if l.closed {
		return
	}
	switch kind {
	case kindResult:
		l.beginResult(string(data) == resultValue, l.stream)
	case kindError:
		l.release(l.failure)
		l.failure = parts{}
		l.part, l.kept, l.name = l.failure, true, ""
	case kindName:
		if l.name = ""; len(data) == 0 {
			l.part = nil
			return
		}
		if l.part == nil || len(l.part) == maxParts || !utf8.Valid(data) {
			l.cut = true
			return
		}
		l.name = string(data)
		l.dropPart(l.name)
		l.part[l.name] = nil
	case kindData:
		l.addData(data)
	}
}

// beginResult begins a result. Beyond the limit, the result is left out; the main one takes the place of another.
func (c *Cell) beginResult(main bool, on proto.Stream) {
	c.part, c.kept, c.name = nil, main, ""
	full := len(c.results) == maxResults || !main && c.size >= maxReported
	c.cut = c.cut || full
	if full && !main {
		return
	}
	if main {
		if c.main = -1; full {
			c.dropResult()
		}
		c.main = len(c.results)
	}
	c.part = parts{}
	c.results = append(c.results, c.part)
	c.displays.begin(c.part, main, on)
}

// addData adds to the data that have the present name. Without room for all of them, none are kept: half an image is
// useless.
func (c *Cell) addData(data []byte) {
	if c.part == nil || c.name == "" {
		return
	}
	for c.size+len(data) > maxReported || !c.budget.Take(int64(len(data))) {
		c.cut = true
		if !c.kept || !c.dropResult() {
			c.dropPart(c.name)
			c.name = ""
			return
		}
	}
	c.size += len(data)
	c.part[c.name] = append(c.part[c.name], data...)
}

// dropResult drops the last result that is not the main one, and reports whether there was one.
func (c *Cell) dropResult() bool {
	i := len(c.results) - 1
	if i == c.main {
		i--
	}
	if i < 0 {
		return false
	}
	c.release(c.results[i])
	if c.results = slices.Delete(c.results, i, i+1); c.main > i {
		c.main--
	}
	return true
}

// dropPart drops the data of a name.
func (c *Cell) dropPart(name string) {
	c.release(parts{name: c.part[name]})
	delete(c.part, name)
}

// release gives back the memory of parts.
func (c *Cell) release(p parts) {
	n := 0
	for _, data := range p {
		n += len(data)
	}
	c.size -= n
	c.budget.Take(-int64(n))
}

// Outcome returns the outcome of the cell so far. The main result is the last one.
func (c *Cell) Outcome() proto.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	res := proto.Outcome{Results: []string{}, Rich: []proto.Bundle{}, Files: []proto.BashOutput{}, Truncated: c.cut}
	all := slices.Clone(c.results)
	if c.main >= 0 {
		all = append(slices.Delete(all, c.main, c.main+1), c.results[c.main])
		last := len(all) - 1
		res.MainResult = &last
	}
	for _, p := range all {
		b, text := p.bundle()
		res.Rich, res.Results = append(res.Rich, b), append(res.Results, text)
	}
	var cut [2]bool
	res.Logs.Stdout, cut[0] = lines(c.Out, proto.Stdout)
	res.Logs.Stderr, cut[1] = lines(c.Out, proto.Stderr)
	res.Truncated = res.Truncated || cut[0] || cut[1]
	if c.cut {
		res.Notes = append(res.Notes, fmt.Sprintf("some results were left out: one run keeps at most %d results and "+
			"%d bytes of them, and fewer while the daemon is short of memory for output", maxResults, maxReported))
	}
	if p := c.failure; p != nil {
		d := proto.ErrorDetail{Name: p.text("name"), Message: p.text("message"), Traceback: p.text("traceback")}
		if code, err := strconv.Atoi(p.text("return_code")); err == nil {
			d.ReturnCode = &code
		}
		if d.Name == "" && d.Message == "" && d.Traceback == "" {
			d.Message = "the code failed; the daemon had no room for its error"
		}
		SetError(&res, d)
	}
	return res
}

// SetError records in an outcome that the code failed.
func SetError(r *proto.Outcome, d proto.ErrorDetail) {
	r.ErrorDetail = &d
	if r.Error = strings.TrimRight(d.Traceback, "\n"); r.Error == "" {
		r.Error = strings.TrimPrefix(d.Name+": "+d.Message, ": ")
	}
}

// text is a part as UTF-8.
func (p parts) text(name string) string { return strings.ToValidUTF8(string(p[name]), "\uFFFD") }

// shown are the media types that can stand for a result as text, the best first.
var shown = []string{"text/plain", "text/markdown", "text/html", "application/json"}

// bundle returns a result by media type, and its text.
func (p parts) bundle() (b proto.Bundle, text string) {
	b = proto.Bundle{}
	for name, data := range p {
		if strings.HasSuffix(name, "json") && json.Valid(data) {
			b[name] = json.RawMessage(data)
		} else if quoted, err := json.Marshal(p.text(name)); err == nil { // a string never fails
			b[name] = quoted
		}
	}
	for _, name := range shown {
		if data, ok := p[name]; ok && len(data) > 0 {
			return b, p.text(name)
		}
	}
	for name := range p {
		text = max(text, name)
	}
	if text == "" {
		return b, ""
	}
	return b, "<" + text + ">"
}

// lines returns the stored lines of a stream, with their ends, and whether some output was left out.
func lines(out *output.Output, s proto.Stream) ([]string, bool) {
	text, cut := out.Result(s)
	return proto.LogLines(text), cut
}

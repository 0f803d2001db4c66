package code

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"berth/guest/output"
	"berth/proto"
	"berth/session"
)

// Limits of what one cell may return.
const (
	maxTold    = 16 << 20 // bytes of all its results, and of its error
	maxResults = 200
	maxParts   = 16      // media types of one result
	maxLines   = 100_000 // in the list of a stream; the last entry has the rest
)

// defaultOutput is how much of each stream a cell keeps by default, and maxOutput the most that a request may ask
// for, in bytes. Both are as for commands.
const (
	defaultOutput = 1 << 20
	maxOutput     = 16 << 20
)

// A cell is one piece of code that runs, and its result so far.
type cell struct {
	nonce  string
	out    *output.Output
	budget *output.Budget // of all commands and cells

	mu      sync.Mutex // guards what follows
	results []parts
	failure parts
	part    parts  // that names and data belong to at the moment; nil: none
	name    string // of the data that follow
	size    int    // of all that is kept
	cut     bool   // something was left out
	closed  bool   // its output is dropped from now on
	ended   [2]bool

	done chan struct{} // closed when both streams have ended
}

// parts are the named pieces of a result or an error.
type parts map[string][]byte

// newCell creates a cell. Its output counts against the budget of the session's commands. The caller must close it.
func newCell(s *session.Session, limit int64) *cell {
	budget := s.OutputBudget()
	return &cell{nonce: newNonce(), out: output.New(cmp.Or(limit, defaultOutput), budget), budget: budget,
		done: make(chan struct{})}
}

// close releases the memory of the cell. Its interpreter may continue to print.
func (c *cell) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.out.Drop()
	c.budget.Take(-int64(c.size))
	c.results, c.failure, c.part, c.size = nil, nil, nil, 0
}

// print keeps printed output.
func (c *cell) print(s proto.Stream, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.out.Write(s, b)
	}
}

// A cellListener receives one stream of a cell.
type cellListener struct {
	*cell
	stream proto.Stream
}

func (e cellListener) printed(b []byte) { e.print(e.stream, b) }

func (e cellListener) told(kind byte, data []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed && kind != kindEnd {
		return
	}
	switch kind {
	case kindResult:
		e.beginParts(&e.results)
	case kindError:
		e.failure = parts{}
		e.part, e.name = e.failure, ""
	case kindName:
		e.setPartName(data)
	case kindData:
		e.addPart(data)
	case kindEnd:
		e.endStream(e.stream)
	}
}

// beginParts begins a result. Called with mu held, as are the others here.
func (c *cell) beginParts(list *[]parts) {
	c.part, c.name = nil, ""
	if len(*list) == maxResults || c.size >= maxTold {
		c.cut = true
		return
	}
	c.part = parts{}
	*list = append(*list, c.part)
}

func (c *cell) setPartName(name []byte) {
	c.name = ""
	if c.part == nil || len(c.part) == maxParts || !utf8.Valid(name) {
		c.cut = true
		return
	}
	c.name = string(name)
	c.part[c.name] = nil
}

func (c *cell) addPart(data []byte) {
	if c.part == nil || c.name == "" {
		return
	}
	if c.size+len(data) > maxTold || !c.budget.Take(int64(len(data))) { // half an image is useless
		delete(c.part, c.name)
		c.name, c.cut = "", true
		return
	}
	c.size += len(data)
	c.part[c.name] = append(c.part[c.name], data...)
}

func (c *cell) endStream(s proto.Stream) {
	c.ended[s-1] = true
	if c.ended[0] && c.ended[1] {
		select {
		case <-c.done:
		default:
			close(c.done)
		}
	}
}

// result returns the outcome of the cell.
func (c *cell) result() Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	res := Outcome{Results: []string{}, Rich: []Bundle{}, Files: []proto.BashOutput{}, Truncated: c.cut}
	for _, p := range c.results {
		b, text := p.bundle()
		res.Rich, res.Results = append(res.Rich, b), append(res.Results, text)
	}
	var cut [2]bool
	res.Logs.Stdout, cut[0] = lines(c.out, proto.Stdout)
	res.Logs.Stderr, cut[1] = lines(c.out, proto.Stderr)
	res.Truncated = res.Truncated || cut[0] || cut[1]
	if c.cut {
		res.Notes = append(res.Notes, fmt.Sprintf("some results were left out: of one run, %d results and %d bytes "+
			"of them are kept, and less while the daemon has little room for output", maxResults, maxTold))
	}
	if c.failure != nil {
		failOutcome(&res, c.failure.detail())
	}
	return res
}

// detail is the parts of an error as an ErrorDetail.
func (p parts) detail() ErrorDetail {
	d := ErrorDetail{Name: p.text("name"), Message: p.text("message"), Traceback: p.text("traceback")}
	if code, err := strconv.Atoi(p.text("return_code")); err == nil {
		d.ReturnCode = &code
	}
	return d
}

// failOutcome records that the code failed.
func failOutcome(r *Outcome, d ErrorDetail) {
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
func (p parts) bundle() (b Bundle, text string) {
	b = Bundle{}
	for name, data := range p {
		if strings.HasSuffix(name, "json") && json.Valid(data) {
			b[name] = json.RawMessage(data)
			continue
		}
		quoted, err := json.Marshal(p.text(name))
		if err != nil { // a string always decodes
			continue
		}
		b[name] = quoted
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

// lines returns the lines that are kept of a stream, with their ends, and whether something was left out.
func lines(out *output.Output, s proto.Stream) ([]string, bool) {
	head, tail, dropped := out.Text(s)
	text := string(head)
	if dropped > 0 {
		text += fmt.Sprintf("\n[output truncated: %d bytes left out]\n", dropped)
	}
	text = strings.ToValidUTF8(text+string(tail), "\uFFFD")
	return Lines(text), dropped > 0
}

// Lines splits a text into lines as Logs have them.
func Lines(text string) []string {
	list := strings.SplitAfterN(text, "\n", maxLines)
	if list[len(list)-1] == "" {
		list = list[:len(list)-1]
	}
	return list
}

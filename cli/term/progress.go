package term

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"berth/proto"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// A Progress shows how far a transfer is, on standard error if that is a terminal. Where it is not, long work
// still gets a line for each of its steps.
// A transfer tells of what it sends while its answer tells of what became of that, each from a goroutine of its own.
type Progress struct {
	o        *Output
	terminal bool

	mu     sync.Mutex
	bar    *progressbar.ProgressBar
	step   string
	theirs bool // the daemon has told of a step of its own
	over   bool // end was called
}

// NewProgress makes the progress of one command. Quiet, it shows nothing.
func (o *Output) NewProgress() *Progress {
	return &Progress{o: o, terminal: !o.Quiet && term.IsTerminal(int(os.Stderr.Fd()))}
}

// At shows one moment of a step. A total of 0 or less is unknown.
func (p *Progress) At(step, item string, done, total int64, bytes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.show(step, item, done, total, bytes)
}

// show is at, called with mu held.
func (p *Progress) show(step, item string, done, total int64, bytes bool) {
	// A body may still be read when the answer is there; what is printed then stays as it is.
	if p.over {
		return
	}
	// A step begins with its first moment; there is no call for it, as a transfer knows only how
	// far it is.
	if step != p.step {
		p.clear()
		p.step = step
		p.begin(step, total, bytes)
	}
	if p.bar == nil {
		return
	}
	// A total may come to be known only on the way.
	if total > 0 {
		p.bar.ChangeMax64(total)
	}
	if item != "" {
		p.bar.Describe(Short(Printable(step+" "+item), 40))
	}
	_ = p.bar.Set64(done) // the terminal's trouble is not the transfer's
}

// begin starts to show a step, with a bar where there is a terminal to draw it on and a line where there is none.
// Called with mu held.
func (p *Progress) begin(step string, total int64, bytes bool) {
	if !p.terminal {
		if !p.o.Quiet {
			fmt.Fprintln(p.o.Stderr, Printable(step))
		}
		return
	}
	if total <= 0 {
		total = -1
	}
	p.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(p.o.Stderr), progressbar.OptionSetDescription(Short(Printable(step), 40)),
		progressbar.OptionShowBytes(bytes), progressbar.OptionShowCount(), progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(65*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionSpinnerType(14))
}

// End takes the bar away for good.
// It may be called again; commands defer it, and also end the bar before they print.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.clear()
}

// clear takes the bar away before the next one. Called with mu held.
func (p *Progress) clear() {
	if p.bar != nil {
		_ = p.bar.Finish() // which clears it; one that is not finished goes on being drawn, by a ticker of its own
		p.bar = nil
	}
	p.step = ""
}

// Image shows a step of an import or a pull, as the daemon tells it.
func (p *Progress) Image(s proto.ImageProgress) {
	if s.Stage == "done" { // its name is what is printed then
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.theirs = true
	p.show(s.Stage, s.Item, s.Done, s.Total, true)
}

// Sent shows how much of a transfer is sent or has come. Once the daemon tells what it does with that, this says
// more, and two at once would take the line from each other.
func (p *Progress) Sent(name string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.theirs {
		p.show(name, "", done, total, true)
	}
}

// Reader counts what is read of r, for a transfer of total bytes. Without a terminal it shows nothing: copying
// a file is not worth a line.
func (p *Progress) Reader(r io.Reader, name string, total int64) io.Reader {
	if !p.terminal {
		return r
	}
	return &countingReader{r: r, tell: func(n int64) { p.Sent(name, n, total) }}
}

type countingReader struct {
	r    io.Reader
	n    int64
	tell func(int64)
}

// Read reads and tells how far it has come.
func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	c.tell(c.n)
	return n, err
}

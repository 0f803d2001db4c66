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

// A Progress shows the progress of a transfer on standard error. On a terminal it draws a bar. Otherwise it prints
// one line for each step of long work. Two goroutines may report to it: one sends the body while the other reads the
// daemon's answer.
type Progress struct {
	o        *Output
	terminal bool

	mu     sync.Mutex
	bar    *progressbar.ProgressBar
	step   string
	remote bool // the daemon has reported a step of its own
	over   bool // End was called
}

// NewProgress returns the progress display of one command. With Quiet it shows nothing.
func (o *Output) NewProgress() *Progress {
	return &Progress{o: o, terminal: !o.Quiet && term.IsTerminal(int(os.Stderr.Fd()))}
}

// At shows the state of a step. A total of 0 or less means unknown.
func (p *Progress) At(step, item string, done, total int64, bytes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.show(step, item, done, total, bytes)
}

// show is At for a caller that holds mu.
func (p *Progress) show(step, item string, done, total int64, bytes bool) {
	// After the answer, the transport may still read the body. Nothing may be drawn over what was printed since.
	if p.over {
		return
	}
	// A step begins with its first report. There is no call for it, because a transfer only knows its position.
	if step != p.step {
		p.clear()
		p.step = step
		p.begin(step, total, bytes)
	}
	if p.bar == nil {
		return
	}
	// The total may become known only during the step.
	if total > 0 {
		p.bar.ChangeMax64(total)
	}
	if item != "" {
		p.bar.Describe(Short(Printable(step+" "+item), descriptionWidth(p.width())))
	}
	_ = p.bar.Set64(done) // a terminal error must not fail the transfer
}

// begin starts to show a step: with a bar on a terminal, otherwise with a line. The caller holds mu.
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
	width := p.width()
	p.bar = progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(p.o.Stderr),
		progressbar.OptionSetDescription(Short(Printable(step), descriptionWidth(width))),
		progressbar.OptionShowBytes(bytes), progressbar.OptionShowCount(), progressbar.OptionSetWidth(30),
		progressbar.OptionSetElapsedTime(width >= timesWidth), progressbar.OptionSetPredictTime(width >= timesWidth),
		progressbar.OptionThrottle(65*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionSpinnerType(14))
}

// The bar itself shrinks to what is left of a line, but its texts do not, and a line that wraps is drawn anew below
// itself each time. Beside the description there are at most 35 columns of percentage, counts and rate, and 18 of
// times.
const (
	countsWidth = 35
	timesWidth  = 64 // with fewer columns there are no times
)

// descriptionWidth returns how many columns a description may take on a terminal of that width.
func descriptionWidth(width int) int {
	rest := width - countsWidth
	if width >= timesWidth {
		rest -= 18
	}
	return min(max(rest, 6), 40)
}

// width returns the columns of the terminal. It may be resized at any time.
func (p *Progress) width() int {
	if width, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil && width > 0 {
		return width
	}
	return 80
}

// End removes the bar for good. It may be called more than once: commands defer it, and also call it before they
// print.
func (p *Progress) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.clear()
}

// clear removes the bar before the next one. The caller holds mu.
func (p *Progress) clear() {
	if p.bar != nil {
		_ = p.bar.Finish() // clears the bar; an unfinished bar keeps being drawn by its own ticker
		p.bar = nil
	}
	p.step = ""
}

// Image shows a step of an import or a pull as the daemon reports it.
func (p *Progress) Image(s proto.ImageProgress) {
	if s.Stage == "done" { // the command prints the image's name then
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remote = true
	p.show(s.Stage, s.Item, s.Done, s.Total, true)
}

// Sent shows the position of a transfer. It shows nothing once the daemon reports its own steps: those say more, and
// two bars would overwrite each other.
func (p *Progress) Sent(name string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.remote {
		p.show(name, "", done, total, true)
	}
}

// Reader returns a reader that reports what is read from r, for a transfer of total bytes. Without a terminal it
// reports nothing, because a copied file is not worth a line.
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

// Read reads from r and reports the position.
func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	c.tell(c.n)
	return n, err
}

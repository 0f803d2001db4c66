package term

import (
	"fmt"
	"os"

	"golang.org/x/term"
)

// minWidth is the narrowest width of a terminal that is believed, in columns.
const minWidth = 20

// NewStatusLine makes a status line on standard error.
func (o *Output) NewStatusLine() *StatusLine {
	return &StatusLine{o: o, terminal: IsTerminal(os.Stderr)}
}

// A StatusLine says on standard error what goes on: in one line that changes where that is a terminal, else line by
// line.
type StatusLine struct {
	o        *Output
	terminal bool
}

// Show shows a text in place of the last one.
func (l *StatusLine) Show(text string) {
	if !l.terminal {
		fmt.Fprintln(l.o.Stderr, Printable(text))
		return
	}
	// Asked each time: windows change their size, and an attack may take minutes.
	width, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil || width < minWidth {
		width = 80
	}
	// One less than the width, or the cursor would wrap and the next line stand below.
	fmt.Fprint(l.o.Stderr, "\r\x1b[K"+Short(Printable(text), width-1))
}

// Clear takes the line away.
func (l *StatusLine) Clear() {
	if l.terminal {
		fmt.Fprint(l.o.Stderr, "\r\x1b[K")
	}
}

package term

import (
	"fmt"
	"os"

	"golang.org/x/term"
)

// minWidth is the smallest plausible terminal width, in columns. For a smaller one, 80 is assumed.
const minWidth = 20

// NewStatusLine returns a status line on standard error.
func (o *Output) NewStatusLine() *StatusLine {
	return &StatusLine{o: o, terminal: IsTerminal(os.Stderr)}
}

// A StatusLine shows the current activity on standard error. On a terminal it rewrites one line; otherwise it prints
// a line for each text.
type StatusLine struct {
	o        *Output
	terminal bool
}

// Show replaces the text that is shown.
func (l *StatusLine) Show(text string) {
	if !l.terminal {
		fmt.Fprintln(l.o.Stderr, Printable(text))
		return
	}
	// Queried each time: windows change their size, and an attack may take minutes.
	width, _, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil || width < minWidth {
		width = 80
	}
	// One column less than the width: otherwise the cursor wraps, and the next text starts on a new line.
	fmt.Fprint(l.o.Stderr, "\r\x1b[K"+Short(Printable(text), width-1))
}

// Clear removes the line.
func (l *StatusLine) Clear() {
	if l.terminal {
		fmt.Fprint(l.o.Stderr, "\r\x1b[K")
	}
}

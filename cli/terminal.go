package cli

import (
	"os"

	"berth/proto"

	"golang.org/x/term"
)

// isTerminal reports whether a person is at the other end of f.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// windowSize is the terminal's, or the one that terminals had when nobody says.
func windowSize() proto.WindowSize {
	// Any of the three may be redirected; those that are not are the same terminal.
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if cols, rows, err := term.GetSize(int(f.Fd())); err == nil && rows > 0 && cols > 0 {
			return proto.WindowSize{Rows: uint16(rows), Cols: uint16(cols)}
		}
	}
	return proto.WindowSize{Rows: 24, Cols: 80}
}

// rawMode has the terminal pass every key on, until restore is called.
func rawMode(f *os.File) (restore func(), err error) {
	was, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	// nothing is left to be done about a terminal that went away
	return func() { _ = term.Restore(int(f.Fd()), was) }, nil
}

package term

import (
	"os"

	"berth/proto"

	"golang.org/x/term"
)

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// WindowSize returns the terminal's size, or the size of classic terminals if it is unknown.
func WindowSize() proto.WindowSize {
	// Any of the three may be redirected. The others are the same terminal.
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if cols, rows, err := term.GetSize(int(f.Fd())); err == nil && rows > 0 && cols > 0 {
			return proto.WindowSize{Rows: uint16(rows), Cols: uint16(cols)}
		}
	}
	return proto.WindowSize{Rows: 24, Cols: 80}
}

// Width returns the width of a terminal in columns, or 0 if f is no terminal.
func Width(f *os.File) int {
	cols, _, _ := term.GetSize(int(f.Fd()))
	return cols
}

// RawMode makes the terminal pass on every key until restore is called.
func RawMode(f *os.File) (restore func(), err error) {
	was, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	// nothing can be done about a terminal that is gone
	return func() { _ = term.Restore(int(f.Fd()), was) }, nil
}

// ReadSecret reads a line from a terminal, and does not show it.
func ReadSecret(f *os.File) (string, error) {
	line, err := term.ReadPassword(int(f.Fd()))
	return string(line), err
}

package term

import (
	"os"
	"slices"
)

// Colors of a terminal, as escape sequences.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	dim    = "\x1b[2m"
	reset  = "\x1b[0m"
)

// stateColors are the colors of words in a column STATE.
var stateColors = map[string]string{"running": green, "active": green, "succeeded": green, "exit 0": green,
	"paused": yellow, "waiting": yellow, "pending": yellow, "stopped": dim, "expired": dim, "revoked": dim,
	"failed": red, "timeout": red, "killed": red}

// colored reports whether a file is a terminal that shows colors: by NO_COLOR (no-color.org), by TERM, and by
// CLICOLOR_FORCE for output that only looks like none.
func colored(f any) bool {
	if os.Getenv("NO_COLOR") != "" {
		return false
	}
	if force := os.Getenv("CLICOLOR_FORCE"); force != "" && force != "0" {
		return true
	}
	file, ok := f.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && IsTerminal(file)
}

// painter returns a function that colors the cell of a column: states get the color of what they mean.
func (o *Output) painter(head []string) func(column int, cell string) string {
	state := slices.Index(head, "STATE")
	if state < 0 || !colored(o.Stdout) {
		return func(_ int, cell string) string { return cell }
	}
	return func(column int, cell string) string {
		if color := stateColors[cell]; column == state && color != "" {
			return color + cell + reset
		}
		return cell
	}
}

// Failure returns the word that begins the message of an error: in red where standard error shows colors.
func (o *Output) Failure(word string) string {
	if colored(o.Stderr) {
		return red + word + reset
	}
	return word
}

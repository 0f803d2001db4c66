package app

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"berth/cli/term"
)

// AskKey asks the user for the API key if neither a flag nor the environment has it: on a terminal without showing
// what is typed, or else as the first line of standard input.
func (a *App) AskKey() error {
	if a.Key != "" || a.KeyFile != "" || os.Getenv("BERTH_API_KEY") != "" {
		return nil
	}
	read := func() (string, error) { return bufio.NewReader(io.LimitReader(os.Stdin, maxKey)).ReadString('\n') }
	if term.IsTerminal(os.Stdin) {
		fmt.Fprint(a.Stderr, "API key: ")
		read = func() (string, error) { return term.ReadSecret(os.Stdin) }
	}
	key, err := read()
	if term.IsTerminal(os.Stdin) {
		fmt.Fprintln(a.Stderr)
	}
	if a.Key = strings.TrimSpace(key); a.Key == "" {
		return errors.Join(errors.New("there is no API key; type it, or name its file with --api-key-file"),
			notEOF(err))
	}
	return nil
}

// maxKey bounds what is read of a key, in bytes. Keys have some dozens.
const maxKey = 4096

// notEOF returns err, unless it only says that the input is over.
func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Package shells says what a caller has to know about a persistent shell that has ended: a command that ends one, or
// that finds its shell started anew, has a note. Package session calls it. The shells themselves are the guest's.
package shells

import (
	"fmt"
	"slices"
	"sync"

	"berth/proto"
)

// A Call is a command that ran in a persistent shell.
type Call struct {
	Info  proto.Exec
	Notes []string
}

// Ended returns the note of a command that ended its shell.
func Ended(name string) string {
	return fmt.Sprintf("shell %q ended with this command, as after exit, exec, a failure under set -e, or a time "+
		"limit; its variables, functions and directory are lost, and the next command starts a new one", name)
}

// Anew returns the note of a command whose shell was started for it, or none: no earlier call had a shell
// of that name, or the end of that was told. earlier are the session's commands before it, oldest first.
func Anew(name string, earlier []Call) []string {
	for _, c := range slices.Backward(earlier) {
		switch {
		case c.Info.Shell != name || c.Info.End != nil && c.Info.End.Reason == proto.EndNotStarted:
			continue
		case slices.Contains(c.Notes, Ended(name)):
			return nil
		}
		return []string{fmt.Sprintf("shell %q was started anew for this command: the earlier one ended since its last "+
			"command, and its variables, functions and directory are lost", name)}
	}
	return nil
}

// Closed are the names of shells that were closed on request, so that their end needs no note. The zero Closed is
// empty.
type Closed struct {
	mu    sync.Mutex
	names map[string]bool
}

// Add adds a name.
func (c *Closed) Add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names == nil {
		c.names = map[string]bool{}
	}
	c.names[name] = true
}

// Take removes a name, and reports whether it was there.
func (c *Closed) Take(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.names[name]
	delete(c.names, name)
	return was
}

package warmpool

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"berth/proto"
)

// A killed daemon leaves the sandboxes of its pool. The next daemon finds them by the label of the record. It takes a
// sandbox over if it would make the sandbox the same way itself: the old daemon was this very program, which decides
// how a pooled sandbox is isolated, and the sandbox runs the same guest. The guest must also answer, and no session's
// workspace may be mounted. All others are removed.

// A Label is what the record of a pooled sandbox says about it, in JSON.
type Label struct {
	Daemon string       `json:"daemon"` // the daemon's program that made it; see program
	Guest  string       `json:"guest"`  // the guest's program, which is named by its content
	Limits proto.Limits `json:"limits"`
}

// NewLabel returns the label of a sandbox that this daemon makes.
func NewLabel(guest string, limits proto.Limits) string {
	text, _ := json.Marshal(Label{program(), guest, limits}) // plain numbers and a path
	return string(text)
}

// program returns a hash of the build ID that Go's linker has written into this program; the build ID depends on the
// program's content. It returns "" if the build ID cannot be read.
var program = sync.OnceValue(func() string {
	file, err := elf.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer file.Close()
	note := file.Section(".note.go.buildid")
	if note == nil {
		return ""
	}
	id, err := note.Data()
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(id)
	return hex.EncodeToString(sum[:8])
})

// A Left is a sandbox that the pool of an earlier daemon made.
type Left struct {
	Kind
	Name  string
	Label string // as NewLabel made it
}

// Learn records a sandbox that an earlier pool made and no session has taken. Start adopts or removes it.
func (p *Pool) Learn(left Left) {
	if left.Label == "" || !p.on() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.own[left.Name] = true
	p.left = append(p.left, left)
}

// LeftBehind returns how many sandboxes of earlier daemons wait for Start. Tests use it.
func (p *Pool) LeftBehind() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.left)
}

// adopt takes over or removes the sandboxes that earlier daemons left.
func (p *Pool) adopt(ctx context.Context) {
	p.mu.Lock()
	all := p.left
	p.left = nil
	p.mu.Unlock()
	for _, left := range all {
		s, err := p.Adopt(ctx, left)
		if err == nil {
			p.add(s)
			continue
		}
		p.cfg.Log.Debug("removing a pooled container that an earlier daemon made", "sandbox", left.Name, "err", err)
		p.removeLater(left.Name)
	}
	p.RemovePending(ctx)
}

// Adopt opens a sandbox that an earlier daemon left, if this daemon would make the same.
func (p *Pool) Adopt(ctx context.Context, left Left) (*Sandbox, error) {
	var made Label
	if err := json.Unmarshal([]byte(left.Label), &made); err != nil {
		return nil, err
	}
	if made.Daemon == "" || made.Daemon != program() || made.Guest != p.cfg.Guest {
		return nil, errors.New("another program made it, or is in it")
	}
	s, err := p.open(ctx, left.Name, left.Kind, made.Limits)
	if err != nil {
		return nil, err
	}
	if used, err := p.HasWorkspace(s); used || err != nil {
		s.Close()
		return nil, errors.Join(err, errors.New("a session had it"))
	}
	return s, nil
}

// HasWorkspace reports whether a session's workspace is mounted in a sandbox.
func (p *Pool) HasWorkspace(s *Sandbox) (bool, error) {
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", s.mounts))
	return strings.Contains(string(table), " "+p.cfg.Workspace+" "), err
}

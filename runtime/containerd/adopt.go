package containerd

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

	"github.com/containerd/containerd/v2/core/containers"

	"berth/proto"
	"berth/runtime/launch"
)

// A killed daemon leaves the sandboxes of its pool. The next daemon finds them by the label of the record. It takes a
// sandbox over if it would make the sandbox the same way itself: the old daemon was this very program, which decides
// how a pooled sandbox is isolated, and the sandbox runs the same guest. The guest must also answer, and no session's
// workspace may be mounted. All others are removed.

// A warmLabel is what the record of a pooled sandbox says about it.
type warmLabel struct {
	Daemon string       `json:"daemon"` // the daemon's program that made it; see program
	Guest  string       `json:"guest"`  // the guest's program, which is named by its content
	Limits proto.Limits `json:"limits"`
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

func newWarmLabel(b launch.Spec) string {
	text, _ := json.Marshal(warmLabel{program(), b.Guest, b.Session.Limits}) // plain numbers and a path
	return string(text)
}

// learnMember records a sandbox that a pool made and no session has claimed.
func (r *Runtime) learnMember(rec containers.Container) {
	if _, ok := r.claims.session(rec.ID); ok || rec.Labels[labelWarm] == "" || !r.warm.on() {
		return
	}
	r.warm.mu.Lock()
	defer r.warm.mu.Unlock()
	r.warm.own[rec.ID] = true
	r.warm.left = append(r.warm.left, rec)
}

// adopt takes over or removes the sandboxes that earlier daemons left.
func (p *warmPool) adopt(ctx context.Context) {
	p.mu.Lock()
	left := p.left
	p.left = nil
	p.mu.Unlock()
	for _, rec := range left {
		m, err := p.r.adoptable(ctx, rec)
		if err == nil {
			p.add(m)
			continue
		}
		p.r.log.Debug("a warm container of the daemon before is of no use", "sandbox", rec.ID, "err", err)
		p.mu.Lock()
		p.pendingRemoval = append(p.pendingRemoval, rec.ID)
		p.mu.Unlock()
	}
	p.removePending(ctx)
}

func (r *Runtime) adoptable(ctx context.Context, rec containers.Container) (*pooledSandbox, error) {
	var made warmLabel
	if err := json.Unmarshal([]byte(rec.Labels[labelWarm]), &made); err != nil {
		return nil, err
	}
	if made.Daemon == "" || made.Daemon != program() || made.Guest != r.guest {
		return nil, errors.New("another program made it, or is in it")
	}
	m, err := r.member(ctx, rec.ID, rec.Image, made.Limits)
	if err != nil {
		return nil, err
	}
	if used, err := hasWorkspace(m.pid); used || err != nil {
		m.close()
		return nil, errors.Join(err, errors.New("a session had it"))
	}
	return m, nil
}

// hasWorkspace reports whether something is mounted at the path of workspaces.
func hasWorkspace(pid int) (bool, error) {
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	return strings.Contains(string(table), " "+launch.InsideWorkspace+" "), err
}

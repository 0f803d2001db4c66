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

// What a daemon that was killed leaves of its pool is found by the label of the record, and taken over if it is as we
// would make it: the daemon was this very program, which decides how a member is isolated, and had the same guest;
// that answers, and no session's workspace is in it. All else goes.

// A warmLabel is what the record of a member says of it.
type warmLabel struct {
	Daemon string       `json:"daemon"` // the program that made it; see program
	Guest  string       `json:"guest"`  // the program in it, which is named by its content
	Limits proto.Limits `json:"limits"`
}

// program names this program by its content, as Go's linker has written it into it. It is "" if that is not to be read.
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

// learnMember notes a record that a pool made and nobody has claimed.
func (r *Runtime) learnMember(rec containers.Container) {
	if _, ok := r.claims.session(rec.ID); ok || rec.Labels[labelWarm] == "" || !r.warm.on() {
		return
	}
	r.warm.mu.Lock()
	defer r.warm.mu.Unlock()
	r.warm.own[rec.ID] = true
	r.warm.left = append(r.warm.left, rec)
}

// adopt goes through what was left.
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

// hasWorkspace reports whether something is mounted where workspaces are.
func hasWorkspace(pid int) (bool, error) {
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	return strings.Contains(string(table), " "+launch.InsideWorkspace+" "), err
}

package templates

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"berth/build"
	"berth/build/wire"
	"berth/proto"
)

const (
	// maxBuilds bounds the builds of one owner that are remembered. The oldest that ended make room.
	maxBuilds = 200
	// openAge is how long a build may wait for its steps.
	openAge = 24 * time.Hour
	// maxEntries bounds the log of a build, in lines.
	maxEntries = 20_000
	// maxMessage bounds a line of a log, in bytes.
	maxMessage = 8 << 10
	// EntriesAtOnce is how many lines of a log one answer has.
	EntriesAtOnce = 1000
)

// States of a build.
const (
	waiting  = "waiting"
	building = "building"
	ready    = "ready"
	failed   = "error"
)

// An Order asks for a build.
type Order struct {
	Name     string   `json:"name"`
	Alias    string   `json:"alias"` // of old clients
	Tags     []string `json:"tags"`
	CPUCount int64    `json:"cpuCount"`
	MemoryMB int64    `json:"memoryMB"`
}

// A Reserved is a build that waits for its steps.
type Reserved struct {
	TemplateID string   `json:"templateID"`
	BuildID    string   `json:"buildID"`
	Public     bool     `json:"public"`
	Names      []string `json:"names"`
	Tags       []string `json:"tags"`
	Aliases    []string `json:"aliases"`
}

// A LogEntry is a line of the log of a build.
type LogEntry struct {
	Timestamp time.Time `json:"timestamp"`
	Level     string    `json:"level"`
	Message   string    `json:"message"`
	Step      string    `json:"step,omitempty"`
}

// A Reason says why a build failed.
type Reason struct {
	Message string     `json:"message"`
	Step    string     `json:"step,omitempty"`
	Entries []LogEntry `json:"logEntries"`
}

// A Status is where a build is, and a part of its log.
type Status struct {
	TemplateID string     `json:"templateID"`
	BuildID    string     `json:"buildID"`
	State      string     `json:"status"`
	Logs       []string   `json:"logs"` // always empty; old clients read it
	Entries    []LogEntry `json:"logEntries"`
	Reason     *Reason    `json:"reason,omitempty"`
}

// An entry is one build.
type entry struct {
	id, owner string
	name      Name
	order     Order
	made      time.Time

	// Templates.mu guards what follows.
	state   string
	started bool
	entries []LogEntry
	reason  *Reason
}

// Reserve makes a build that waits for its steps.
func (t *Templates) Reserve(ctx context.Context, owner string, o Order) (r Reserved, err error) {
	if o.Name == "" {
		o.Name = o.Alias
	}
	n, err := ParseName(o.Name, o.Tags)
	if err == nil {
		err = o.check()
	}
	if err == nil {
		err = t.mayChange(ctx, owner, n.Template)
	}
	if err != nil {
		return r, err
	}
	e := &entry{id: uuid.NewString(), owner: owner, name: n, order: o, made: now(), state: waiting}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return r, errEnds
	}
	if err := t.makeRoom(owner, n.Template); err != nil {
		return r, err
	}
	t.builds[e.id] = e
	return Reserved{n.Template, e.id, true, []string{n.Template}, n.Tags, []string{n.Template}}, nil
}

func (o Order) check() error {
	switch {
	case o.CPUCount < 0 || o.CPUCount > 4096:
		return proto.Invalid("cpuCount", "cpuCount must be a number of cores")
	case o.MemoryMB < 0 || o.MemoryMB > 1<<30:
		return proto.Invalid("memoryMB", "memoryMB must be a number of MiB")
	}
	return nil
}

// makeRoom forgets builds that are over, and refuses a name for which another owner has a build under way. The caller
// holds mu.
func (t *Templates) makeRoom(owner, template string) error {
	var own []*entry
	for id, e := range t.builds {
		over := e.state == ready || e.state == failed
		switch {
		case !e.started && !over && time.Since(e.made) > openAge:
			delete(t.builds, id)
		case e.owner != owner && e.name.Template == template && !over:
			return taken(template)
		case e.owner == owner:
			own = append(own, e)
		}
	}
	if len(own) < maxBuilds {
		return nil
	}
	slices.SortFunc(own, func(a, b *entry) int { return a.made.Compare(b.made) })
	for _, e := range own {
		if !e.started || e.state == ready || e.state == failed {
			delete(t.builds, e.id)
			return nil
		}
	}
	return proto.Errorf(proto.TooMany, "", "", "%d builds wait or run, which is the most; try again later", maxBuilds)
}

// find returns a build of an owner. The caller holds mu.
func (t *Templates) find(owner, template, id string) (*entry, error) {
	e := t.builds[id]
	if e == nil || e.owner != owner || e.name.Template != template {
		return nil, proto.Errorf(proto.NotFound, "", id, "build %.80q of template %.80q was not found", id, template)
	}
	return e, nil
}

// Start starts a build that was reserved. It goes on without its client.
func (t *Templates) Start(ctx context.Context, who proto.Caller, template, id string, r Recipe) error {
	if err := r.check(); err != nil {
		return err
	}
	from, err := t.base(ctx, r)
	if err != nil {
		return err
	}
	for i, s := range r.Steps {
		if s.Type == "COPY" && !t.uploads.has(who.Owner, s.FilesHash) {
			return proto.Errorf(proto.InvalidArgument, "", "filesHash", "steps[%d].filesHash: the files of this COPY "+
				"are not here; upload them, and start the build again", i)
		}
	}
	if err := t.mayChange(ctx, who.Owner, template); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e, err := t.find(who.Owner, template, id)
	switch {
	case err != nil:
		return err
	case t.closed:
		return errEnds
	case e.started:
		return proto.Errorf(proto.Conflict, "", id, "build %.80q was started before", id)
	}
	e.started = true
	t.wg.Go(func() { t.run(proto.WithCaller(t.ctx, who), e, r, from) })
	return nil
}

// base returns what a template is built on. An image that is not here is pulled by the build.
func (t *Templates) base(ctx context.Context, r Recipe) (b base, err error) {
	name := r.FromImage + r.FromTemplate
	b = base{ref: name, user: usualUser, dir: usualDir, plain: r.FromImage != ""}
	for _, ref := range t.cfg.Aliases[strings.TrimSuffix(name, ":"+latest)] {
		if _, err := t.cfg.Images.Resolve(ctx, ref); err == nil {
			b.ref, name = ref, ref
			break
		}
	}
	if r.FromImage != "" {
		return b, nil
	}
	img, ok, err := t.Find(ctx, name)
	if !ok {
		img, err = t.cfg.Images.Resolve(ctx, strings.TrimSuffix(name, ":"+defaultTag))
	}
	if err != nil {
		if code := proto.CodeOf(err); code != proto.NotFound && code != proto.InvalidArgument {
			return b, err
		}
		return b, proto.Invalid("fromTemplate", "fromTemplate: template %.80q was not found; a snapshot cannot be "+
			"built on", r.FromTemplate)
	}
	b.ref, b.facts = img.Name, FactsOf(img)
	if user, dir := Begin(img); user != "" {
		b.user = user
		if dir != "" {
			b.dir = dir
		}
	}
	return b, nil
}

// run builds a template.
func (t *Templates) run(ctx context.Context, e *entry, r Recipe, from base) {
	p, err := t.plan(e, r, from)
	if err == nil {
		t.clamped(e)
		err = t.build(ctx, e, r, from, p)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		e.log(LogEntry{Level: "info", Message: "The template is built: " + strings.Join(e.name.images(), ", ")})
		e.state = ready
		return
	}
	e.state, e.reason = failed, reasonOf(err, p)
	e.log(LogEntry{Level: "error", Message: e.reason.Message, Step: e.reason.Step})
}

// plan translates a template, with what its uploads have.
func (t *Templates) plan(e *entry, r Recipe, from base) (*plan, error) {
	var names [][]string
	for _, hash := range r.hashes() {
		if err := t.uploads.use(e.owner, hash); err != nil {
			return nil, err
		}
		list, err := t.uploads.read(t.uploads.path(e.owner, hash), nil)
		if err != nil {
			return nil, err
		}
		names = append(names, list)
	}
	return makePlan(r, from, names)
}

// clamped says which sizes a sandbox of the template will not have.
func (t *Templates) clamped(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if most := t.cfg.Limits.CPUs; most > 0 && float64(e.order.CPUCount) > most {
		e.logf("warn", "cpuCount %d: a sandbox of this daemon has %g cores at the most, and sandboxes of the template "+
			"get those", e.order.CPUCount, most)
	}
	if most := t.cfg.Limits.MemoryBytes >> 20; most > 0 && e.order.MemoryMB > most {
		e.logf("warn", "memoryMB %d: a sandbox of this daemon has %d MiB at the most, and sandboxes of the template "+
			"get those", e.order.MemoryMB, most)
	}
}

// build has the image builder build a plan.
func (t *Templates) build(ctx context.Context, e *entry, r Recipe, from base, p *plan) error {
	facts := Facts{Owner: fingerprint(e.owner), Build: e.id, Start: r.StartCmd, Ready: r.ReadyCmd,
		CPUs: float64(e.order.CPUCount), MemoryBytes: e.order.MemoryMB << 20}
	if facts.Start == "" && facts.Ready == "" {
		facts.Start, facts.Ready = from.facts.Start, from.facts.Ready
	}
	names := e.name.images()
	o := proto.BuildOptions{Name: names[0], MoreNames: names[1:], NoCache: r.forced(), Network: t.cfg.Network,
		Labels: map[string]string{proto.TemplateLabel: facts.label()}}
	in, out := io.Pipe()
	t.wg.Go(func() {
		out.CloseWithError(t.uploads.writeContext(out, p.text(), e.owner, r.hashes()))
	})
	said := &log{t: t, e: e, plan: p, steps: map[int]*stepLog{}}
	_, err := t.cfg.Builds.Build(ctx, o, in, said.add)
	in.Close() // ends the writer, if the build has not read all
	said.flush()
	return cause(ctx, err)
}

// reasonOf says why a build failed. p is nil if there was no Dockerfile yet.
func reasonOf(err error, p *plan) *Reason {
	var known *proto.Error
	if !errors.As(err, &known) {
		known = proto.Errorf(proto.Internal, "", "", "the build failed; the daemon's log has more")
	}
	r := &Reason{Message: strings.ReplaceAll(known.Message, shellShown, ""), Entries: []LogEntry{}}
	var f *build.BuildFailure
	if errors.As(err, &f) && p != nil {
		r.Step = p.stepOf(f.Line)
		if l, ok := p.lineOf(f.Step); ok && r.Step == "" {
			r.Step = l.step
		}
		for text := range strings.Lines(f.Log) {
			r.Entries = append(r.Entries, LogEntry{now(), "error", strings.TrimRight(text, "\r\n"), r.Step})
		}
	}
	return r
}

// Status returns where a build is, and its log from an offset on. A build of an earlier daemon is known by its image.
func (t *Templates) Status(ctx context.Context, owner, template, id string, offset int) (s Status, err error) {
	s = Status{TemplateID: template, BuildID: id, Logs: []string{}, Entries: []LogEntry{}}
	t.mu.Lock()
	e, err := t.find(owner, template, id)
	if err == nil {
		if s.State = e.state; e.started && e.state == waiting {
			s.State = building
		}
		list := e.entries[min(offset, len(e.entries)):]
		s.Entries = append(s.Entries, list[:min(len(list), EntriesAtOnce)]...)
		s.Reason = e.reason
	}
	t.mu.Unlock()
	if err == nil {
		return s, nil
	}
	list, listErr := t.Tagged(ctx, template)
	for _, img := range list {
		if f := FactsOf(img.Image); f.Build == id && f.Owner == fingerprint(owner) {
			s.State = ready
			return s, nil
		}
	}
	return s, errors.Join(listErr, err)
}

func builtOf(f wire.Found) wire.Built {
	return wire.Built(f)
}

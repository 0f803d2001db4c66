package session_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"

	"pgregory.net/rapid"
)

var (
	modelRuns  = flag.Int("model.runs", 8, "how many random runs the model test makes")
	modelSteps = flag.Int("model.steps", 45, "how many steps each takes, about")
	modelSeed  = flag.Uint64("model.seed", 0, "of the model test; 0 takes one from the clock. A failure says its own")
)

// TestModel runs random operations on the core and on a model of its promises, and compares the two after each step.
// A failing run is shortened, and reported with the seed that repeats it.
func TestModel(t *testing.T) {
	for name, value := range map[string]any{
		"rapid.checks": *modelRuns, "rapid.steps": *modelSteps, "rapid.seed": *modelSeed, "rapid.nofailfile": true,
		"rapid.shrinktime": "20s",
	} {
		if err := flag.Set(name, fmt.Sprint(value)); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		m := newModel(t)
		defer m.close()
		r.Repeat(map[string]func(*rapid.T){
			"":            m.check,
			"create":      m.create,
			"exec":        m.exec,
			"exec 2":      m.exec,
			"begin":       m.begin,
			"begin 2":     m.begin,
			"finish":      m.finish,
			"extend":      m.extend,
			"start":       m.start,
			"stop":        m.stop,
			"delete":      m.delete,
			"pause":       m.pause,
			"resume":      m.resume,
			"die":         m.die,
			"pass":        m.pass,
			"pass to end": m.passToEnd,
			"overstay":    m.overstay,
			"set clock":   m.setClock,
			"sweep":       m.sweep,
			"sweep 2":     m.sweep,
			"restart":     m.restart,
			"crash":       m.crash,
			"fault":       m.fault,
			"ledger dies": m.ledgerDies,
			"look":        m.look,
		})
		m.finally(r)
	})
}

// A model is the expected state of the core. Times are of the monotonic clock: the wall clock must not matter.
type model struct {
	t     *testing.T
	st    *sessiontest.Stack
	rt    *faultRuntime
	c     *twoClocks
	all   []*modelSession           // all sessions ever made
	kept  map[string]map[string]int // tokens in kept workspaces without a session
	execs map[string]bool           // IDs of all execs ever started
	n     int                       // number of tokens
	tail  *wait                     // abandoned cores
}

// A modelSession is one session of the model.
type modelSession struct {
	id, workspace          string
	keptSpace              bool // its workspace was kept before
	created, used, lease   time.Duration
	idle, life             time.Duration
	generation             int64
	running, expired, gone bool
	paused                 bool           // in addition to running
	dead                   bool           // its sandbox has died, and the core has not noticed
	deleting, keep         bool           // a deletion failed half way, and whether it was to keep the workspace
	tokens                 map[string]int // marks in its workspace: 1 must be there, 0 may be
	bg                     *session.Exec  // a running command
	bgToken                string
	finished               time.Duration // when it expired
	written                time.Duration // time of its last use as of the last sweep, which survives a crash
}

// modelStopAfter is how long a session without processes may be unused in the model.
const modelStopAfter = 3 * time.Second

func newModel(t *testing.T) *model {
	m := &model{t: t, c: newTwoClocks(), kept: map[string]map[string]int{}, execs: map[string]bool{}, tail: &wait{}}
	m.rt = &faultRuntime{Runtime: sessiontest.NewRuntime(t)}
	m.st = sessiontest.Over(t, m.rt, sessiontest.Images{},
		m.c.config(session.Config{Tombstone: time.Hour, ExecTimeout: time.Hour, StopAfter: modelStopAfter}))
	return m
}

func (m *model) close() {
	m.rt.clear()
	m.st.Close(m.t)
	m.tail.Wait()
	for _, id := range m.rt.sandboxes() {
		_ = m.rt.Runtime.Stop(context.Background(), id)
	}
}

func (m *model) now() time.Duration { return m.c.since.Now().Sub(m.c.begin) }

func (s *modelSession) cap() time.Duration { return s.created + s.life }

// expires returns when its lease ends. Paused sessions are kept for longer than they live in the model.
func (s *modelSession) expires() time.Duration {
	if s.paused {
		return s.cap()
	}
	return min(max(s.used+s.idle, s.lease), s.cap())
}

// code returns the error code that a use must get, or "" if it must succeed.
func (m *model) code(s *modelSession) proto.Code {
	switch {
	case s.gone || s.deleting:
		return proto.NotFound
	case s.expired || m.now() >= s.cap():
		return proto.Expired
	}
	return ""
}

// pick chooses a session, if possible one that is not gone.
func (m *model) pick(r *rapid.T) *modelSession {
	list := slices.DeleteFunc(slices.Clone(m.all), func(s *modelSession) bool { return s.gone })
	if len(list) == 0 || rapid.IntRange(0, 9).Draw(r, "any") == 0 {
		list = m.all
	}
	if len(list) == 0 {
		r.Skip("no session")
	}
	return rapid.SampledFrom(list).Draw(r, "session")
}

// get finds the real session, and checks the result of the look-up.
func (m *model) get(r *rapid.T, s *modelSession) *session.Session {
	real, err := m.st.Sessions.Get(sessiontest.Owner, s.id)
	if proto.CodeOf(err) != m.code(s) {
		r.Fatalf("finding %s: %v, want code %q", s.id, err, m.code(s))
	}
	return real
}

// usable finds the real session. If the session cannot be used, usable checks the error and skips the step.
func (m *model) usable(r *rapid.T, s *modelSession) *session.Session {
	real := m.get(r, s)
	if m.code(s) != "" {
		r.Skip("not usable")
	}
	return real
}

// use applies a use to the model: a stopped session starts its next generation.
func (m *model) use(s *modelSession) {
	if !s.running || s.dead {
		s.generation++
	}
	s.running, s.paused, s.dead, s.used = true, false, false, m.now()
}

func (m *model) create(r *rapid.T) {
	if live := slices.DeleteFunc(slices.Clone(m.all), func(s *modelSession) bool { return s.gone || s.expired }); len(
		live) >= 3 {
		r.Skip("enough")
	}
	s := &modelSession{
		idle: time.Duration(rapid.IntRange(5, 60).Draw(r, "idle")) * time.Second, life: time.Duration(
			rapid.IntRange(60, 300).Draw(r, "life")) * time.Second,
		tokens: map[string]int{}, created: m.now(), used: m.now(), generation: 1, running: true,
	}
	req := proto.CreateContainer{IdleTimeoutSeconds: int64(s.idle / time.Second), MaxLifetimeSeconds: int64(
		s.life / time.Second)}
	if spaces := slices.Sorted(maps.Keys(m.kept)); len(spaces) > 0 && rapid.Bool().Draw(r, "reuse") {
		req.WorkspaceID = rapid.SampledFrom(spaces).Draw(r, "workspace")
		s.keptSpace, s.tokens = true, m.kept[req.WorkspaceID]
	}
	real, err := m.st.Sessions.Create(context.Background(), sessiontest.Owner, req)
	if m.rt.hit() {
		if err == nil {
			r.Fatalf("created in spite of %s", m.rt.last)
		}
		return // it never existed; the next check verifies that
	}
	if err != nil {
		r.Fatalf("creating: %v", err)
	}
	s.id, s.workspace = real.ID(), real.WorkspaceID()
	for _, o := range m.all {
		if o.id == s.id || o.workspace == s.workspace && req.WorkspaceID == "" {
			r.Fatalf("ID %s or %s is used again", s.id, s.workspace)
		}
	}
	delete(m.kept, s.workspace)
	m.all = append(m.all, s)
}

func (m *model) mark(s *modelSession) (token, command string) {
	m.n++
	token = fmt.Sprintf("t%d", m.n)
	s.tokens[token] = 0
	return token, "echo " + token + " >>/workspace/tokens"
}

// mayFail checks the error of a step: there must be one if a fault was hit, and none otherwise. It reports whether to
// continue.
func (m *model) mayFail(r *rapid.T, s *modelSession, what string, err error) bool {
	if m.rt.hit() {
		if err != nil {
			m.adopt(r, s)
			return false
		}
		return true
	}
	if err != nil {
		r.Fatalf("%s %s: %v", what, s.id, err)
	}
	return true
}

// adopt copies from the core what a failed step may have left either way: whether the session runs, in which
// generation, and when it was used.
func (m *model) adopt(r *rapid.T, s *modelSession) {
	real, _ := m.st.Sessions.Get(sessiontest.Owner, s.id)
	if real == nil {
		r.Fatalf("%s is lost by a failure", s.id)
	}
	info := real.Info()
	if info.Generation < s.generation || info.Generation > s.generation+1 {
		r.Fatalf("%s is at generation %d after %d", s.id, info.Generation, s.generation)
	}
	s.generation, s.running, s.paused = info.Generation, info.State == proto.StateRunning ||
		info.State == proto.StatePaused, info.State == proto.StatePaused
	s.dead = s.dead && s.running
	s.used = max(s.used, info.LastUsedAt.Sub(m.c.wall.Now())+m.now())
}

func (m *model) exec(r *rapid.T) {
	s := m.pick(r)
	real := m.usable(r, s)
	token, command := m.mark(s)
	wasDead, bound := s.dead, rapid.Bool().Draw(r, "bound")
	cmd := proto.Cmd{Command: command}
	if bound {
		cmd.Generation = s.generation
	}
	res, err := real.Run(context.Background(), cmd)
	if bound && (!s.running || wasDead) {
		if proto.CodeOf(err) != proto.Conflict && !m.rt.hit() {
			r.Fatalf("bound to generation %d that is over: %v", s.generation, err)
		}
		delete(s.tokens, token) // it must never run
		m.adopt(r, s)
		return
	}
	if !m.mayFail(r, s, "running in", err) {
		return
	}
	m.settled(r, s)
	m.use(s)
	m.ran(r, res, s.generation)
	s.tokens[token] = 1
}

// ran checks that a command exited with 0 in this generation, and that its ID is new.
func (m *model) ran(r *rapid.T, res proto.ExecResult, generation int64) {
	if res.Exec.End == nil || res.Exec.End.Reason != proto.EndExit || res.Exec.End.ReturnCode != 0 ||
		res.Exec.Generation != generation || m.execs[res.Exec.ID] {
		r.Fatalf("ended as %+v; known before: %v; want generation %d", res.Exec, m.execs[res.Exec.ID], generation)
	}
	m.execs[res.Exec.ID] = true
}

func (m *model) begin(r *rapid.T) { m.beginIn(r, m.pick(r)) }

// beginIn starts a command that runs until the model ends it.
func (m *model) beginIn(r *rapid.T, s *modelSession) {
	if s.bg != nil {
		r.Skip("one is enough")
	}
	if s.cap()-m.now() < 30*time.Second {
		r.Skip("it would end by its own timer, which is a real one")
	}
	real := m.usable(r, s)
	token, command := m.mark(s)
	e, err := real.Exec(context.Background(), proto.Cmd{Command: "echo up; read -r x; [ \"$x\" = go ] && " + command,
		OpenStdin: true})
	if !m.mayFail(r, s, "beginning in", err) {
		return
	}
	m.use(s)
	s.bg, s.bgToken = e, token
}

func (m *model) finish(r *rapid.T) {
	s := m.pick(r)
	if s.bg == nil {
		r.Skip("nothing runs")
	}
	if err := s.bg.Write(context.Background(), []byte("go\n")); err != nil {
		r.Fatalf("writing to %s of %s: %v", s.bg.ID(), s.id, err)
	}
	res, err := s.bg.Wait(context.Background())
	if err != nil {
		r.Fatal(err)
	}
	m.ran(r, res, s.generation)
	s.tokens[s.bgToken] = 1
	s.bg, s.paused, s.used = nil, false, m.now()
	m.settled(r, s)
}

// settled waits until ended execs have released their session, which renews its lease once more: their answers come a
// moment before.
func (m *model) settled(r *rapid.T, s *modelSession) {
	busy := 0
	if s.bg != nil {
		busy = 1
	}
	real, _ := m.st.Sessions.Get(sessiontest.Owner, s.id)
	for end := time.Now().Add(10 * time.Second); real != nil && real.Users() > busy; {
		if time.Now().After(end) {
			r.Fatalf("%s is in use for ever", s.id)
		}
	}
}

func (m *model) extend(r *rapid.T) {
	s := m.pick(r)
	real := m.usable(r, s)
	d := time.Duration(rapid.IntRange(0, 120).Draw(r, "seconds")) * time.Second
	if _, err := real.Extend(d); err != nil {
		r.Fatalf("extending %s: %v", s.id, err)
	}
	s.used = m.now()
	if d > 0 {
		s.lease = max(s.lease, m.now()+d)
	}
}

// pause pauses a session, with its command if it has one. All other steps check that it resumes by itself.
func (m *model) pause(r *rapid.T) {
	s := m.pick(r)
	real := m.usable(r, s)
	err := real.Pause(context.Background())
	if !s.running || s.dead && !s.paused {
		code := proto.CodeOf(err)
		if code != proto.Conflict && code != proto.NotFound {
			r.Fatalf("pausing %s, which does not run: %v", s.id, err)
		}
		return
	}
	if err != nil {
		r.Fatalf("pausing %s: %v", s.id, err)
	}
	s.paused = true
}

func (m *model) resume(r *rapid.T) {
	s := m.pick(r)
	real := m.usable(r, s)
	err := real.Resume(context.Background())
	if !s.running || s.paused && s.dead {
		if proto.CodeOf(err) != proto.Conflict {
			r.Fatalf("resuming %s, which is stopped or has ended: %v", s.id, err)
		}
		if s.running {
			s.running, s.paused, s.dead, s.used = false, false, false, m.now()
		}
		return
	}
	if err != nil {
		r.Fatalf("resuming %s: %v", s.id, err)
	}
	s.paused, s.used = false, m.now() // a session that died before the pause seems to run until it is used
}

func (m *model) start(r *rapid.T) {
	s := m.pick(r)
	real := m.usable(r, s)
	if s.dead && !s.paused {
		r.Skip("seen to run")
	}
	if m.mayFail(r, s, "starting", real.Start(context.Background())) {
		m.use(s)
	}
}

// ended waits for the end of a session's command whose sandbox has gone, and checks its reason.
func (m *model) ended(r *rapid.T, s *modelSession, reasons ...proto.EndReason) {
	if s.bg == nil {
		return
	}
	res, err := s.bg.Wait(context.Background())
	if err != nil || !slices.Contains(reasons, res.Exec.End.Reason) {
		r.Fatalf("%s ended as %+v, %v; want one of %v", s.bg.ID(), res.Exec.End, err, reasons)
	}
	s.bg = nil
	m.settled(r, s)
}

func (m *model) stop(r *rapid.T) {
	s := m.pick(r)
	real := m.usable(r, s)
	busy := s.bg != nil
	_ = m.mayFail(r, s, "stopping", real.Stop(context.Background()))
	s.paused = false
	if s.running = real.Info().State != proto.StateStopped; s.running {
		r.Fatalf("%s runs on after a stop", s.id)
	}
	s.dead = false
	if m.ended(r, s, proto.EndStopped, proto.EndLost); busy {
		s.used = m.now()
	}
}

func (m *model) delete(r *rapid.T) {
	s := m.pick(r)
	keep := rapid.Bool().Draw(r, "keep")
	code := m.code(s)
	err := m.st.Sessions.Delete(context.Background(), sessiontest.Owner, s.id, keep)
	if code == proto.NotFound && s.gone {
		if proto.CodeOf(err) != proto.NotFound {
			r.Fatalf("deleting %s again: %v", s.id, err)
		}
		return
	}
	m.ended(r, s, proto.EndStopped, proto.EndLost, proto.EndExpired) // for a command past its container's cap
	// a second try does not keep a workspace whose removal has begun
	keep = keep && (!s.deleting || s.keep)
	s.deleting, s.keep, s.running, s.paused, s.dead = true, keep, false, false, false
	if m.rt.hit() && err != nil {
		return // the next try or a sweep finishes it
	}
	if err != nil {
		r.Fatalf("deleting %s: %v", s.id, err)
	}
	m.letGo(s, keep)
	s.gone = true
}

// letGo detaches a session's workspace in the model, if it still has one. A workspace that was not kept before the
// session expired cannot be kept any more.
func (m *model) letGo(s *modelSession, keep bool) {
	if (keep && !s.expired || s.keptSpace) && s.tokens != nil {
		m.kept[s.workspace] = s.tokens
	}
	s.tokens = nil
}

func (m *model) look(r *rapid.T) {
	s := m.pick(r)
	real := m.usable(r, s)
	res, err := real.Run(context.Background(), proto.Cmd{Command: "cat /workspace/tokens 2>/dev/null"})
	if !m.mayFail(r, s, "looking into", err) {
		return
	}
	m.settled(r, s)
	m.use(s)
	m.execs[res.Exec.ID] = true
	m.compare(r, s.id, s.tokens, res.Partial, res.Result.Result)
}

func (m *model) compare(r *rapid.T, id string, want map[string]int, partial any, got *proto.BashResult) {
	if got == nil {
		r.Fatalf("looking into %s: %+v", id, partial)
	}
	found := map[string]int{}
	for _, token := range strings.Fields(got.Stdout) {
		found[token]++
		if _, known := want[token]; !known || found[token] > 1 {
			r.Fatalf("%s holds %s %d times; expected: %v", id, token, found[token], known)
		}
	}
	for token, must := range want {
		if must == 1 && found[token] == 0 {
			r.Fatalf("%s has lost %s", id, token)
		}
	}
}

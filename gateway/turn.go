package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"berth/proto"
)

// A turn is one request: rounds with the upstream, and the calls that run between them. Only one goroutine at a time
// continues it. A failed turn keeps what it has done, and a repeated request continues from there.
type turn struct {
	g        *Gateway
	id       string        // part of the idempotency keys of its commands
	key      string        // its key in the ledger
	identity identity      // does not change
	lock     chan struct{} // holds one token: the right to continue the turn

	journal struct {
		saved   *turnRecord // record of an earlier daemon to continue from; nil: none
		written bool        // the ledger has a record of the turn
	}

	request   Request
	conv      Conversation
	answer    Answer
	container turnContainer

	progress struct {
		prepared bool
		pending  []*pendingCall // to run next, in order
		rounds   int
		began    time.Time // when this request began to work on the turn
	}

	// Guarded by Gateway.mu.
	users     int             // requests that use it
	alone     chan struct{}   // closed when users falls to 1; nil: nothing waits for that
	client    context.Context // of the last request that used it; ends when that client disconnects
	attempt   int             // of that request
	over      bool            // its client has its answer, and no other request may continue it
	idleSince time.Time       // zero while in use
	bytes     int             // approximate size while idle
}

// A turnContainer is the container of a turn.
type turnContainer struct {
	c       Container         // nil: the turn has not needed one yet
	created bool              // created for this turn
	told    bool              // the client was told its ID
	skills  json.RawMessage   // mounted skills with their versions; nil: none were requested
	like    proto.Confinement // of the container, or of the one to be created
	lost    string            // ID of a container that has gone and is to be replaced; "": none
	note    string            // to be shown with the next result that can show it; "": none
}

// containerRef returns the reference to the container for answers and errors. It returns nil if there is none, or if
// it has gone, so that the client does not continue with a container that does not exist.
func (t *turn) containerRef() *proto.ContainerRef {
	c := t.container.c
	if c == nil || t.isGone(c) {
		return nil
	}
	ref := c.Ref()
	return &ref
}

// run continues the turn until there is an answer, and delivers it.
func (t *turn) run(ctx context.Context) error {
	if err := t.prepare(ctx); err != nil {
		return err
	}
	if err := t.deliver(ctx); err != nil || t.answer.Final != nil {
		return err
	}
	t.resumeJournal()
	for {
		waiting, err := t.runCalls(ctx)
		if err != nil {
			return err
		}
		if waiting {
			return t.finish(ctx, ClientCalled)
		}
		if p := &t.progress; p.rounds > 0 && (p.rounds >= t.g.cfg.MaxRounds || time.Since(p.began) >= t.g.cfg.MaxTurn) {
			return t.finish(ctx, Paused)
		}
		round, err := t.conv.Ask(ctx)
		if err != nil {
			return t.interruption(ctx, err)
		}
		t.progress.rounds++
		if round.Done {
			return t.finish(ctx, Completed)
		}
		t.setPending(round.Calls)
	}
}

// prepare finds the container that the turn begins with, puts skills and files into it, and opens the conversation. It
// creates a container only if there is something to put into it.
func (t *turn) prepare(ctx context.Context) (err error) {
	if t.progress.prepared {
		return nil
	}
	if rec := t.journal.saved; rec != nil && t.answer.Head == nil {
		t.answer = Answer{Head: rec.Head, Content: rec.Content, Usage: rec.Usage, Final: rec.Final}
		rec.Content, rec.Final = nil, nil // t.answer holds them now
	}
	if t.answer.Final != nil { // only to be delivered; its container may be gone
		return t.open(Opening{})
	}
	if err := t.findContainer(); err != nil {
		return err
	}
	var opening Opening
	if refs := t.request.Skills; len(refs) > 0 {
		// Resolve before creating a container: a skill that does not exist is an error of the request.
		if opening.Skills, err = t.g.ResolveSkills(ctx, t.request.Owner, refs); err != nil {
			return err
		}
		c, err := t.ensureContainer(ctx)
		if err != nil {
			return err
		}
		if err := t.mountSkills(ctx, c); err != nil {
			return err
		}
	}
	if opening.Paths, err = t.provisionFiles(ctx); err != nil {
		return err
	}
	return t.open(opening)
}

// open opens the conversation.
func (t *turn) open(opening Opening) error {
	calls, err := t.conv.Open(opening)
	t.setPending(calls)
	t.progress.prepared = err == nil
	return err
}

// findContainer sets the container that the turn begins with. A retry keeps the container that an earlier attempt at
// the turn has created: the client does not know that container, so each retry would leak one. If it is gone or has
// expired, a new one may be created.
func (t *turn) findContainer() error {
	tc, containers, owner := &t.container, t.g.cfg.Containers, t.request.Owner
	if tc.c != nil {
		if _, err := containers.Find(owner, tc.c.Ref().ID); err == nil {
			return nil
		}
		if tc.created && !tc.told {
			t.g.deleteContainer(tc.c)
		}
	}
	tc.c, tc.created, tc.skills, tc.like = nil, false, nil, t.request.Confinement
	if rec := t.journal.saved; rec != nil && rec.Container != "" { // an earlier daemon has created or found it
		c, err := containers.Find(owner, rec.Container)
		if c == nil && proto.CodeOf(err) == proto.NotFound {
			tc.lost, tc.like = rec.Container, tc.like.Or(rec.Confinement)
			return nil
		}
		if c == nil {
			return err
		}
		tc.c, tc.created, tc.skills, tc.like = c, rec.Made, rec.Skills, c.Confinement()
		return nil
	}
	if t.request.Container == "" {
		return nil
	}
	c, err := t.g.FindContainer(owner, t.request.Container)
	if err != nil {
		return err
	}
	tc.c, tc.like = c, c.Confinement()
	return nil
}

// ensureContainer returns the container. If there is none, or if it has gone since the turn began, it creates one,
// which is confined like the one before.
func (t *turn) ensureContainer(ctx context.Context) (Container, error) {
	tc := &t.container
	lost := tc.lost
	if tc.c != nil {
		if !t.isGone(tc.c) {
			return tc.c, nil
		}
		lost = tc.c.Ref().ID
	}
	c, err := t.g.cfg.Containers.Create(ctx, t.request.Owner, tc.like)
	if err != nil {
		return nil, err
	}
	if tc.c != nil && tc.created && !tc.told {
		t.g.deleteContainer(tc.c) // it has expired
	}
	tc.c, tc.created, tc.told, tc.lost = c, true, false, ""
	t.writeRecord() // a later daemon deletes the container if no request continues the turn
	if lost == "" {
		return c, nil
	}
	tc.note = "the container " + lost + " is gone, with its files and processes; this ran in the new container " +
		c.Ref().ID
	if err := t.mountSkills(ctx, c); err != nil {
		return nil, err
	}
	_, err = t.provisionFiles(ctx)
	return c, err
}

// isGone reports whether a container was deleted or has expired.
func (t *turn) isGone(c Container) bool {
	_, err := t.g.cfg.Containers.Find(t.request.Owner, c.Ref().ID)
	code := proto.CodeOf(err)
	return code == proto.NotFound || code == proto.Expired
}

// mountSkills mounts the skills of the request.
func (t *turn) mountSkills(ctx context.Context, c Container) error {
	if len(t.request.Skills) == 0 {
		return nil
	}
	mounted, err := c.MountSkills(ctx, t.request.Skills)
	if err != nil {
		return err
	}
	t.container.skills, err = json.Marshal(mounted)
	return err
}

// provisionFiles puts the files of the request into the container, and returns their paths there by ID. Current files
// must exist. It skips older files that were deleted since.
func (t *turn) provisionFiles(ctx context.Context) (paths map[string]string, err error) {
	if len(t.request.Files) == 0 {
		return nil, nil
	}
	var stored []string
	for _, f := range t.request.Files {
		info, err := t.g.cfg.Files.Get(ctx, t.request.Owner, f.ID)
		if err == nil && info.ExpiresAt != nil && !info.ExpiresAt.After(t.progress.began) {
			err = proto.Errorf(proto.Expired, "", f.ID, "File `%s` has expired; upload it again.", f.ID)
		}
		switch {
		case err == nil:
			stored = append(stored, f.ID)
		case f.Current:
			return nil, err
		}
	}
	c, err := t.ensureContainer(ctx)
	if err != nil {
		return nil, err
	}
	return c.PutFiles(ctx, stored)
}

// finish completes the answer, writes it to the ledger and delivers it.
func (t *turn) finish(ctx context.Context, reason Reason) error {
	end := Ending{Reason: reason, Container: t.containerRef()}
	if end.Container != nil {
		end.Skills = t.container.skills
	}
	t.conv.Finish(end)
	// The record comes first: a later daemon must not delete a container that the client knows.
	t.container.told = t.container.told || ctx.Err() == nil
	if t.journal.written {
		t.writeRecord()
	}
	return t.deliver(ctx)
}

// deliver sends the client the answer so far. It sends nothing to a client that has disconnected. The ledger learns
// that the client has its answer before the end is sent: if the daemon dies then, no other request gets the answer.
func (t *turn) deliver(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := t.conv.Deliver(); err != nil || t.answer.Final == nil {
		return err
	}
	recorded := t.journal.written
	t.tell()
	err := t.conv.End()
	if err != nil && recorded {
		t.writeRecord()
	}
	return err
}

// tell records that the client is about to have its answer, and with it the ID of the container. No later request
// continues a turn without an idempotency key from then on, so its record is erased.
func (t *turn) tell() {
	told := t.container.told
	t.container.told = true
	switch {
	case !t.journal.written:
	case t.identity.retryKey == "":
		t.eraseRecord()
	case !told: // a later daemon must not delete the container
		t.writeRecord()
	}
}

// interruption converts the error of a round. The result names the container if the turn has done work there.
func (t *turn) interruption(ctx context.Context, err error) error {
	var i *Interruption
	switch {
	case errors.As(err, &i):
		if t.hasWork() { // otherwise the container is deleted
			i.Container = t.containerRef()
		}
		return i
	case ctx.Err() != nil:
		return ctx.Err()
	case len(t.answer.Content) == 0, errors.Is(err, ErrClientGone):
		return err
	}
	return &Interruption{Container: t.containerRef(), Err: proto.AsError(err)}
}

// outcome converts the error of the turn to the error that Answer returns.
func (t *turn) outcome(ctx context.Context, err error) error {
	var i *Interruption
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil || errors.Is(err, ErrClientGone):
		return fmt.Errorf("%w: %w", ErrClientGone, proto.Errorf(proto.Canceled, "", "",
			"the client disconnected in the middle of a turn"))
	case errors.As(err, &i) && i.Container != nil:
		t.tell()
	}
	return err
}

// answered reports whether the client of a request has its answer. err is the outcome. The client receives an error as
// its answer, too.
func (t *turn) answered(err error) bool {
	var i *Interruption
	switch {
	case err == nil, errors.As(err, &i):
		return true
	case errors.Is(err, ErrClientGone):
		return false
	}
	return !t.hasWork() // otherwise the client has to try again to get the work
}

// hasWork reports whether the turn has done anything that a later request can use.
func (t *turn) hasWork() bool {
	rec := t.journal.saved // holds the work until the turn is prepared
	return len(t.answer.Content) > 0 || t.answer.Final != nil ||
		rec != nil && (len(rec.Content) > 0 || rec.Final != nil)
}

// shrink drops the state that the turn does not need until its request is repeated. It returns approximately how many
// bytes remain. A finished turn needs only its answer. An unfinished turn keeps its conversation, or, if it was not
// prepared, the record of an earlier daemon.
func (t *turn) shrink() (bytes int) {
	for _, raw := range t.answer.Content {
		bytes += len(raw)
	}
	if rec := t.journal.saved; rec != nil {
		bytes += len(rec.Final)
		for _, raw := range rec.Content {
			bytes += len(raw)
		}
	}
	if t.answer.Final != nil {
		t.conv = nil
		return 2 * bytes
	}
	if t.conv != nil {
		bytes += 3 * t.request.Size
	}
	return bytes
}

// FindContainer returns the container that a request names. Its error has the code that clients expect.
func (g *Gateway) FindContainer(owner, id string) (Container, error) {
	c, err := g.cfg.Containers.Find(owner, id)
	if err == nil {
		return c, nil
	}
	switch e := proto.AsError(err); e.Code {
	case proto.NotFound:
		return nil, &Refusal{"container_not_found", e}
	case proto.Expired:
		return nil, &Refusal{"container_expired", e}
	}
	return nil, err
}

// ResolveSkills finds the skills of a request.
func (g *Gateway) ResolveSkills(ctx context.Context, owner string, refs []proto.SkillRef) ([]Skill, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	return g.cfg.Containers.ResolveSkills(ctx, owner, refs)
}

// deleteContainer deletes a container whose ID the client was never told.
func (g *Gateway) deleteContainer(c Container) {
	err := c.Delete(context.Background())
	if err != nil && proto.CodeOf(err) != proto.NotFound {
		g.cfg.Log.Warn("deleting the container of a turn that was given up; it is deleted when it expires", "container",
			c.Ref().ID, "error", err)
	}
}

package native

import (
	"context"
	"io"
	"net/http"
	"time"

	"berth/api"
	"berth/proto"
	"berth/session"
)

func (e *edge) runCommand(c *call, cmd proto.Cmd) (any, error) {
	if err := c.readRetryKey(&cmd.IdempotencyKey); err != nil {
		return nil, err
	}
	s, err := e.session(c)
	if err != nil {
		return nil, err
	}
	return runAndAnswer(c, s, cmd)
}

// runAndAnswer runs a command and answers as requested: with events, at once, or at the end of the command. Events
// take precedence over background: a client that asks for both may watch the start and leave, and the command keeps
// running.
func runAndAnswer(c *call, s *session.Session, cmd proto.Cmd) (any, error) {
	x, replayed, err := s.ExecOnce(c.ctx(), cmd)
	if err != nil {
		return nil, err
	}
	c.setReplayed(replayed)
	switch {
	case c.wantsEvents():
		return nil, streamExec(c, x)
	case cmd.Background:
		c.status = http.StatusAccepted
		return x.Info(), nil
	}
	if x.Outlives() {
		how := "the same request gets its result from the next daemon"
		if cmd.IdempotencyKey == "" {
			how = "get the result of exec " + x.ID() + " of container " + s.ID() + " from the next daemon; the same " +
				"request would run the command again"
		}
		return api.WaitUntilDraining(c.ctx(), how, x.Finish)
	}
	// A client that goes away ends its command.
	return x.Finish(c.ctx())
}

// ephemeralLifetime removes an ephemeral container whose deletion a crash of the daemon prevented. It is longer than
// any command.
const ephemeralLifetime = 25 * time.Hour

// A container and a command in one request.
type oneShot struct {
	proto.Cmd
	Create proto.CreateContainer `json:"create,omitzero"` // The container to create.
	// Delete the container when the command has ended, even if the client has gone.
	Ephemeral bool `json:"ephemeral,omitempty"`
}

func (o *oneShot) check() error {
	// The key would be overwritten, and a repeated request would get another container.
	if inner := o.Create.IdempotencyKey; inner != "" && inner != o.IdempotencyKey {
		return proto.Invalid("create.idempotency_key", "create.idempotency_key is for POST /v1/containers; here one "+
			"key is for the container and the command: send it as idempotency_key beside create, or as the header %s.",
			keyHeader)
	}
	if o.Ephemeral && (o.Background || o.Detach || o.ReconnectSeconds > 0) {
		return proto.Invalid("ephemeral", "ephemeral deletes the container when the answer is there, so it cannot be "+
			"combined with background, detach or reconnect_seconds.")
	}
	// A repeated request could only learn that the result is gone.
	if o.Ephemeral && o.IdempotencyKey != "" {
		return proto.Invalid("ephemeral", "ephemeral deletes the result with the container, so it cannot be combined "+
			"with an idempotency key; delete the container yourself.")
	}
	// A lifetime from the client is kept, even if it is shorter than the command.
	if o.Ephemeral && o.Create.MaxLifetimeSeconds == 0 {
		o.Create.MaxLifetimeSeconds = int64(ephemeralLifetime.Seconds())
	}
	return nil
}

func (e *edge) runOnce(c *call, req oneShot) (any, error) {
	if err := c.readRetryKey(&req.IdempotencyKey); err != nil {
		return nil, err
	}
	if err := req.check(); err != nil {
		return nil, err
	}
	req.Create.IdempotencyKey = req.IdempotencyKey // one key for both
	s, replayed, err := e.Sessions.CreateOnce(c.ctx(), c.owner, req.Create)
	if err != nil {
		return nil, err
	}
	// Answer here: the deletion below comes after the answer.
	answer, err := runAndAnswer(c, s, req.Cmd)
	if err == nil && answer != nil {
		err = c.json(c.status, answer)
	}
	if replayed { // another request created it
		return nil, err
	}
	if req.Ephemeral || err != nil && c.isOrphaned(s, req.IdempotencyKey) {
		e.deleteContainerNow(c, s) // no client knows it, or it was ephemeral
	}
	return nil, err
}

// isOrphaned reports whether no client will come for the container that a failed request has created.
func (c *call) isOrphaned(s *session.Session, key string) bool {
	// A command that started keeps its container even if the answer failed, since its output can be read.
	if len(s.Execs()) > 0 {
		return false
	}
	// With a key, the client comes back, or a second request of it is about to start the command.
	return key == "" || c.ctx().Err() == nil
}

// deleteContainerNow deletes a container even if its client has gone.
func (e *edge) deleteContainerNow(c *call, s *session.Session) {
	err := e.Sessions.Delete(context.WithoutCancel(c.ctx()), c.owner, s.ID(), false)
	if err != nil && proto.CodeOf(err) != proto.NotFound {
		e.Log.Error("deleting a container that is no longer needed; a sweep will try again", "container", s.ID(),
			"error", err)
	}
}

// Each description is right by itself; together they are no snapshot.
func (e *edge) listExecs(_ *call, s *session.Session) (page[proto.Exec], error) {
	var infos []proto.Exec
	for _, x := range s.Execs() {
		infos = append(infos, x.Info())
	}
	return list(infos, nil)
}

func (e *edge) getExec(c *call) (now proto.Exec, err error) {
	x, err := e.exec(c)
	if err != nil {
		return now, err
	}
	return x.Info(), nil
}

// A 202 tells the client to ask again. It comes at once without wait_seconds, and early when the daemon shuts down.
func (e *edge) execResult(c *call) (any, error) {
	x, err := e.exec(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.untilWaited()
	defer cancel()
	_, err = x.Wait(ctx)
	// Ask for the state again: the command may have ended just when the time ran out.
	if err != nil && c.ctx().Err() == nil && x.Info().State == proto.ExecRunning {
		c.status = http.StatusAccepted
		return x.Info(), nil
	}
	return x.Wait(c.ctx()) // returns at once, unless the client has gone
}

// untilWaited returns a context that ends after the requested wait, or when the server begins to shut down.
func (c *call) untilWaited() (context.Context, context.CancelFunc) {
	ctx, cancel := api.UntilDraining(c.ctx())
	ctx, stop := context.WithTimeout(ctx, time.Duration(c.whole(waitSeconds.Name))*time.Second)
	return ctx, func() { stop(); cancel() }
}

// The name of a signal.
type signalRequest struct {
	// SIGTERM, TERM, and so on; SIGKILL ends the whole process tree.
	Signal string `json:"signal" schema:"signal"`
}

func (e *edge) signalExec(c *call, req signalRequest) (now proto.Exec, err error) {
	x, err := e.exec(c)
	if err != nil {
		return now, err
	}
	err = x.Signal(c.ctx(), req.Signal)
	return x.Info(), err
}

// A size of 0 is refused. The kernel would take it, and programs read it as an unknown size.
func (e *edge) resizeExec(c *call, size proto.WindowSize) (now proto.Exec, err error) {
	if size.Rows == 0 || size.Cols == 0 {
		return now, proto.Invalid("rows", "rows and cols must be at least 1.")
	}
	x, err := e.exec(c)
	if err != nil {
		return now, err
	}
	err = x.Resize(c.ctx(), size)
	return x.Info(), err
}

// How many bytes standard input took.
type written struct {
	Bytes int64 `json:"bytes"`
}

// stdinPiece is how many bytes of a body are read before they are written on. The server only notices a client that
// has gone after reading its body, so a smaller body does not keep its request open for a command that does not read.
const stdinPiece = 512 << 10

// The answer comes when the command has taken all of it, which slows down a fast client.
func (e *edge) writeStdin(c *call) (done written, err error) {
	x, err := e.exec(c)
	if err != nil {
		return done, err
	}
	done.Bytes, err = copyToStdin(c.ctx(), x, c.r.Body)
	// After all was written: an earlier end of input would cut it off.
	if err == nil && c.flag("close") {
		err = x.CloseStdin()
	}
	return done, err
}

// copyToStdin writes all of r to the standard input of a command, as fast as the command reads.
func copyToStdin(ctx context.Context, x *session.Exec, r io.Reader) (n int64, err error) {
	for {
		piece, err := io.ReadAll(io.LimitReader(r, stdinPiece))
		if len(piece) > 0 {
			if werr := x.Write(ctx, piece); werr != nil {
				return n, werr
			}
			n += int64(len(piece))
		}
		// ReadAll returns no error at the end of the body; a short piece is the last one.
		if err != nil || len(piece) < stdinPiece {
			return n, err
		}
	}
}

// A persistent shell of a container.
type shell struct {
	Name      string     `json:"name"`
	User      string     `json:"user"`
	PID       int        `json:"pid"` // As the container counts.
	Busy      bool       `json:"busy"`
	Cwd       string     `json:"cwd"` // Empty where it cannot be read.
	Calls     int        `json:"calls"`
	StartedAt proto.Time `json:"started_at"`
}

func (e *edge) listShells(c *call, s *session.Session) (page[shell], error) {
	infos, err := s.Shells(c.ctx())
	var shells []shell
	for _, i := range infos {
		shells = append(shells, shell{i.Name, i.User, i.PID, i.Busy, i.Dir, i.Calls, i.StartedAt})
	}
	return list(shells, err)
}

// The answer to the deletion of what has a name and no ID.
type deletedName struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"` // Always true.
}

func (e *edge) closeShell(c *call, s *session.Session) (deletedName, error) {
	// A name that no shell can have is not found rather than invalid, since it is part of the path.
	name := c.path("name")
	if !proto.ValidJobID(name) {
		return deletedName{}, proto.Errorf(proto.NotFound, "", api.Shortened(name), "shell %.80q does not exist in "+
			"container %s", name, s.ID())
	}
	return deletedName{name, true}, s.CloseShell(c.ctx(), name)
}

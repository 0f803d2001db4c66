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

func (e *edge) runCommand(c *call) error {
	var cmd proto.Cmd
	if err := api.Decode(c.r, &cmd); err != nil {
		return err
	}
	if err := c.readRetryKey(&cmd.IdempotencyKey); err != nil {
		return err
	}
	s, err := e.session(c)
	if err != nil {
		return err
	}
	return runAndAnswer(c, s, cmd)
}

// runAndAnswer runs a command and answers as requested: with events, at once, or at the end of the command. Events
// take precedence over background: a client that asks for both may watch the start and leave, and the command keeps
// running.
func runAndAnswer(c *call, s *session.Session, cmd proto.Cmd) error {
	x, replayed, err := s.ExecOnce(c.r.Context(), cmd)
	if err != nil {
		return err
	}
	c.setReplayed(replayed)
	switch {
	case c.wantsEvents():
		return streamExec(c, x)
	case cmd.Background:
		return c.json(http.StatusAccepted, x.Info())
	}
	// A client that goes away ends its command, unless the command is to outlive it.
	res, err := x.Finish(c.r.Context())
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, res)
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
		return invalid("create.idempotency_key", "create.idempotency_key is for POST /v1/containers; here one key "+
			"is for the container and the command: send it as idempotency_key beside create, or as the header %s.",
			keyHeader)
	}
	if o.Ephemeral && (o.Background || o.Detach) {
		return invalid("ephemeral", "ephemeral deletes the container when the answer is there, so it cannot be "+
			"combined with background or detach.")
	}
	// A repeated request could only learn that the result is gone.
	if o.Ephemeral && o.IdempotencyKey != "" {
		return invalid("ephemeral", "ephemeral deletes the result with the container, so it cannot be combined with "+
			"an idempotency key; delete the container yourself.")
	}
	// A lifetime from the client is kept, even if it is shorter than the command.
	if o.Ephemeral && o.Create.MaxLifetimeSeconds == 0 {
		o.Create.MaxLifetimeSeconds = int64(ephemeralLifetime.Seconds())
	}
	return nil
}

func (e *edge) runOnce(c *call) error {
	var req oneShot
	if err := api.Decode(c.r, &req); err != nil {
		return err
	}
	if err := c.readRetryKey(&req.IdempotencyKey); err != nil {
		return err
	}
	if err := req.check(); err != nil {
		return err
	}
	req.Create.IdempotencyKey = req.IdempotencyKey // one key for both
	s, replayed, err := e.Sessions.CreateOnce(c.r.Context(), c.owner, req.Create)
	if err != nil {
		return err
	}
	err = runAndAnswer(c, s, req.Cmd)
	if replayed { // another request created it
		return err
	}
	if req.Ephemeral || err != nil && c.isOrphaned(s, req.IdempotencyKey) {
		e.deleteContainerNow(c, s) // no client knows it, or it was ephemeral
	}
	return err
}

// isOrphaned reports whether no client will come for the container that a failed request has created.
func (c *call) isOrphaned(s *session.Session, key string) bool {
	// A command that started keeps its container even if the answer failed, since its output can be read.
	if len(s.Execs()) > 0 {
		return false
	}
	// With a key, the client comes back, or a second request of it is about to start the command.
	return key == "" || c.r.Context().Err() == nil
}

// deleteContainerNow deletes a container even if its client has gone.
func (e *edge) deleteContainerNow(c *call, s *session.Session) {
	err := e.Sessions.Delete(context.WithoutCancel(c.r.Context()), c.owner, s.ID(), false)
	if err != nil && proto.CodeOf(err) != proto.NotFound {
		e.Log.Error("deleting a container that nobody is to use again; a sweep will try again", "container", s.ID(),
			"error", err)
	}
}

// Each description is right by itself; together they are no snapshot.
func (e *edge) listExecs(c *call, s *session.Session) error {
	var infos []proto.Exec
	for _, x := range s.Execs() {
		infos = append(infos, x.Info())
	}
	return list(c, infos)
}

func (e *edge) getExec(c *call) error {
	x, err := e.exec(c)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, x.Info())
}

// A 202 tells the client to ask again. It comes at once without wait_seconds, and early when the daemon shuts down.
func (e *edge) execResult(c *call) error {
	x, err := e.exec(c)
	if err != nil {
		return err
	}
	ctx, cancel := untilDrain(c.r.Context())
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, time.Duration(c.whole("wait_seconds"))*time.Second)
	defer stop()
	_, err = x.Wait(ctx)
	// Ask for the state again: the command may have ended just when the time ran out.
	if err != nil && c.r.Context().Err() == nil && x.Info().State == proto.ExecRunning {
		return c.json(http.StatusAccepted, x.Info())
	}
	res, err := x.Wait(c.r.Context()) // returns at once, unless the client has gone
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, res)
}

// The name of a signal.
type signalRequest struct {
	// SIGTERM, TERM, and so on; SIGKILL ends the whole process tree.
	Signal string `json:"signal" schema:"signal"`
}

func (e *edge) signalExec(c *call) error {
	var req signalRequest
	if err := api.Decode(c.r, &req); err != nil {
		return err
	}
	x, err := e.exec(c)
	if err != nil {
		return err
	}
	if err := x.Signal(c.r.Context(), req.Signal); err != nil {
		return err
	}
	return c.json(http.StatusOK, x.Info())
}

func (e *edge) resizeExec(c *call) error {
	var size proto.WindowSize
	if err := api.Decode(c.r, &size); err != nil {
		return err
	}
	if err := checkSize(size); err != nil {
		return err
	}
	x, err := e.exec(c)
	if err != nil {
		return err
	}
	if err := x.Resize(c.r.Context(), size); err != nil {
		return err
	}
	return c.json(http.StatusOK, x.Info())
}

// checkSize refuses 0. The kernel would take it, and programs read it as an unknown size.
func checkSize(size proto.WindowSize) error {
	if size.Rows == 0 || size.Cols == 0 {
		return invalid("rows", "rows and cols must be at least 1.")
	}
	return nil
}

// How many bytes standard input took.
type written struct {
	Bytes int64 `json:"bytes"`
}

// stdinPiece is how many bytes of a body are read before they are written on. The server only notices a client that
// has gone after reading its body, so a smaller body does not keep its request open for a command that does not read.
const stdinPiece = 512 << 10

// The answer comes when the command has taken all of it, which slows down a fast client.
func (e *edge) writeStdin(c *call) error {
	x, err := e.exec(c)
	if err != nil {
		return err
	}
	n, err := copyToStdin(c.r.Context(), x, c.r.Body)
	// After all was written: an earlier end of input would cut it off.
	if err == nil && c.flag("close") {
		err = x.CloseStdin()
	}
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, written{n})
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

func (e *edge) listShells(c *call, s *session.Session) error {
	infos, err := s.Shells(c.r.Context())
	if err != nil {
		return err
	}
	var shells []shell
	for _, i := range infos {
		shells = append(shells, shell{i.Name, i.User, i.PID, i.Busy, i.Dir, i.Calls, i.StartedAt})
	}
	return list(c, shells)
}

// The answer to the deletion of what has a name and no ID.
type deletedName struct {
	Name    string `json:"name"`
	Deleted bool   `json:"deleted"` // Always true.
}

func (e *edge) closeShell(c *call, s *session.Session) error {
	// A name that no shell can have is not found rather than invalid, since it is part of the path.
	name := c.r.PathValue("name")
	if !proto.ValidJobID(name) {
		return proto.Errorf(proto.NotFound, "", shortened(name), "shell %.80q does not exist in container %s",
			name, s.ID())
	}
	if err := s.CloseShell(c.r.Context(), name); err != nil {
		return err
	}
	return c.json(http.StatusOK, deletedName{name, true})
}

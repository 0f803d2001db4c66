package tooluse

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"berth/proto"
	"berth/session"
	"berth/tools/toolinput"
)

// shellName is the persistent shell that the client-side bash tool works in.
const shellName = "bash"

// A bashInput is the input of both bash tools.
type bashInput struct {
	// A pointer, since a restart comes without one.
	Command *string `json:"command"`
	Restart bool    `json:"restart"`
}

// bashError is an answer to the model, not a failure of the request: the conversation goes on.
func bashError(code proto.BlockError) proto.BashError {
	return proto.BashError{Type: proto.TypeBashError, ErrorCode: code}
}

// runBash is the hosted tool: a fresh bash for each call, typed content.
func runBash(ctx context.Context, s *session.Session, u *Use) (any, bool, error) {
	var in bashInput
	if err := toolinput.Decode(u.Input, &in); err != nil || in.Command == nil || *in.Command == "" {
		// The hosted tool has only error codes and no text, so the answer cannot say what was wrong with the input.
		return bashError(proto.BlockInvalidInput), false, nil
	}
	res, err := u.bash(ctx, s, proto.Cmd{Command: *in.Command})
	switch {
	case err != nil && (fatal(s, err) || u.misused(err)):
		return nil, false, err
	case err != nil:
		return bashError(blockError(err)), false, nil
	}
	u.notes = res.Notes
	return res.Result, false, nil
}

// runShell is the client-side tool: one shell that keeps its variables and directory, with one text as result. Its
// errors begin with "Error: ", since this tool's result has no codes.
func runShell(ctx context.Context, s *session.Session, u *Use) (any, bool, error) {
	var in bashInput
	if err := toolinput.Decode(u.Input, &in); err != nil {
		return "Error: " + errorText(s, err), true, nil
	}
	if in.Restart {
		return restartShell(ctx, s)
	}
	if in.Command == nil || *in.Command == "" {
		return "Error: no command provided", true, nil
	}
	// The tool has no timeout parameter: the daemon's default ends a command that waits for input.
	res, err := u.bash(ctx, s, proto.Cmd{Command: *in.Command, Shell: shellName})
	switch {
	case err != nil && (fatal(s, err) || u.misused(err)):
		return nil, false, err
	case err != nil:
		return "Error: " + errorText(s, err), true, nil
	}
	text, failed := shellText(res)
	return text, failed, nil
}

// bash runs a command to its end, once for an idempotency key.
func (u *Use) bash(ctx context.Context, s *session.Session, cmd proto.Cmd) (proto.ExecResult, error) {
	// A client whose connection broke sends the block again: with a key the command does not run twice.
	cmd.IdempotencyKey, cmd.TimeoutSeconds = u.IdempotencyKey, u.TimeoutSeconds
	e, replayed, err := s.ExecOnce(ctx, cmd)
	if err != nil {
		return proto.ExecResult{}, err
	}
	u.replayed = replayed
	if u.Started != nil {
		u.Started(e)
	}
	// Finish, not Wait: if ctx ends first, the result has no reader, and the command ends as well.
	return e.Finish(ctx)
}

// misused reports whether err is about the key, which the model does not know.
func (u *Use) misused(err error) bool {
	var e *proto.Error
	return u.IdempotencyKey != "" && errors.As(err, &e) && (e.Item == u.IdempotencyKey || e.Item == "idempotency_key")
}

// restartShell ends the shell and everything that runs in it. The next command makes a new shell.
func restartShell(ctx context.Context, s *session.Session) (any, bool, error) {
	err := s.CloseShell(ctx, shellName)
	switch {
	case err != nil && fatal(s, err):
		return nil, false, err
	case err != nil && proto.CodeOf(err) != proto.NotFound: // no shell is as good as a fresh one
		return "Error: " + errorText(s, err), true, nil
	}
	return "Bash session restarted", false, nil
}

// shellText is the result as the one text that the client-side tool gives to the model.
func shellText(res proto.ExecResult) (text string, failed bool) {
	var b strings.Builder
	// Standard output first, then errors: the order across two streams is unknown.
	if r := res.Result.Result; r != nil {
		b.WriteString(r.Stdout)
		join(&b, r.Stderr)
		if r.ReturnCode != 0 {
			join(&b, fmt.Sprintf("[exit code: %d]", r.ReturnCode))
		}
		joinNotes(&b, res.Notes)
		return b.String(), r.ReturnCode != 0
	}
	// The command was ended. Its output until then often shows the model why.
	if res.Partial != nil {
		b.WriteString(res.Partial.Stdout)
		join(&b, res.Partial.Stderr)
	}
	join(&b, "Error: "+endText(res.Exec))
	if res.Exec.End.Reason != proto.EndTimeout { // its text says already what became of the shell
		joinNotes(&b, res.Notes)
	}
	return b.String(), true
}

func joinNotes(b *strings.Builder, notes []string) {
	for _, note := range notes {
		join(b, "["+note+"]")
	}
}

// endText tells the model why its command ended early and what that means for the shell.
func endText(e proto.Exec) string {
	switch e.End.Reason {
	case proto.EndTimeout:
		// Measured, since the timeout is the daemon's own and not in the request.
		seconds := e.EndedAt.Sub(e.StartedAt.Time).Seconds()
		return fmt.Sprintf("command did not finish within %.0f seconds; the shell was ended and the next command "+
			"starts a fresh one", seconds)
	case proto.EndOutputLimit:
		return "the command wrote too much output and was ended"
	}
	return "the command was ended: " + e.End.Message
}

// join appends s on a line of its own.
func join(b *strings.Builder, s string) {
	if s == "" {
		return
	}
	if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	b.WriteString(s)
}

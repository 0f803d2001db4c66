package session

import (
	"fmt"
	"strings"
	"time"

	"berth/guest/output"
	"berth/proto"
)

// stderrTail is how much of standard error a manifest quotes, in bytes.
const stderrTail = 2 << 10

// resultOf builds the typed answer to an exec, and says in info whether output was left out.
func (e *Exec) resultOf(out *output.Output, info *proto.Exec, made Produced) proto.ExecResult {
	stdout, cut1 := text(out, proto.Stdout)
	stderr, cut2 := text(out, proto.Stderr)
	info.Truncated = cut1 || cut2
	res := proto.ExecResult{Exec: *info, Notes: made.Notes}
	if code := blockError(info.End.Reason); code != "" {
		res.Result.Error = &proto.BashError{Type: proto.TypeBashError, ErrorCode: code}
		res.Partial = &proto.Output{Stdout: stdout, Stderr: stderr}
		return res
	}
	content := make([]proto.BashOutput, len(made.FileIDs))
	for i, id := range made.FileIDs {
		content[i] = proto.BashOutput{Type: proto.TypeBashOutput, FileID: id}
	}
	res.Result.Result = &proto.BashResult{
		Type: proto.TypeBashResult, Stdout: stdout, Stderr: stderr, ReturnCode: info.End.ReturnCode, Content: content,
	}
	return res
}

// untold is how long an ended exec's output waits for somebody to ask, when there is too much of it.
const untold = time.Minute

// dropOutput gives the memory of an ended exec's output back, unless somebody is still to be told of it.
// The result then says that it was left out.
func (e *Exec) dropOutput() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.told && e.s.core.cfg.Now().Before(e.info.EndedAt.Add(untold)) {
		return
	}
	e.out.Drop()
	res := e.resultOf(e.out, &e.info, e.made)
	e.result = &res
}

// blockError is how the result block names an end that the command did not bring about
// itself. The block has few codes; the exec's end has the whole truth.
func blockError(r proto.EndReason) proto.BlockError {
	switch r {
	case proto.EndTimeout:
		return proto.BlockTimeExceeded
	case proto.EndOutputLimit:
		return proto.BlockTooLarge
	case proto.EndLost, proto.EndHostRestart, proto.EndStopped, proto.EndExpired, proto.EndCanceled:
		return proto.BlockUnavailable
	}
	return ""
}

// text is a stream as the result shows it, and whether something is left out in the middle.
func text(out *output.Output, s proto.Stream) (string, bool) {
	head, tail, dropped := out.Text(s)
	if dropped == 0 {
		return strings.ToValidUTF8(string(head)+string(tail), "\uFFFD"), false
	}
	mark := fmt.Sprintf("\n[output truncated: %d bytes left out]\n", dropped)
	return strings.ToValidUTF8(string(head)+mark+string(tail), "\uFFFD"), true
}

// tail is the last n bytes that a stream kept.
func (e *Exec) tail(s proto.Stream, n int) string {
	head, tail, _ := e.out.Text(s)
	all := append(head, tail...)
	return e.veil.tail(validText(all), n)
}

// commandLine is a command for people.
func commandLine(info proto.Exec) string {
	if info.Command != "" {
		return info.Command
	}
	return strings.Join(info.Argv, " ")
}

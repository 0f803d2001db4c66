package session

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"unicode/utf8"

	"berth/guest/output"
	"berth/guest/wire"
	"berth/proto"

	"golang.org/x/sys/unix"
)

// resultOf builds the result of an exec, and notes in info whether output was left out.
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

// blockError returns the result block's name for an end that the command did not cause itself. The block has few
// codes; the exec's end has the exact reason.
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

// text returns a stream's text for the result, and whether its middle part is missing.
func text(out *output.Output, s proto.Stream) (string, bool) {
	head, tail, dropped := out.Text(s)
	if dropped == 0 {
		return strings.ToValidUTF8(string(head)+string(tail), "\uFFFD"), false
	}
	mark := fmt.Sprintf("\n[output truncated: %d bytes left out]\n", dropped)
	return strings.ToValidUTF8(string(head)+mark+string(tail), "\uFFFD"), true
}

// tail returns the last n bytes of what a stream kept, without secrets.
func (e *Exec) tail(s proto.Stream, n int) string {
	head, tail, _ := e.out.Text(s)
	all := append(head, tail...)
	return e.redactor.Tail(validText(all), n)
}

// commandLine returns a command in readable form.
func commandLine(info proto.Exec) string {
	if info.Command != "" {
		return info.Command
	}
	return strings.Join(info.Argv, " ")
}

// validText returns b as valid UTF-8.
func validText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// What programs print when the kernel refuses them space or processes. A limit gets the blame only for an end that
// fits it; see docs/decisions.
var (
	saysDisk = regexp.MustCompile(`No space left on device|Disk quota exceeded|ENOSPC|EDQUOT`)
	saysPIDs = regexp.MustCompile(
		`Resource temporarily unavailable|EAGAIN|[Cc]an(no|')t (start|create)( a)?( new)? (thread|process)|` +
			`[Cc]annot fork|unable to create (new )?native thread|failed to create new OS thread|pthread_create`)
	saysFork = regexp.MustCompile(`(?i)(fork|clone|thread|spawn|subprocess)[^\n]*Resource temporarily unavailable|` +
		`BlockingIOError: \[Errno 11\]|can't start new thread|[Cc]annot fork|failed to create new OS thread`)
)

// diagnosedTail is how many bytes at the end of each stream are searched.
const diagnosedTail = 4 << 10

// A diagnosis finds the limit that an exec ran into.
type diagnosis struct {
	e             *Exec
	x             wire.Exit
	before, after Reading
	known         bool // before is known
}

// explainEnd adds the limit that caused an end, if one did.
func (e *Exec) explainEnd(end proto.End) proto.End {
	proc := e.process()
	if proc == nil {
		return end
	}
	f := diagnosis{e: e, after: unread}
	if end.Reason == proto.EndLost || end.ReturnCode != 0 {
		f.after = e.s.measure() // at once: the sandbox may be removed soon
	}
	if end.Reason != proto.EndLost {
		select {
		case <-proc.Done():
			f.x, _ = proc.Wait(context.Background())
		default: // the process was given up
		}
	}
	if e.before != nil {
		f.before, f.known = *e.before, true
	}
	return f.explain(end)
}

func (f *diagnosis) explain(end proto.End) proto.End {
	if f.x.NoOutputDir {
		end.Message = joinSentences(end.Message,
			"$OUTPUT_DIR could not be made, since /workspace is full; remove something there")
	}
	switch end.Reason {
	case proto.EndLost:
		return f.lost(end)
	case proto.EndExit, proto.EndSignal:
		if end.ReturnCode != 0 {
			return f.failed(end)
		}
	case proto.EndTimeout, proto.EndKilled, proto.EndCanceled, proto.EndOutputLimit:
		if f.refused() {
			end.Message = joinSentences(end.Message, f.pidMessage())
		}
		if full := f.full(true); full != "" {
			end.Message = joinSentences(end.Message, full)
		}
	}
	return end
}

// lost distinguishes a sandbox that the kernel killed at a limit from one that vanished.
func (f *diagnosis) lost(end proto.End) proto.End {
	killed := proto.End{ReturnCode: 128 + int(syscall.SIGKILL), Signal: unix.SignalName(syscall.SIGKILL)}
	switch {
	case !f.known:
	case f.before.OOMKills >= 0 && f.after.OOMKills > f.before.OOMKills:
		killed.Reason = proto.EndOutOfMemory
		killed.Message = fmt.Sprintf("the container reached its memory limit of %d bytes (limits.memory_bytes) and "+
			"was ended with all that ran in it; its next use starts it again with its files",
			f.limits().MemoryBytes)
		return killed
	case f.refused():
		killed.Reason = proto.EndPIDLimit
		killed.Message = f.pidMessage() + "; it was ended with all that ran in it, and its next use starts it again " +
			"with its files"
		return killed
	}
	return end
}

// failed finds the limit that made a command fail, if one did.
func (f *diagnosis) failed(end proto.End) proto.End {
	said := f.e.tail(proto.Stderr, diagnosedTail) + "\n" + f.e.tail(proto.Stdout, diagnosedTail)
	silent := f.e.tail(proto.Stderr, 1) == "" // a command that prints a reason failed for that reason
	gvisor := f.e.s.record().Class == proto.ClassGVisor
	switch {
	case f.refused() && (silent || saysPIDs.MatchString(said)), gvisor && saysFork.MatchString(said):
		end.Reason, end.Message = proto.EndPIDLimit, f.pidMessage()
	case f.full(true) != "" && (silent || saysDisk.MatchString(said)):
		end.Reason, end.Message = proto.EndDiskQuota, f.full(true)
	case f.full(false) != "" && saysDisk.MatchString(said):
		end.Reason, end.Message = proto.EndDiskQuota, f.full(false)
	case saysDisk.MatchString(said):
		end.Message = joinSentences(end.Message, "its output tells of a full disk, which is not full now"+f.usage())
	}
	return end
}

// refused reports whether the container was refused a process while the exec ran.
func (f *diagnosis) refused() bool {
	return f.x.ForksRefused || f.known && f.before.PIDRefusals >= 0 && f.after.PIDRefusals > f.before.PIDRefusals
}

func (f *diagnosis) limits() proto.Limits { return f.e.s.record().Limits }

func (f *diagnosis) pidMessage() string {
	return fmt.Sprintf("the container reached its limit of %d processes and threads (limits.pids); end some, or "+
		"create a container with more", f.limits().PIDs)
}

// full describes what is full now, or is "". With onlyNew, what was full at the start of the exec does not count.
func (f *diagnosis) full(onlyNew bool) string {
	newly := func(before bool) bool { return !onlyNew || !before }
	shared := "of limits.disk_bytes; remove something, or create a container with a higher limit"
	memory := "which is in memory and bounded by limits.memory_bytes; remove something, or work in /workspace"
	before := f.before
	if !f.known { // unknown counts as full before
		before = f.after
	}
	x, b, a := f.x, before, f.after
	switch {
	case a.Workspace.Full() && newly(b.Workspace.Full()):
		return fmt.Sprintf("/workspace is full: it uses %d of %d bytes %s", a.Workspace.Used, a.Workspace.Limit, shared)
	case a.Layer.Full() && newly(b.Layer.Full()):
		return fmt.Sprintf("the container's disk outside /workspace is full: it uses %d of %d bytes %s", a.Layer.Used,
			a.Layer.Limit, shared)
	case x.Full&wire.ShortTmp != 0 && newly(x.FullBefore&wire.ShortTmp != 0):
		return "/tmp is full, " + memory
	case x.Full&wire.ShortShm != 0 && newly(x.FullBefore&wire.ShortShm != 0):
		return "/dev/shm is full, " + memory
	case a.Pool.Full() && newly(b.Pool.Full()):
		return "the disk pool that all containers share is full; ask the operator to make room, or remove " +
			"containers and workspaces"
	}
	return ""
}

// usage describes how full the disks are, if that is known.
func (f *diagnosis) usage() string {
	if f.after.Workspace.Limit == 0 {
		return ""
	}
	return fmt.Sprintf(": /workspace uses %d of %d bytes, the rest of the disk %d of %d",
		f.after.Workspace.Used, f.after.Workspace.Limit, f.after.Layer.Used, f.after.Layer.Limit)
}

// joinSentences appends a sentence to a message.
func joinSentences(message, more string) string { return strings.TrimPrefix(message+"; "+more, "; ") }

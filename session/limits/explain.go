package limits

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"

	"berth/guest/wire"
	"berth/proto"

	"golang.org/x/sys/unix"
)

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

// searchedTail is how many bytes at the end of each stream are searched.
const searchedTail = 4 << 10

// An Observation is what is known about the end of a command.
type Observation struct {
	Exit   wire.Exit // as the guest reports it
	Before *Reading  // the counters at the start of the command; nil: unknown
	After  Reading   // the counters at its end
	Limits proto.Limits
	Class  proto.RuntimeClass
	Tail   func(s proto.Stream, n int) string // returns the last n bytes of a stream
}

// Explain adds the limit that caused an end, if one did.
func (o *Observation) Explain(end proto.End) proto.End {
	if o.Exit.NoOutputDir {
		end.Message = joinSentences(end.Message,
			"$OUTPUT_DIR could not be made, since /workspace is full; remove something there")
	}
	switch end.Reason {
	case proto.EndLost:
		return o.explainLost(end)
	case proto.EndExit, proto.EndSignal:
		if end.ReturnCode != 0 {
			return o.explainFailed(end)
		}
	case proto.EndTimeout, proto.EndKilled, proto.EndCanceled, proto.EndOutputLimit:
		if o.refused() {
			end.Message = joinSentences(end.Message, o.pidMessage())
		}
		if full := o.full(true); full != "" {
			end.Message = joinSentences(end.Message, full)
		}
	}
	return end
}

// explainLost distinguishes a sandbox that the kernel killed at a limit from one that vanished.
func (o *Observation) explainLost(end proto.End) proto.End {
	killed := proto.End{ReturnCode: 128 + int(syscall.SIGKILL), Signal: unix.SignalName(syscall.SIGKILL)}
	switch {
	case o.Before == nil:
	case o.memoryKills():
		killed.Reason = proto.EndOutOfMemory
		killed.Message = fmt.Sprintf("the container reached its memory limit of %d bytes (limits.memory_bytes) and "+
			"was ended with all that ran in it; its next use starts it again with its files", o.Limits.MemoryBytes)
		return killed
	case o.refused():
		killed.Reason = proto.EndPIDLimit
		killed.Message = o.pidMessage() + "; it was ended with all that ran in it, and its next use starts it again " +
			"with its files"
		return killed
	}
	return end
}

// explainFailed finds the limit that made a command fail, if one did.
func (o *Observation) explainFailed(end proto.End) proto.End {
	said := o.Tail(proto.Stderr, searchedTail) + "\n" + o.Tail(proto.Stdout, searchedTail)
	silent := o.Tail(proto.Stderr, 1) == "" // a command that prints a reason failed for that reason
	switch {
	// The guest cannot tell in gVisor: the host kills a process of the sandbox there, and the guest sees a SIGKILL.
	case o.Class == proto.ClassGVisor && end.ReturnCode == 128+int(syscall.SIGKILL) && o.memoryKills():
		end.Reason, end.Message = proto.EndOutOfMemory, reachedMemory
	case o.refused() && (silent || saysPIDs.MatchString(said)),
		o.Class == proto.ClassGVisor && saysFork.MatchString(said):
		end.Reason, end.Message = proto.EndPIDLimit, o.pidMessage()
	case o.full(true) != "" && (silent || saysDisk.MatchString(said)):
		end.Reason, end.Message = proto.EndDiskQuota, o.full(true)
	case o.full(false) != "" && saysDisk.MatchString(said):
		end.Reason, end.Message = proto.EndDiskQuota, o.full(false)
	case saysDisk.MatchString(said):
		usage := ""
		if o.After.Workspace.Limit != 0 {
			usage = fmt.Sprintf(": /workspace uses %d of %d bytes, the rest of the disk %d of %d",
				o.After.Workspace.Used, o.After.Workspace.Limit, o.After.Layer.Used, o.After.Layer.Limit)
		}
		end.Message = joinSentences(end.Message, "its output reports a full disk, but no disk is full now"+usage)
	}
	return end
}

// memoryKills reports whether the host killed a process of the container for memory while the command ran.
func (o *Observation) memoryKills() bool {
	return o.Before != nil && o.Before.OOMKills >= 0 && o.After.OOMKills > o.Before.OOMKills
}

// refused reports whether the container was refused a process while the command ran.
func (o *Observation) refused() bool {
	return o.Exit.ForksRefused ||
		o.Before != nil && o.Before.PIDRefusals >= 0 && o.After.PIDRefusals > o.Before.PIDRefusals
}

func (o *Observation) pidMessage() string {
	return fmt.Sprintf("the container reached its limit of %d processes and threads (limits.pids); end some, or "+
		"create a container with more", o.Limits.PIDs)
}

// full describes what is full now, or is "". With onlyNew, what was full at the start of the command does not count.
func (o *Observation) full(onlyNew bool) string {
	const shared = "of limits.disk_bytes; remove something, or create a container with a higher limit"
	const memory = "which is in memory and bounded by limits.memory_bytes; remove something, or work in /workspace"
	newly := func(before bool) bool { return !onlyNew || !before }
	x, after, before := o.Exit, o.After, o.After
	if o.Before != nil { // unknown counts as full before
		before = *o.Before
	}
	switch {
	case after.Workspace.Full() && newly(before.Workspace.Full()):
		return fmt.Sprintf("/workspace is full: it uses %d of %d bytes %s", after.Workspace.Used, after.Workspace.Limit,
			shared)
	case after.Layer.Full() && newly(before.Layer.Full()):
		return fmt.Sprintf("the container's disk outside /workspace is full: it uses %d of %d bytes %s",
			after.Layer.Used, after.Layer.Limit, shared)
	case x.Full&wire.ShortTmp != 0 && newly(x.FullBefore&wire.ShortTmp != 0):
		return "/tmp is full, " + memory
	case x.Full&wire.ShortShm != 0 && newly(x.FullBefore&wire.ShortShm != 0):
		return "/dev/shm is full, " + memory
	case after.Owner.Full() && newly(before.Owner.Full()):
		return fmt.Sprintf("the containers and snapshots of this owner have %d of the %d bytes on disk that it may "+
			"have; remove files, containers or snapshots", after.Owner.Used, after.Owner.Limit)
	case after.Pool.Full() && newly(before.Pool.Full()):
		return "the disk pool that all containers share is full; ask the operator to make room, or remove " +
			"containers and workspaces"
	}
	return ""
}

// joinSentences appends a sentence to a message.
func joinSentences(message, more string) string { return strings.TrimPrefix(message+"; "+more, "; ") }

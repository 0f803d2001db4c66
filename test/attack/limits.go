package attack

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"berth/proto"
)

// Groups 7 and 13 to 15: a limit is a number, and what a container gets must be that number and not a multiple of it.
var _ = register(Case{
	Group: 13, Name: "processes/limits", Inside: true, Alone: true,
	Tries: "take half as much again as a container may have of processes, memory, disk in its workspace and its " +
		"layer, and open files, as both users",
	Wants: "it gets no more than its limits say, and its container goes on",
	Run:   measureLimits,
})

// smallLimits are far below what any host has, but for memory: that of many processes must not end them first.
var smallLimits = proto.Limits{PIDs: 64, MemoryBytes: 1 << 30, DiskBytes: 64 << 20, OpenFiles: 256}

// littleMemory is the limit of the container whose memory is taken, in bytes.
const littleMemory = 192 << 20

// A taking is a script that prints how much it got of a resource, and the most that it may get.
type taking struct {
	what, script string
	most         int64
}

// takings print nothing if the kernel ended them, which is a limit as well. The processes of the guest and of the
// script count too, so fewer than the limit are to be had. A disk has a margin of a quarter, since what is not yet
// written may be refused later.
var takings = []taking{
	{"processes", `python3 -c '
import os, signal
held = []
try:
    while len(held) < 96:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        held.append(pid)
except OSError: pass
print(len(held))
for pid in held: os.kill(pid, signal.SIGKILL)'`, smallLimits.PIDs},
	{"bytes of memory", `python3 -c '
import mmap
held = []
try:
    for i in range(288):
        m = mmap.mmap(-1, 1 << 20); m.write(b"x" * (1 << 20)); held.append(m)
except (OSError, MemoryError): pass
print(len(held) << 20)'`, littleMemory},
	{"bytes of the workspace", `dd if=/dev/urandom of=/workspace/big bs=1M count=96 2>/dev/null; sync /workspace/big
stat -c %s /workspace/big; rm -f /workspace/big`, smallLimits.DiskBytes + smallLimits.DiskBytes/4},
	{"bytes of the layer", `mkdir -p /var/tmp/l && dd if=/dev/urandom of=/var/tmp/l/big bs=1M count=96 2>/dev/null
sync /var/tmp/l/big; stat -c %s /var/tmp/l/big; rm -rf /var/tmp/l`, smallLimits.DiskBytes + smallLimits.DiskBytes/4},
	{"open files", `python3 -c '
import os, resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
n = 3
try:
    while n < 384: os.dup(0); n += 1
except OSError: pass
print(n)'`, smallLimits.OpenFiles},
}

// measureLimits has a container for each script, so that none meets what another one has left.
func measureLimits(ctx context.Context, t *Target) (string, error) {
	var said []string
	for _, user := range asBoth {
		for _, take := range takings {
			got, err := t.take(ctx, user, take)
			if err != nil {
				return "", fmt.Errorf("taking %s as %s: %w", take.what, user, err)
			}
			if got > take.most {
				return "", Breached("%s got %d %s, of which %d are allowed", user, got, take.what, take.most)
			}
			said = append(said, fmt.Sprintf("%d %s", got, take.what))
		}
	}
	return strings.Join(said, ", "), nil
}

// take runs a script in a new container.
func (t *Target) take(ctx context.Context, user string, take taking) (got int64, err error) {
	limits := smallLimits
	if take.most == littleMemory {
		limits.MemoryBytes = littleMemory
	}
	con, err := t.Container(ctx, proto.CreateContainer{Limits: limits})
	if err != nil {
		return 0, err
	}
	res, err := t.Do(ctx, con.ID, proto.Cmd{Command: take.script, User: user, TimeoutSeconds: 120})
	if err != nil {
		return 0, err
	}
	// A container may end for want of memory, which the command's end must say. Nothing else ends it.
	if end := res.Exec.End; take.most != littleMemory || end == nil || end.Reason != proto.EndOutOfMemory {
		if err := t.untouched(ctx, con); err != nil {
			return 0, fmt.Errorf("%w; the command is told as: %s", err, describe(res))
		}
	}
	if err := t.alive(ctx, con.ID); err != nil {
		return 0, err
	}
	if _, err := t.Delete(ctx, con.ID, false); err != nil {
		return 0, err
	}
	return take.read(res)
}

// read returns how much the script got. A script that was ended for the resource got less than it wanted.
func (take taking) read(res proto.ExecResult) (got int64, err error) {
	switch end := res.Exec.End; {
	case end == nil:
		return 0, errors.New(describe(res))
	case end.Reason == proto.EndOutOfMemory, end.Reason == proto.EndDiskQuota, end.Reason == proto.EndPIDLimit:
		if res.Result.Result == nil || strings.TrimSpace(res.Result.Result.Stdout) == "" {
			return 0, nil
		}
	case end.Reason != proto.EndExit:
		return 0, errors.New(describe(res))
	}
	if _, err := fmt.Sscan(res.Result.Result.Stdout, &got); err != nil {
		return 0, fmt.Errorf("%w in %q: %s", err, res.Result.Result.Stdout, describe(res))
	}
	return got, nil
}

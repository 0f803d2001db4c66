package attack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"berth/proto"
)

// Groups 7, 13, 14 and 15 from the neighbour's view: what another container notices of a container that uses up
// resources. Isolation also includes time: a container that its neighbours can delay was attacked, even if nothing
// was read or changed.

// A hog is a command that uses up as much of a resource as it can get. It says so when it has got all, so that a case
// can see that its bomb went off.
type hog struct {
	group               int
	name, tries, script string
	user                string
	full                string // the line that the script prints when it has its full effect
	disk, memory, pids  int64  // limits of its container
}

// spent is the line of most bombs: the kernel has refused them more.
const spent = "spent"

// Each uses one resource that containers share: processes, memory, disk space, inodes, the disk's queue, the daemon's
// readers, the CPU, and the kernel's file table.
var hogs = []hog{
	{13, "fork-bomb", "fork without end", `exec python3 -c '
import os
told = False
while True:
    try: os.fork()
    except OSError:
        if not told: told = True; os.write(1, b"spent\n")'`, "", spent, 0, 0, 512},
	{13, "thread-bomb", "start threads that work, until none can be had", `exec python3 -c '
import os, threading, time
full = threading.Event()
def spin():
    full.wait()
    while True: pass
while True:
    try: threading.Thread(target=spin, daemon=True).start()
    except RuntimeError: os.write(1, b"spent\n"); full.set(); time.sleep(0.01)'`, "", spent, 0, 0, 512},
	{14, "memory-bomb", "take all memory, over and over, with what the kernel kills coming back",
		`while :; do python3 -c 'x = bytearray(8 << 30)' 2>/dev/null || echo spent; done`, "", spent, 0, 512 << 20, 0},
	{14, "tmpfs-bomb", "fill /tmp and /dev/shm over and over",
		`while :; do head -c 8G /dev/zero > /tmp/a || echo spent; head -c 8G /dev/zero > /dev/shm/a || echo spent
rm -f /tmp/a /dev/shm/a; done 2>/dev/null`, "", spent, 0, 1 << 30, 0},
	{7, "disk-bomb", "fill the disk over and over",
		`while :; do head -c 8G /dev/zero > big || echo spent; rm -f big; done 2>/dev/null`, "", spent, 1 << 30, 0, 0},
	{7, "inode-bomb", "make empty files, links and directories until none can be made, over and over",
		`exec python3 -c '
import os, shutil
while True:
    n = 0
    try:
        while True:
            os.mkdir(f"d{n}"); open(f"d{n}/f", "w").close(); os.link(f"d{n}/f", f"d{n}/l"); os.symlink("x" * 500, f"d{n}/s"); n += 1
    except OSError: os.write(1, b"spent\n")
    for d in os.listdir("."):
        if d.startswith("d"): shutil.rmtree(d, True)'`, "", spent, 64 << 20, 0, 0},
	{7, "fsync-storm", "write a little and have it synced, from eight processes",
		`for i in 1 2 3 4 5 6 7 8; do python3 -c '
import os, sys
f = os.open("sync" + sys.argv[1], os.O_CREAT | os.O_WRONLY)
n = 0
while True:
    os.pwrite(f, b"x" * 4096, 0); os.fsync(f); n += 1
    if n == 20: os.write(1, b"synced\n")' $i & done; wait`, "", "synced", 0, 0, 0},
	{15, "output-flood", "write to standard output without end", `yes`, "", "y", 0, 0, 0},
	{13, "cpu-spin", "spin in sixteen processes", `for i in $(seq 16); do while :; do :; done & done
echo spinning; wait`, "", "spinning", 0, 0, 0},
	{13, "file-bomb", "open files in as many processes as there may be, until there are no more", `exec python3 -c '
import os, time
def hold():
    told = False
    while True:
        try: os.dup(0)
        except OSError:
            if not told: told = True; os.write(1, b"spent\n")
            time.sleep(1)
while True:
    try:
        if os.fork() == 0: hold()
    except OSError: time.sleep(1)'`, proto.UserRoot, spent, 0, 0, 0},
}

var _ = registerHogs()

// registerHogs registers one case for each hog.
func registerHogs() (done struct{}) {
	for _, b := range hogs {
		register(Case{
			Group: b.group, Name: "neighbours/" + b.name, Inside: true, Slow: true,
			Tries: b.tries + ", beside another container",
			Wants: fmt.Sprintf(
				"the other container's commands take at most %d times as long, and nothing ends but the bomb",
				mostSlowdown),
			Run: b.run,
		})
	}
	return done
}

// Parameters for timing a neighbour's commands. Quiet and loud rounds alternate, so that other load affects both. A
// verdict is about the medians of all rounds. A slowdown beyond the limit is measured again, over three times as many
// rounds, since other load of the host may have caused it.
const (
	mostSlowdown = 3
	fewRounds    = 2
	manyRounds   = 6
	perRound     = 25
)

// run times commands in one container with and without the hog in another.
func (b hog) run(ctx context.Context, t *Target) (string, error) {
	victim, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	bomber, err := t.Container(ctx, proto.CreateContainer{Limits: proto.Limits{DiskBytes: b.disk, MemoryBytes: b.memory,
		PIDs: b.pids}})
	if err != nil {
		return "", err
	}
	if _, err := t.times(ctx, victim.ID); err != nil { // the first commands are slower
		return "", err
	}
	var quiet, loud []time.Duration
	for round := 1; ; round++ {
		alone, err := t.times(ctx, victim.ID)
		if err != nil {
			return "", err
		}
		beside, err := b.beside(ctx, t, bomber.ID, victim.ID)
		if err != nil {
			return "", err
		}
		quiet, loud = append(quiet, alone...), append(loud, beside...)
		found, slow := slowdown(quiet, loud)
		switch {
		case round >= fewRounds && !slow:
			return found, t.untouched(ctx, victim)
		case round == manyRounds:
			return "", Breached("%s, where %d times is the limit", found, mostSlowdown)
		}
	}
}

// untouched returns a Breach unless the container is still running in the same generation. The kernel may have killed
// it, and then it was restarted: that changes the generation.
func (t *Target) untouched(ctx context.Context, victim proto.Container) error {
	after, err := t.Client.Container(ctx, victim.ID)
	if err != nil {
		return Breached("container %s cannot be asked for any more: %v", victim.ID, err)
	}
	if after.State != proto.StateRunning || after.Generation != victim.Generation {
		return Breached("container %s is %s in generation %d; it was started in %d", victim.ID, after.State,
			after.Generation, victim.Generation)
	}
	return nil
}

// beside times the victim's commands once the hog has its full effect, and then stops the hog.
func (b hog) beside(ctx context.Context, t *Target, bomber, victim string) ([]time.Duration, error) {
	// In the background, since the hog does not end.
	e, err := t.Launch(ctx, bomber, proto.Cmd{Command: b.script, User: b.user, Background: true})
	if err != nil {
		return nil, fmt.Errorf("starting the bomb: %w", err)
	}
	if err := b.awaitEffect(ctx, t, bomber, e.ID); err != nil {
		return nil, err
	}
	took, err := t.times(ctx, victim)
	if err != nil {
		return nil, Breached("a command next door failed: %v", err)
	}
	// An operator must be able to stop the hog, so this is part of the case.
	if _, err := t.Stop(ctx, bomber); err != nil {
		return nil, Breached("the container with the bomb cannot be stopped: %v", err)
	}
	// Remove what fills the disk, so that the next round begins like the first one.
	_, err = t.Bash(ctx, bomber, "rm -rf ./*")
	return took, err
}

// fuse limits how long a bomb may take until it has used up its resource.
const fuse = 2 * time.Minute

// awaitEffect waits until the hog says that it has used up its resource, or until its limit has ended it. A bomb that
// does neither shows nothing about neighbours.
func (b hog) awaitEffect(ctx context.Context, t *Target, bomber, exec string) error {
	limited, cancel := context.WithTimeout(ctx, fuse)
	defer cancel()
	line, err := t.firstLine(limited, bomber, exec)
	if err == nil && line == b.full {
		return nil
	}
	if limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("after %v the bomb had not used up what it wants", fuse)
	}
	now, stateErr := t.Exec(ctx, bomber, exec)
	if stateErr == nil && now.End != nil && (now.End.Reason == proto.EndOutOfMemory ||
		now.End.Reason == proto.EndPIDLimit || now.End.Reason == proto.EndDiskQuota) {
		return nil
	}
	return fmt.Errorf("the bomb did not go off: it said %q: %w", line, errors.Join(err, stateErr))
}

// times returns the durations of a command that does nothing. The command goes through the whole daemon, as a user's
// commands do.
func (t *Target) times(ctx context.Context, container string) ([]time.Duration, error) {
	var all []time.Duration
	for range perRound {
		began := time.Now()
		a, err := t.askJSON(ctx, "POST", "/v1/containers/"+container+"/exec", proto.Cmd{Argv: []string{"true"},
			TimeoutSeconds: 60})
		if err != nil {
			return nil, err
		}
		if a.status != 200 || !bytes.Contains(a.body, []byte(`"return_code":0`)) {
			return nil, fmt.Errorf("true: status %d: %.300s", a.status, a.body)
		}
		all = append(all, time.Since(began))
	}
	return all, nil
}

// slowdown compares the medians, and reports whether commands took more than mostSlowdown times as long.
func slowdown(quiet, loud []time.Duration) (found string, slow bool) {
	before, beside := median(quiet), median(loud)
	found = fmt.Sprintf("a command next door took %.1f ms instead of %.1f ms (%.1fx), nine in ten at most %.1f ms",
		milliseconds(beside), milliseconds(before), float64(beside)/float64(before),
		milliseconds(loud[len(loud)*9/10]))
	return found, beside > mostSlowdown*before
}

// milliseconds returns a fractional number, since a command takes only a few of them.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

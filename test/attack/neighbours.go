package attack

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"berth/proto"
)

// Groups 7, 13, 14 and 15 from the neighbour's view: what another container notices of a container that uses up
// resources. Isolation also includes time: a container that its neighbours can delay was attacked, even if nothing
// was read or changed.

// A hog is a command that uses up as much of a resource as it can get.
type hog struct {
	group                 int
	name, tries, script   string
	user                  string
	settle                time.Duration // until it has its full effect
	disk, memory, process int64         // limits of its container
}

// Each uses one resource that containers share: processes, memory, disk space, inodes, the disk's queue, the daemon's
// readers, the CPU, and the kernel's file table.
var hogs = []hog{
	{13, "fork-bomb", "fork without end", `f() { f | f & }; f; sleep 600`, "", time.Second, 0, 0, 512},
	{13, "thread-bomb", "start threads that work, until none can be had", `python3 -c '
import threading, time
def spin():
    while True: pass
def keep():
    while True:
        try: threading.Thread(target=spin, daemon=True).start()
        except RuntimeError: time.sleep(0.01)
keep()'`, "", time.Second, 0, 0, 512},
	{14, "memory-bomb", "take all memory, over and over, with what the kernel kills coming back",
		`while :; do python3 -c 'x = bytearray(8 << 30)'; done`, "", time.Second, 0, 512 << 20, 0},
	{14, "tmpfs-bomb", "fill /tmp and /dev/shm over and over",
		`while :; do head -c 8G /dev/zero > /tmp/a; head -c 8G /dev/zero > /dev/shm/a; rm -f /tmp/a /dev/shm/a; done 2>/dev/null`, "", time.Second, 0, 1 << 30, 0},
	{7, "disk-bomb", "fill the disk over and over",
		`while :; do head -c 8G /dev/zero > big; rm -f big; done 2>/dev/null`, "", time.Second, 1 << 30, 0, 0},
	{7, "inode-bomb", "make empty files, links and directories until none can be made, over and over", `python3 -c '
import os, shutil
while True:
    n = 0
    try:
        while True:
            os.mkdir(f"d{n}"); open(f"d{n}/f", "w").close(); os.link(f"d{n}/f", f"d{n}/l"); os.symlink("x" * 500, f"d{n}/s"); n += 1
    except OSError: pass
    for d in os.listdir("."):
        if d.startswith("d"): shutil.rmtree(d, True)'`, "", time.Second, 64 << 20, 0, 0},
	{7, "fsync-storm", "write a little and have it synced, from eight processes",
		`for i in 1 2 3 4 5 6 7 8; do python3 -c '
import os, sys
f = os.open("sync" + sys.argv[1], os.O_CREAT | os.O_WRONLY)
while True:
    os.pwrite(f, b"x" * 4096, 0); os.fsync(f)' $i & done; wait`, "", time.Second, 0, 0, 0},
	{15, "output-flood", "write to standard output without end", `yes`, "", 500 * time.Millisecond, 0, 0, 0},
	{13, "cpu-spin", "spin in sixteen processes", `for i in $(seq 16); do while :; do :; done & done; wait`, "",
		500 * time.Millisecond, 0, 0, 0},
	{13, "file-bomb", "open files in as many processes as there may be, until there are no more", `python3 -c '
import os, time
def hold():
    while True:
        try: os.dup(0)
        except OSError: time.sleep(1)
while True:
    try:
        if os.fork() == 0: hold()
    except OSError: time.sleep(1)'`, proto.UserRoot, 3 * time.Second, 0, 0, 0},
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
// difference below the slack comes from the scheduler. A difference that another attempt does not reproduce has
// another cause.
const (
	mostSlowdown = 3
	rounds       = 2
	perRound     = 25
	timesSlow    = 3
	slack        = 8 * time.Millisecond
)

// run times commands in one container with and without the hog in another. It makes three attempts, since other load
// could make a single one fail. Only a slowdown in every attempt is caused by the hog.
func (b hog) run(ctx context.Context, t *Target) (string, error) {
	victim, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	bomber, err := t.Container(ctx, proto.CreateContainer{Limits: proto.Limits{DiskBytes: b.disk, MemoryBytes: b.memory,
		PIDs: b.process}})
	if err != nil {
		return "", err
	}
	if _, err := t.times(ctx, victim.ID); err != nil { // the first commands are slower
		return "", err
	}
	var found string
	for range timesSlow {
		quiet, loud, err := b.compare(ctx, t, bomber.ID, victim.ID)
		if err != nil {
			return "", err
		}
		var slow bool
		if found, slow = verdict(quiet, loud); !slow {
			return found, t.untouched(ctx, victim)
		}
	}
	return "", Breached("%s, and so each of %d times", found, timesSlow)
}

// compare times the victim's commands alternately with and without the hog. It returns all times instead of means, so
// that the medians of all rounds can be compared.
func (b hog) compare(ctx context.Context, t *Target, bomber, victim string) (quiet, loud []time.Duration, err error) {
	for range rounds {
		alone, err := t.times(ctx, victim)
		if err != nil {
			return nil, nil, err
		}
		beside, err := b.beside(ctx, t, bomber, victim)
		if err != nil {
			return nil, nil, err
		}
		quiet, loud = append(quiet, alone...), append(loud, beside...)
	}
	return quiet, loud, nil
}

// untouched returns an error unless the container is still running in the same generation. The kernel may have killed
// the victim, which was then restarted: that changes the generation.
func (t *Target) untouched(ctx context.Context, victim proto.Container) error {
	after, err := t.Client.Container(ctx, victim.ID)
	if err != nil {
		return Breached("the other container cannot be asked for any more: %v", err)
	}
	if after.State != proto.StateRunning || after.Generation != victim.Generation {
		return Breached("the other container is %s in generation %d; it was started in %d", after.State,
			after.Generation, victim.Generation)
	}
	return nil
}

// beside times the victim's commands while the hog runs, and then stops the hog.
func (b hog) beside(ctx context.Context, t *Target, bomber, victim string) ([]time.Duration, error) {
	// In the background, since the hog does not end.
	if _, err := t.Launch(ctx, bomber, proto.Cmd{Command: b.script, User: b.user, Background: true}); err != nil {
		return nil, fmt.Errorf("starting the bomb: %w", err)
	}
	select {
	case <-time.After(b.settle):
	case <-ctx.Done():
		return nil, ctx.Err()
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

// verdict compares the medians.
func verdict(quiet, loud []time.Duration) (found string, slow bool) {
	slices.Sort(quiet)
	slices.Sort(loud)
	before, beside := quiet[len(quiet)/2], loud[len(loud)/2]
	found = fmt.Sprintf("a command next door took %.1f ms instead of %.1f ms (%.1fx), nine in ten at most %.1f ms",
		milliseconds(beside), milliseconds(before), float64(beside)/float64(before), milliseconds(loud[len(loud)*9/10]))
	// Both limits must be exceeded: three times a very short time does no harm.
	return found, beside > mostSlowdown*before && beside-before > slack
}

// milliseconds returns a fractional number, since a command takes only a few of them.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

package attack

import (
	"context"
	"fmt"
	"strings"
	"time"

	"berth/proto"
)

// Actions of root against its own container. The daemon must still be able to stop it, and must report the truth.
// Stopping a container is an operator's last resort. A container must not be able to prevent it.
var _ = register(
	Case{
		// Walking such a tree takes kernel memory and time. Programs inside the call cannot be killed until it
		// returns.
		Group: 7, Name: "many/deep-end", Inside: true,
		Tries: "make a tree of 10,000 directories, one in the other, walk it with programs that keep all of it " +
			"open, and stop the container",
		Wants: "it is stopped and deleted in a bounded time",
		Run:   deepEnd,
	},
	Case{
		// Root may end its own container. But the daemon must not believe that it still runs, or that the command
		// succeeded.
		Group: 21, Name: "guest/kill-as-root", Inside: true,
		Tries: "as root, send PID 1 the signals that cannot be caught, and those above 31, each in a container with " +
			"a file and a running command",
		Wants: "it lives; or the command and the container are told as ended, and its next use starts it again with its files",
		Run:   killAsRoot,
	},
)

// endTime limits how long stopping any container may take. It is the runtime's own timeout for one that does not
// answer, plus a margin.
const endTime = 30 * time.Second

// deepEnd runs four commands that walk the tree when the stop comes.
func deepEnd(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	var depth int
	if err := t.Probe(ctx, b.id, "", "deep", &depth); err != nil {
		return "", err
	}
	for range 4 {
		if _, err := t.Launch(ctx, b.id, proto.Cmd{Command: "find /workspace/deep >/dev/null; ls -R /workspace/deep " +
			">/dev/null; du /workspace/deep; sleep 600", TimeoutSeconds: 600}); err != nil {
			return "", err
		}
	}
	limited, cancel := context.WithTimeout(ctx, 2*endTime)
	defer cancel()
	began := time.Now()
	if _, err := t.Stop(limited, b.id); err != nil {
		return "", Breached("it cannot be stopped: %v after %.1f s", err, time.Since(began).Seconds())
	}
	stopped := time.Since(began)
	if _, err := t.Delete(limited, b.id, false); err != nil {
		return "", Breached("it cannot be deleted: %v", err)
	}
	if took := time.Since(began); took > endTime {
		return "", Breached("its end took %.1f s", took.Seconds())
	}
	return fmt.Sprintf("stopped in %.1f s and deleted in %.1f s", stopped.Seconds(),
		(time.Since(began) - stopped).Seconds()), nil
}

// killAsRoot tries each signal in a container of its own.
func killAsRoot(ctx context.Context, t *Target) (string, error) {
	ended, lived := []string{}, 0
	// 9 kills and 19 stops; C libraries use 32 and 34 internally, and 64 is the last one. gVisor does not protect PID
	// 1 from them.
	signals := []int{9, 32, 34, 64, 19} // for a stopped guest, the daemon waits until its timeout
	if t.Quick {
		signals = signals[:3]
	}
	for _, signal := range signals {
		died, err := t.killGuest(ctx, signal)
		if err != nil {
			return "", fmt.Errorf("signal %d: %w", signal, err)
		}
		if lived++; died {
			lived--
			ended = append(ended, fmt.Sprint(signal))
		}
	}
	if len(ended) == 0 {
		return fmt.Sprintf("it lived through all %d", lived), nil
	}
	return fmt.Sprintf("it lived through %d; %s ended it, which was told, and it came back with its files", lived,
		strings.Join(ended, ", ")), nil
}

// killGuest sends one signal and reports whether the container ended. It also checks that the client is told, and
// that the container comes back. The command prints something only if its container outlived the signal.
func (t *Target) killGuest(ctx context.Context, signal int) (died bool, err error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return false, err
	}
	if _, err := t.Output(ctx, con.ID, "", "echo kept >/workspace/kept; sync"); err != nil {
		return false, err
	}
	e, err := t.Launch(ctx, con.ID, proto.Cmd{Command: fmt.Sprintf("kill -%d 1; sleep 2; echo lives", signal),
		User: proto.UserRoot, TimeoutSeconds: 10})
	if err != nil {
		return false, err
	}
	limited, cancel := context.WithTimeout(ctx, 2*endTime)
	defer cancel()
	res, err := t.Wait(limited, con.ID, e.ID)
	switch {
	case err != nil:
		return false, Breached("what became of the command is not told: %v", err)
	case res.Exec.End == nil:
		return false, Breached("the command has no end")
	case res.Exec.End.Reason == proto.EndExit && res.Exec.End.ReturnCode == 0:
		return false, t.alive(ctx, con.ID)
	// "exit" with another code would be wrong: the command was killed with its container.
	case res.Exec.End.Reason == proto.EndExit:
		return false, Breached("the command is said to have ended by itself: %s", describe(res))
	}
	if err := t.comesBack(ctx, con.ID); err != nil {
		return true, err
	}
	// The generation shows clients that their processes are gone.
	if now, err := t.Client.Container(ctx, con.ID); err != nil || now.Generation == con.Generation {
		return true, Breached("it is said to be the same start (%d): %v", now.Generation, err)
	}
	_, err = t.Delete(ctx, con.ID, false)
	return true, err
}

// comesBack returns a Breach unless an ended container still has its file at its next use. A command during the end
// is reported as lost, since it may have begun; then comesBack tries the next one.
func (t *Target) comesBack(ctx context.Context, container string) error {
	var last string
	for range 3 {
		res, err := t.Do(ctx, container, proto.Cmd{Command: "cat /workspace/kept", TimeoutSeconds: 60})
		if err != nil {
			return Breached("it cannot be used again: %v", err)
		}
		if last = describe(res); res.Exec.End == nil || res.Exec.End.Reason == proto.EndLost {
			continue
		}
		if r := res.Result.Result; r == nil || r.Stdout != "kept\n" {
			return Breached("the next use does not have its file: %s", last)
		}
		return nil
	}
	return Breached("it does not come back: %s", last)
}

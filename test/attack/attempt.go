package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// An attempt is an action that must be impossible inside a container. It returns nil if the action succeeded, a moot
// error if it could not be tried, and any other error as the refusal. Attempts are Go code and not lines of shell,
// because shells and tools hide errors: "mount" gives up before it asks the kernel.
type attempt struct {
	what string
	do   func() error
}

// errMoot is the error of an attempt that shows nothing, because something that it needs is missing. It counts
// neither for nor against the container. Otherwise a missing device would look like a deliberate refusal.
var errMoot = errors.New("moot")

// moot returns an error that says why an attempt shows nothing.
func moot(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMoot, fmt.Sprintf(format, args...))
}

// errThrough is the error of an attempt that succeeded and reports details.
var errThrough = errors.New("through")

// through returns an error that describes how an attempt succeeded.
func through(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errThrough, fmt.Sprintf(format, args...))
}

// An outcome is the result of one attempt.
type outcome struct {
	What    string `json:"what"`
	Verdict string `json:"verdict"` // "refused", "through" or "moot"
	Said    string `json:"said"`
}

// attemptSets maps the name of a case to its attempts. The function attempts fills it while variables are
// initialized. So the program that runs as a probe has the same sets as the one that runs the suite.
var attemptSets = map[string]func() []attempt{}

// Two probes run a set. The first one starts the second, which runs the attempts one after the other. If an attempt
// kills the second probe, the first restarts it after that attempt. seccomp may kill the process for a call, so a
// single process would end at the first such refusal.
var (
	_ = addProbe("attempts", func(args []string) (any, error) { return superviseAttempts(args[0]) })
	_ = addProbe("attempts-from", func(args []string) (any, error) { return nil, makeAttempts(args) })
)

// attemptTime limits how long a set may report nothing; an attempt that hangs is killed. It is wall time, generous
// for a machine that runs several containers.
const attemptTime = 20 * time.Second

// A line is a message from the second probe to the first: the thread that begins an attempt, or the outcome of one.
type line struct {
	Thread  int      `json:"thread,omitempty"`
	Outcome *outcome `json:"outcome,omitempty"`
}

// superviseAttempts runs all attempts of a set. It returns one outcome per attempt in the same order: the two
// processes identify attempts by index.
func superviseAttempts(set string) ([]outcome, error) {
	if attemptSets[set] == nil {
		return nil, fmt.Errorf("there are no attempts for %q", set)
	}
	all := attemptSets[set]()
	var found []outcome
	for len(found) < len(all) {
		// The attempt that ended the process needs an outcome, too. So each turn adds at least one outcome.
		more, end := attemptsFrom(set, len(found))
		if found = append(found, more...); len(found) < len(all) {
			end.What = all[len(found)].what
			found = append(found, end)
		}
	}
	return found, nil
}

// attemptsFrom runs the attempts of a set from the n-th on, in a separate process. It returns the finished ones. end
// is the outcome of the next one if that ended the process.
func attemptsFrom(set string, n int) (made []outcome, end outcome) {
	end.Verdict = "moot"
	// /proc/self/exe works even after the name of the program was removed.
	cmd := exec.Command("/proc/self/exe", ProbeCommand, "attempts-from", set, strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		end.Said = err.Error()
		return nil, end
	}
	lines := make(chan line)
	go readLines(out, lines)
	end = watchAttempts(cmd, lines, &made)
	// Drain the channel: a blocked writer would prevent Wait from returning.
	for range lines { // until the process has closed its end
	}
	if err := cmd.Wait(); end.Said == "" && err != nil {
		end.Verdict, end.Said = "refused", err.Error() // the kernel refuses some calls with a signal
	}
	return made, end
}

// readLines reads the messages of the second probe until it has ended. It skips other lines, which attempts have
// printed.
func readLines(r io.Reader, lines chan<- line) {
	defer close(lines)
	for scan := bufio.NewScanner(r); scan.Scan(); {
		var l line
		if json.Unmarshal(scan.Bytes(), &l) == nil {
			lines <- l
		}
	}
}

// watchAttempts collects the outcomes. A seccomp filter may kill only the thread that made an attempt, and then the
// other threads wait forever. So watchAttempts also checks that the thread still exists.
func watchAttempts(cmd *exec.Cmd, lines <-chan line, made *[]outcome) (end outcome) {
	// A killed thread is detected within 50 ms. There is no event for the end of a thread in another process.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	thread, gone, began := 0, 0, time.Now()
	for {
		select {
		case l, open := <-lines:
			if !open {
				return end
			}
			thread, gone, began = l.Thread, 0, time.Now()
			if l.Outcome != nil {
				*made = append(*made, *l.Outcome)
			}
		case <-tick.C:
			switch {
			case end.Said != "":
			case thread != 0 && threadGone(cmd.Process.Pid, thread):
				if gone++; gone < 3 {
					continue // its last line may not have arrived yet
				}
				end = outcome{Verdict: "refused", Said: "the thread was killed"}
				_ = cmd.Process.Kill()
			case time.Since(began) > attemptTime:
				end = outcome{Verdict: "moot", Said: "it did not come back"}
				_ = cmd.Process.Kill()
			}
		}
	}
}

// threadGone reports whether a thread has ended. The main thread of a process stays as a zombie until all others have
// ended.
func threadGone(process, thread int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", process, thread))
	return err != nil || bytes.Contains(status, []byte("State:\tZ"))
}

// makeAttempts runs the attempts of a set from the n-th on, and prints each outcome at once.
func makeAttempts(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	tell := json.NewEncoder(os.Stdout)
	// One after the other, since a successful attempt may affect the next one.
	for _, a := range attemptSets[args[0]]()[n:] {
		fmt.Fprintln(os.Stderr, a.what) // if it ends the container, a report shows the last one
		done := make(chan error)
		go func() {
			// If a goroutine ends while it is locked to its thread, Go ends the thread. That discards any identity,
			// working directory or filter that the attempt changed.
			runtime.LockOSThread() // never unlocked: the effects of the attempt end with its thread
			_ = tell.Encode(line{Thread: unix.Gettid()})
			done <- tell.Encode(line{Outcome: a.outcome(a.do())}) // reported before the thread ends
		}()
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}

// outcome converts an attempt's error to an outcome. The default is a refusal: any error of the kernel is one.
func (a attempt) outcome(err error) *outcome {
	switch {
	case err == nil:
		return &outcome{a.what, "through", ""}
	case errors.Is(err, errThrough):
		return &outcome{a.what, "through", err.Error()}
	case errors.Is(err, errMoot):
		return &outcome{a.what, "moot", err.Error()}
	}
	return &outcome{a.what, "refused", err.Error()}
}

// attempts makes a case of a set, which runs in a container as each of these users. The two users meet different
// checks: root has capabilities in its user namespace, and the ordinary user has none.
func attempts(c Case, users []string, set func() []attempt) Case {
	return attemptsIn(c, users, set, func(context.Context, *Target) (proto.CreateContainer, error) {
		return proto.CreateContainer{}, nil
	})
}

// endedBy returns a Breach if a probe failed because its container has ended or was started anew, and otherwise the
// error of the probe. An attempt that ends the container has succeeded, although it could report nothing.
func (t *Target) endedBy(ctx context.Context, con proto.Container, what string, err error) error {
	if untouched := t.untouched(ctx, con); untouched != nil {
		return Breached("%s ended the container: %v (%v)", what, untouched, err)
	}
	return err
}

// attemptsIn is attempts in a special container. want requests it, or returns why it is not available here.
func attemptsIn(c Case, users []string, set func() []attempt, want func(context.Context, *Target) (
	proto.CreateContainer, error)) Case {
	c.Inside = true
	attemptSets[c.Name] = set
	c.Run = func(ctx context.Context, t *Target) (string, error) {
		req, err := want(ctx, t)
		if err != nil {
			return "", err
		}
		con, err := t.Container(ctx, req)
		if err != nil {
			return "", err
		}
		var said []string
		for _, user := range users {
			var found []outcome
			if err := t.Probe(ctx, con.ID, user, "attempts", &found, c.Name); err != nil {
				return "", t.endedBy(ctx, con, "an attempt as "+user, err)
			}
			sum, err := sumUp(found)
			if err != nil {
				return "", fmt.Errorf("as %s: %w", user, err)
			}
			said = append(said, "as "+user+", "+sum)
		}
		return strings.Join(said, "; "), nil
	}
	return c
}

// asBoth runs an attempt as both users. Root comes first, so that the ordinary user meets what root has broken.
var asBoth = []string{proto.UserRoot, proto.UserDefault}

// sumUp converts outcomes to a description of what happened. One success is a breach. If all attempts were moot,
// nothing was tried, and the case must not count as held.
func sumUp(found []outcome) (string, error) {
	var got []string
	refused, by := 0, map[string]int{}
	for _, o := range found {
		switch o.Verdict {
		case "through":
			got = append(got, strings.TrimSpace(o.What+" ("+o.Said+")"))
		case "refused":
			refused++
			// Grouped by reason, so that a reader sees what refused: a filter, a missing file, or a permission.
			by[lastWords(o.Said)]++
		}
	}
	switch {
	case len(got) > 0:
		return "", Breached("%d of %d got through: %s", len(got), len(found), strings.Join(got, ", "))
	case refused == 0:
		return "", fmt.Errorf("none of %d attempts could be made: %v", len(found), found)
	}
	text := fmt.Sprintf("%d of %d refused: %s", refused, len(found), counts(by))
	if n := len(found) - refused; n > 0 {
		text += fmt.Sprintf("; %d have nothing to try here", n)
	}
	return text, nil
}

// lastWords returns the innermost part of an error, such as "operation not permitted". The text before it differs
// between attempts and would prevent grouping.
func lastWords(s string) string {
	if i := strings.LastIndex(s, ": "); i >= 0 {
		return s[i+2:]
	}
	return s
}

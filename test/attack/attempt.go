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

// An attempt is one thing that must not be possible inside a container. It returns nil if it was possible, a moot
// error if it could not be tried, and any other error as the refusal. That an attempt is code, made inside, and not a
// line of shell, is because shells and their tools hide errors: "mount" gives up before it asks the kernel.
type attempt struct {
	what string
	do   func() error
}

// errMoot is of an attempt that says nothing here, since what it needs is missing.
// A moot attempt counts neither for nor against. Without it, a missing device would look like a refusal by
// design.
var errMoot = errors.New("moot")

// moot says why an attempt says nothing.
func moot(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMoot, fmt.Sprintf(format, args...))
}

// errThrough is of an attempt that succeeded and has something to say about it.
var errThrough = errors.New("through")

// through says what an attempt came to.
func through(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errThrough, fmt.Sprintf(format, args...))
}

// An outcome is what came of one attempt.
type outcome struct {
	What    string `json:"what"`
	Verdict string `json:"verdict"` // "refused", "through", "moot"
	Said    string `json:"said"`
}

// attemptSets are all attempts, by the name of the case that makes them.
// It is filled by attempts while variables are initialized, so that the program that runs as a probe knows
// the same sets as the one that runs the suite.
var attemptSets = map[string]func() []attempt{}

// Two probes run a set: the first starts the second, which makes the attempts one after the other, and starts it
// again behind the attempt that killed it.
// Seccomp may answer a call by killing, so that a set in a single process would end at its first success.
var (
	_ = addProbe("attempts", func(args []string) (any, error) { return superviseAttempts(args[0]) })
	_ = addProbe("attempts-from", func(args []string) (any, error) { return nil, makeAttempts(args) })
)

// attemptTime bounds how long a set may be silent: an attempt that hangs is killed.
// It is wall time, generous for a machine that runs several containers.
const attemptTime = 20 * time.Second

// A line is what the second probe tells the first: the thread that begins an attempt, or the outcome of one.
type line struct {
	Thread  int      `json:"thread,omitempty"`
	Outcome *outcome `json:"outcome,omitempty"`
}

// superviseAttempts makes all attempts of a set.
// It returns as many outcomes as there are attempts, in their order: the index is what the two processes
// agree on.
func superviseAttempts(set string) ([]outcome, error) {
	if attemptSets[set] == nil {
		return nil, fmt.Errorf("there are no attempts for %q", set)
	}
	all := attemptSets[set]()
	var found []outcome
	for len(found) < len(all) {
		// No progress is possible without an outcome for the attempt that ended the process, so each turn
		// adds at least one.
		more, end := attemptsFrom(set, len(found))
		if found = append(found, more...); len(found) < len(all) {
			end.What = all[len(found)].what
			found = append(found, end)
		}
	}
	return found, nil
}

// attemptsFrom makes the attempts of a set from the n-th on, in a process of their own. It returns those that
// came to an outcome, and what is to be said of the next one if that ended the process.
func attemptsFrom(set string, n int) (made []outcome, end outcome) {
	end.Verdict = "moot"
	// /proc/self/exe starts the same file even after its name was removed.
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
	// The channel is drained to its end: a writer that blocks would keep Wait from returning.
	for range lines { // until the process has closed its end
	}
	if err := cmd.Wait(); end.Said == "" && err != nil {
		end.Verdict, end.Said = "refused", err.Error() // a signal of the kernel's is how some refusals come
	}
	return made, end
}

// readLines reads what the second probe tells until it has ended.
// A line that is none was printed by an attempt itself, and is passed over.
func readLines(r io.Reader, lines chan<- line) {
	defer close(lines)
	for scan := bufio.NewScanner(r); scan.Scan(); {
		var l line
		if json.Unmarshal(scan.Bytes(), &l) == nil {
			lines <- l
		}
	}
}

// watchAttempts takes the outcomes as they come. A filter may end the thread that made an attempt and leave the
// others, which then wait for ever; so the thread is looked after from here.
func watchAttempts(cmd *exec.Cmd, lines <-chan line, made *[]outcome) (end outcome) {
	// 50 ms is how late a killed thread is noticed; there is no event for the end of a thread in another
	// process.
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
					continue // its last line may be under way
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

// threadGone reports whether a thread has ended. The first thread of a process stays on as a zombie.
// The thread that leads the process cannot vanish before the others, hence the zombie.
func threadGone(process, thread int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", process, thread))
	return err != nil || bytes.Contains(status, []byte("State:\tZ"))
}

// makeAttempts makes the attempts of a set from the n-th on, and prints each outcome at once.
func makeAttempts(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	tell := json.NewEncoder(os.Stdout)
	// One after the other, as an attempt that got through may change what the next one meets.
	for _, a := range attemptSets[args[0]]()[n:] {
		done := make(chan error)
		go func() {
			// Go ends a thread whose goroutine ends while it is locked, and with it any identity, working
			// directory or filter that the attempt changed.
			runtime.LockOSThread() // and never unlocked: whatever the attempt changes ends with its thread
			_ = tell.Encode(line{Thread: unix.Gettid()})
			done <- tell.Encode(line{Outcome: a.outcome(a.do())}) // told before the thread ends
		}()
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}

// outcome is what an attempt's error means.
// The default is a refusal, for whatever the kernel says to an attempt is a refusal but success.
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

// attempts makes a case of a set: it is made in a container as each of these users.
// Both users are tried because they meet different guards: root has capabilities, in its user namespace,
// and the ordinary user has none to lose.
func attempts(c Case, users []string, set func() []attempt) Case {
	return attemptsIn(c, users, set, func(context.Context, *Target) (proto.CreateContainer, error) {
		return proto.CreateContainer{}, nil
	})
}

// attemptsIn is attempts in a container of a certain kind, which want asks for, or says why it cannot be had here.
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
				return "", err
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

// asBoth has an attempt made by both users.
// Root comes first: what it breaks, the ordinary user then meets.
var asBoth = []string{proto.UserRoot, proto.UserDefault}

// sumUp turns outcomes into what happened. One that got through is a breach; if all were moot, nothing was tried.
// A set that got through nowhere but was moot everywhere has shown nothing, and must not be reported as
// held.
func sumUp(found []outcome) (string, error) {
	var got []string
	refused, by := 0, map[string]int{}
	for _, o := range found {
		switch o.Verdict {
		case "through":
			got = append(got, strings.TrimSpace(o.What+" ("+o.Said+")"))
		case "refused":
			refused++
			// Grouped by the reason, so that a reader sees what refused: a filter, a missing file, or a
			// permission.
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

// lastWords is the innermost part of an error: "operation not permitted".
// What stands before it differs from one attempt to the next, and would keep like from being counted with
// like.
func lastWords(s string) string {
	if i := strings.LastIndex(s, ": "); i >= 0 {
		return s[i+2:]
	}
	return s
}

package attack

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"berth/proto"
)

// Groups 16, 17 and 20: output, and many concurrent commands. Output is the largest data that a command can make the
// daemon hold, and the first that users look at.
var _ = register(
	// "yes" writes gigabytes per second. If the daemon stopped reading, the command would block. If it kept
	// everything, it would run out of memory.
	Case{
		Group: 16, Name: "output/floods", Inside: true, Alone: true,
		Tries: "write without end to stdout, to stderr, to both, and without a line end",
		Wants: "all of it is counted, a bounded part is kept and marked as cut, and the daemon's memory stays where it was",
		Run:   floods,
	},
	// JSON needs UTF-8, and one character may arrive in two reads.
	Case{
		Group: 16, Name: "output/odd", Inside: true,
		Tries: "write single bytes, invalid UTF-8 cut between writes, terminal escapes, after the exit, and to a " +
			"closed stdout",
		Wants: "the result is valid UTF-8, whole, and nothing of it comes after the end",
		Run:   oddOutput,
	},
	// Between a process's exit and the last read from its pipe, bytes are lost in rare cases. So the case runs it a
	// thousand times.
	Case{
		Group: 17, Name: "output/fast", Inside: true,
		Tries: "end at once after writing, a thousand times, and leave a grandchild that holds the pipe open",
		Wants: "no byte is lost, and the end is told without waiting for the grandchild",
		Run:   fastOutput,
	},
	// Each command takes descriptors, a goroutine and processes on both sides. Refusing some is right. Mixing their
	// outputs, or hanging, is not.
	Case{
		Group: 20, Name: "output/at-once", Inside: true, Alone: true,
		Tries: "start a thousand commands at once in one container",
		Wants: "each runs with its own output or is refused with too_many_requests, and the container still works",
		Run:   atOnce,
	},
)

// floods compares the daemon's memory before and after each flood.
func floods(ctx context.Context, t *Target) (string, error) {
	size := int64(2 << 30)
	if t.Quick {
		size = 32 << 20
	}
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	before, err := t.residentBytes(ctx)
	if err != nil {
		return "", err
	}
	flood := fmt.Sprintf("head -c %d", size)
	// Each stresses another part, such as two streams at once, or endless lines for line-based readers.
	for what, script := range map[string]string{
		"stdout":             "yes | " + flood,
		"stderr":             "yes | " + flood + " >&2",
		"both":               "(yes | " + flood + ") & (yes | " + flood + " >&2); wait",
		"one line":           flood + " /dev/zero",
		"bytes for each one": "for i in {1..3000}; do printf a; printf b >&2; done; yes | " + flood,
	} {
		res, err := t.ended(ctx, con.ID, what, script, 300, proto.EndExit)
		if err != nil {
			return "", err
		}
		r := res.Result.Result
		if total := res.Exec.StdoutBytes + res.Exec.StderrBytes; total < size || !res.Exec.Truncated {
			return "", Breached("%s: %d of %d bytes were counted, truncated: %v", what, total, size, res.Exec.Truncated)
		}
		// 8 MiB are far above what is kept of a command by default.
		if kept := len(r.Stdout) + len(r.Stderr); kept > 8<<20 {
			return "", Breached("%s: %d bytes were kept", what, kept)
		}
		after, err := t.residentBytes(ctx)
		if err != nil {
			return "", err
		}
		if after > before+maxGrowth {
			return "", Breached("%s: the daemon grew from %d to %d MiB", what, before>>20, after>>20)
		}
	}
	return fmt.Sprintf("five floods of %d MiB were cut, the daemon did not grow by more than %d MiB", size>>20,
		maxGrowth>>20), t.alive(ctx, con.ID)
}

// oddOutput compares the output of each script with the expected bytes.
func oddOutput(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	for what, k := range map[string][2]string{
		"single bytes":         {"for i in {1..2000}; do printf x; done", strings.Repeat("x", 2000)},
		"a character in parts": {`printf '\xe2'; sleep 0.05; printf '\x82'; sleep 0.05; printf '\xac'`, "€"},
		// Invalid UTF-8 becomes U+FFFD, the standard replacement of decoders.
		"half a character":    {`printf 'a\xe2\x82'`, "a\uFFFD"},
		"bytes that are none": {`printf '\xff\xfe\x00\x80ok'`, "\uFFFD\x00\uFFFDok"},
		// Escapes are kept: a client that shows them on a terminal must filter them. 0x9b alone is not UTF-8.
		"escapes":       {`printf '\e[2J\e]0;title\a\e[31mred\x9b'`, "\x1b[2J\x1b]0;title\a\x1b[31mred\uFFFD"},
		"stdout closed": {"exec >&-; echo lost; exit 0", ""},
		"nothing":       {"true", ""},
	} {
		res, err := t.ended(ctx, con.ID, what, k[0], 30, proto.EndExit)
		if err != nil {
			return "", err
		}
		if got := res.Result.Result.Stdout; got != k[1] || !utf8.ValidString(got) {
			return "", Breached("%s: %.60q rather than %.60q", what, got, k[1])
		}
	}
	// Output after the end is dropped: a result must not change.
	res, err := t.ended(ctx, con.ID, "output after the end", "echo early; (sleep 0.3; echo late; sleep 0.1; touch "+
		"/tmp/written) & disown; exit 0", 30, proto.EndExit)
	if err != nil {
		return "", err
	}
	if _, err := t.Output(ctx, con.ID, "", "until [ -e /tmp/written ]; do sleep 0.05; done"); err != nil {
		return "", err
	}
	again, err := t.Wait(ctx, con.ID, res.Exec.ID)
	if err != nil || again.Result.Result.Stdout != res.Result.Result.Stdout ||
		again.Exec.StdoutBytes != res.Exec.StdoutBytes {
		return "", Breached("the result of a command changed after its end: %+v %v", again.Exec, err)
	}
	return "seven kinds of output came as they should, and none after the end", nil
}

// fastOutput uses eight clients, so that starts and ends of commands overlap.
func fastOutput(ctx context.Context, t *Target) (string, error) {
	const workers = 8
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	n := 1000
	if t.Quick {
		n = 200
	}
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += workers {
				var got string
				if got, errs[w] = t.Output(ctx, con.ID, "", fmt.Sprintf("echo %d", i)); errs[w] == nil &&
					got != fmt.Sprint(i) {
					errs[w] = Breached("command %d gave %q", i, got)
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return "", err
		}
	}
	began := time.Now()
	// setsid -f moves the grandchild out of the command's process group, with stdout still open.
	res, err := t.ended(ctx, con.ID, "a grandchild with the pipe", "echo done; setsid -f sleep 300", 120, proto.EndExit)
	if err != nil {
		return "", err
	}
	if took := time.Since(began); took > patience || res.Result.Result.Stdout != "done\n" ||
		res.Exec.End.Leftover != 1 {
		return "", Breached("a command that left a grandchild ended after %v with %q, %d left over", took,
			res.Result.Result.Stdout, res.Exec.End.Leftover)
	}
	return fmt.Sprintf("%d fast commands lost nothing; a grandchild held up none", n), nil
}

// atOnce starts all commands at once and compares each output with the number of its command.
func atOnce(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	n := 1000
	// starting a process is slower in gVisor
	if t.Quick && t.Class == proto.ClassGVisor {
		n = 300
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			res, err := t.Do(ctx, con.ID, proto.Cmd{Command: fmt.Sprintf("sleep 0.2; echo %d", i), TimeoutSeconds: 120})
			if err == nil && (res.Result.Result == nil || strings.TrimSpace(res.Result.Result.Stdout) != fmt.Sprint(
				i)) {
				err = Breached("command %d ended with %s", i, describe(res))
			}
			errs[i] = err
		})
	}
	wg.Wait()
	ran, refused := 0, 0
	for i, err := range errs {
		switch {
		case err == nil:
			ran++
		case proto.CodeOf(err) == proto.TooMany:
			refused++
		default:
			return "", fmt.Errorf("command %d: %w", i, err)
		}
	}
	if ran == 0 {
		return "", Breached("all of %d commands were refused", n)
	}
	return fmt.Sprintf("%d ran with their own output, %d were refused", ran, refused), t.alive(ctx, con.ID)
}

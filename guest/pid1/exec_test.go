package pid1

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/guest/client"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

func TestExecResults(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		for _, c := range []struct {
			name           string
			cmd            wire.Command
			code           int
			signal         syscall.Signal
			stdout, stderr string
		}{
			{"both streams", wire.Command{Text: "echo out; echo err >&2; exit 3"}, 3, 0, "out\n", "err\n"},
			{"code 255", wire.Command{Text: "exit 255"}, 255, 0, "", ""},
			{"signal", wire.Command{Text: "kill -TERM $$"}, 143, syscall.SIGTERM, "", ""},
			{"not found in bash", wire.Command{Text: "no-such-program"}, 127, 0, "", "bash: line 1: no-such-program: " +
				"command not found\n"},
			{"argv as it is", wire.Command{Argv: []string{"printf", "%s|", "a b", "$HOME", ""}}, 0, 0, "a b|$HOME||",
				""},
			{"no stdin", wire.Command{Argv: []string{"cat"}}, 0, 0, "", ""},
			{"bytes", wire.Command{Text: `printf '\xff\x00\n\xc3'`}, 0, 0, "\xff\x00\n\xc3", ""},
			{"stderr by name", wire.Command{Text: `echo a >/dev/stdout; echo b >/dev/stderr; echo c | tee /dev/stderr`},
				0,
				0, "a\nc\n", "b\nc\n"},
			{"user", wire.Command{Text: "id -u; id -g; id -G; echo $HOME"}, 0, 0, "1000\n1000\n1000\n" +
				user.HomeOf(1000) + "\n",
				""},
			{"root", wire.Command{Text: "id -u; echo $USER $HOME", User: "root"}, 0, 0, "0\nroot /root\n", ""},
			{"image env", wire.Command{Text: "echo $IMAGE $MINE $BERTH_EXEC_ID", ID: "exec_1",
				Env: []string{"MINE=a=b"}}, 0,
				0, "yes a=b exec_1\n", ""},
			{"own session", wire.Command{Text: "ps -o pgid=,sid= $$ | tr -d ' ' | sed s/$$/X/g"}, 0, 0, "XX\n", ""},
			{"signals are default", wire.Command{Text: "grep SigIgn /proc/self/status"}, 0, 0,
				"SigIgn:\t0000000000000000\n",
				""},
			{"only its descriptors", wire.Command{Text: "echo /proc/self/fd/*"}, 0, 0,
				"/proc/self/fd/0 /proc/self/fd/1 " +
					"/proc/self/fd/2 /proc/self/fd/3\n", ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				r := w.run(c.cmd)
				if r.Code != c.code || r.Signal != c.signal || r.stdout != c.stdout || r.stderr != c.stderr {
					t.Errorf("got %d %v %q %q, want %d %v %q %q", r.Code, r.Signal, r.stdout, r.stderr, c.code,
						c.signal, c.stdout, c.stderr)
				}
			})
		}
	})
}

func TestExecNotStarted(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		must(t, os.WriteFile(filepath.Join(w.workspace, "plain"), []byte("echo hi\n"), 0o644))
		must(t, os.WriteFile(filepath.Join(w.workspace, "lost"), []byte("#!/no/such/interpreter\n"), 0o755))
		must(t, os.WriteFile(filepath.Join(w.workspace, "garbage"), []byte("\x7fELF garbage"), 0o755))
		must(t, os.Mkdir(filepath.Join(w.dir, "secret"), 0o700))
		for _, c := range []struct {
			name string
			cmd  wire.Command
			code proto.Code
		}{
			{"missing", wire.Command{Argv: []string{"no-such-program"}}, proto.NotFound},
			{"missing path", wire.Command{Argv: []string{"./no/such"}}, proto.NotFound},
			{"not executable", wire.Command{Argv: []string{"./plain"}}, proto.PermissionDenied},
			{"directory", wire.Command{Argv: []string{"/usr"}}, proto.PermissionDenied},
			{"no interpreter", wire.Command{Argv: []string{"./lost"}}, proto.NotFound},
			{"not a program", wire.Command{Argv: []string{"./garbage"}}, proto.InvalidArgument},
			{"neither", wire.Command{}, proto.InvalidArgument},
			{"both", wire.Command{Argv: []string{"a"}, Text: "b"}, proto.InvalidArgument},
			{"empty name", wire.Command{Argv: []string{""}}, proto.InvalidArgument},
			{"NUL", wire.Command{Argv: []string{"echo", "a\x00b"}}, proto.InvalidArgument},
			{"NUL in env", wire.Command{Text: "true", Env: []string{"A=\x00"}}, proto.InvalidArgument},
			{"no name in env", wire.Command{Text: "true", Env: []string{"=x"}}, proto.InvalidArgument},
			{"bad dir", wire.Command{Text: "true", Dir: "/no/such/dir"}, proto.InvalidArgument},
			{"dir is a file", wire.Command{Text: "true", Dir: "plain"}, proto.InvalidArgument},
			{"secret dir", wire.Command{Text: "true", Dir: filepath.Join(w.dir, "secret")}, proto.PermissionDenied},
			{"bad user", wire.Command{Text: "true", User: "no-such-user"}, proto.InvalidArgument},
			{"too large", wire.Command{Argv: []string{"echo", strings.Repeat("x", 3<<20)}}, proto.TooLarge},
		} {
			t.Run(c.name, func(t *testing.T) {
				_, err := w.Start(short(t), c.cmd, func(proto.Stream, int64, []byte) {})
				wantCode(t, err, c.code)
			})
		}
		if r := w.bash("echo fine"); r.stdout != "fine\n" {
			t.Errorf("after all that: %+v", r)
		}
	})
}

func TestDirectories(t *testing.T) {
	w := newWorld(t, false)
	out := filepath.Join(w.workspace, "job_1/out")
	for range 2 {
		r := w.run(wire.Command{Text: "pwd; stat -c %u .; ls -A ../out; touch ../out/made; stat -c %u ../out",
			Dir: "job_1/work", Output: out})
		want := filepath.Join(w.workspace, "job_1/work") + "\n1000\n1000\n"
		if r.stdout != want || r.Code != 0 {
			t.Errorf("got %q %q, want %q: fresh and the user's each time", r.stdout, r.stderr, want)
		}
	}
}

// TestOutputIsWhole checks that no output is lost, of a fast command or of a large amount, even with a slow sink.
func TestOutputIsWhole(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		for i := range 300 {
			if r := w.bash("echo a; echo b >&2"); r.stdout != "a\n" || r.stderr != "b\n" {
				t.Fatalf("round %d: %+v", i, r)
			}
		}
		const size = 64 << 20
		var n int
		var sum = sha256.New()
		p, err := w.Start(short(t), wire.Command{Text: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size)},
			func(_ proto.Stream, _ int64, b []byte) {
				if n%(8<<20) < len(b) {
					time.Sleep(10 * time.Millisecond) // a slow sink
				}
				n += len(b)
				sum.Write(b)
			})
		must(t, err)
		if x, err := p.Wait(short(t)); err != nil || x.Code != 0 || n != size {
			t.Errorf("got %d bytes of %d, %+v, %v", n, size, x, err)
		}
		if want := sha256.Sum256([]byte(strings.Repeat("x", size))); string(sum.Sum(nil)) != string(want[:]) {
			t.Error("the bytes are not those that were written")
		}
	})
}

// TestBackgroundChildHoldsPipe checks that a process that a command leaves behind does not delay the command's
// result. The process must not die because its output has no reader.
func TestBackgroundChildHoldsPipe(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		mark := filepath.Join(w.workspace, "survived")
		r := w.bash("echo now; (while [ ! -e go ]; do sleep 0.02; done; seq 100000; echo late >&2; echo $? " +
			">survived) & ")
		if r.stdout != "now\n" || r.Leftover == 0 {
			t.Errorf("got %+v", r)
		}
		must(t, os.WriteFile(filepath.Join(w.workspace, "go"), nil, 0o644))
		eventually(t, "the child wrote on without a reader", func() bool {
			b, _ := os.ReadFile(mark)
			return string(b) == "0\n"
		})
		if r := w.bash("true"); r.Leftover != 0 {
			t.Errorf("nothing was left, but got %+v", r)
		}
	})
}

// TestEndlessChild checks that a child that writes forever does not delay the result.
func TestEndlessChild(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		r := w.bash("yes & echo begun >&2")
		if r.stderr != "begun\n" || r.Leftover != 1 {
			t.Errorf("got stderr %q, leftover %d", r.stderr, r.Leftover)
		}
		w.run(wire.Command{Argv: []string{"pkill", "yes"}})
	})
}

func TestStdin(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		var o collected
		p := w.start(wire.Command{Argv: []string{"cat"}, Stdin: true}, &o)
		text := strings.Repeat("0123456789abcdef", 1<<16) // more than any buffer
		n, err := p.Write(context.Background(), []byte(text))
		if n != len(text) || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
		must(t, p.CloseStdin())
		if r := w.wait(p, &o); r.stdout != text {
			t.Errorf("got %d bytes back, want %d", len(r.stdout), len(text))
		}
		_, err = p.Write(context.Background(), []byte("late"))
		wantCode(t, err, proto.Conflict)
	})
}

// TestStdinBackPressure checks that a write blocks while the command does not read, and returns when the command
// ends.
func TestStdinBackPressure(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		var o collected
		p := w.start(wire.Command{Text: "head -c 1; while [ ! -e go ]; do sleep 0.02; done", Stdin: true}, &o)
		wrote := make(chan error, 1)
		go func() {
			_, err := p.Write(context.Background(), make([]byte, 4<<20))
			wrote <- err
		}()
		o.until(t, proto.Stdout, "\x00")
		select {
		case err := <-wrote:
			t.Fatalf("4 MiB went to a command that read one byte: %v", err)
		default:
		}
		// Signals and kills must still arrive.
		must(t, p.Kill(short(t)))
		if err := <-wrote; proto.CodeOf(err) != proto.Conflict {
			t.Errorf("writing to a command that ended: %v", err)
		}
		w.wait(p, &o)
	})
}

// TestStdinGivenUp checks that a canceled write returns how much was written, and that the next write continues
// there.
func TestStdinGivenUp(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		var o collected
		p := w.start(wire.Command{Text: "head -c 1 >&2; while [ ! -e go ]; do sleep 0.02; done; wc -c", Stdin: true},
			&o)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			o.until(t, proto.Stderr, "\x00")
			cancel()
		}()
		n, err := p.Write(ctx, make([]byte, 4<<20))
		if !errors.Is(err, context.Canceled) || n < 1 || n >= 4<<20 {
			t.Fatalf("wrote %d, %v", n, err)
		}
		_, err = w.Write(short(t), proto.UserRoot, "go", wire.WriteOptions{}, strings.NewReader(""))
		must(t, err)
		m, err := p.Write(context.Background(), make([]byte, 100))
		must(t, err)
		must(t, p.CloseStdin())
		if r := w.wait(p, &o); strings.TrimSpace(r.stdout) != strconv.Itoa(n+m-1) {
			t.Errorf("it read %s more bytes, %d were written", r.stdout, n+m)
		}
	})
}

func TestSignals(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		var o collected
		p := w.start(wire.Command{Text: "trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done"}, &o)
		o.until(t, proto.Stdout, "ready")
		must(t, p.Signal(short(t), syscall.SIGUSR1))
		if r := w.wait(p, &o); r.Code != 5 || r.stdout != "ready\ngot\n" {
			t.Errorf("got %+v", r)
		}
		wantCode(t, p.Signal(short(t), syscall.SIGTERM), proto.Conflict)
		must(t, p.Kill(short(t))) // a kill of an ended command is no error
	})
}

// TestHangUpKills checks that the end of the daemon's connection kills its command and all processes of that.
func TestHangUpKills(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		var o collected
		p := w.start(wire.Command{Text: "setsid sleep 1111 & echo up; sleep 1111"}, &o)
		o.until(t, proto.Stdout, "up")
		p.Drop()
		_, err := p.Wait(short(t))
		wantCode(t, err, proto.Unavailable)
		eventually(t, "the tree is gone", func() bool { return w.alive("sleep 1111") == "" })
	})
}

func TestManyAtOnce(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				var o collected
				p, err := w.Start(context.Background(), wire.Command{Text: fmt.Sprintf("sleep 0.0%d; echo %d", i%10,
					i)},
					o.sink)
				if err != nil {
					t.Error(err)
					return
				}
				if x, err := p.Wait(context.Background()); err != nil || x.Code != 0 ||
					o.stdout() != fmt.Sprintf("%d\n", i) {
					t.Errorf("%d: %+v %v %q", i, x, err, o.stdout())
				}
			}()
		}
		wg.Wait()
		if open, idle := w.Connections(); idle > client.MaxIdle || open != idle {
			t.Errorf("%d idle of %d connections are kept", idle, open)
		}
	})
}

func TestLongText(t *testing.T) {
	w := newWorld(t, false)
	text := "x='" + strings.Repeat("y", 600<<10) + "'\necho ${#x}\nexit 4"
	if r := w.bash(text); r.stdout != "614400\n" || r.Code != 4 {
		t.Errorf("got %d %q %.200q", r.Code, r.stdout, r.stderr)
	}
}

func TestGuestLost(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		var o collected
		p := w.start(wire.Command{Text: "echo up; sleep 1000"}, &o)
		o.until(t, proto.Stdout, "up")
		must(t, w.init.Process.Kill())
		_, err := p.Wait(short(t))
		wantCode(t, err, proto.Unavailable)
		_, err = w.Stat(short(t), "user", "/")
		wantCode(t, err, proto.Unavailable)
	})
}

func TestUsage(t *testing.T) {
	w := newWorld(t, false)
	r := w.bash("python3 -c 'x = bytearray(50 << 20); s = 0\nfor i in range(2000000): s += i'; true")
	if r.CPU < 20*time.Millisecond || r.PeakBytes < 50<<20 {
		t.Errorf("got %v and %d bytes", r.CPU, r.PeakBytes)
	}
}

// TestHelloOfAnother checks that the client keeps no facts of an earlier guest when another takes its place.
func TestHelloOfAnother(t *testing.T) {
	first, second := newWorld(t, false), newWorld(t, true)
	dial := first.dialer(false)
	c := client.NewClient(func(ctx context.Context) (net.Conn, error) { return dial(ctx) })
	defer c.Close()
	h, err := c.Hello(short(t))
	must(t, err)
	// this command occupies the first connection
	p, err := c.Start(t.Context(), wire.Command{Text: "cat", Stdin: true}, func(proto.Stream, int64, []byte) {})
	must(t, err)
	dial = second.dialer(true)
	other, err := c.Hello(short(t))
	must(t, err)
	if !h.Pipes || other.Pipes || h.Boot == other.Boot {
		t.Errorf("got %+v, then of another guest %+v", h, other)
	}
	must(t, p.CloseStdin())
	if _, err := p.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAsk checks that the time for the answer begins when the caller waits for it, and that the answer arrives
// although the context of the request was canceled.
func TestAsk(t *testing.T) {
	w := newWorld(t, false)
	want, err := w.Hello(short(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hear := w.Ask(ctx, wire.ShortWait)
	cancel()
	if got, err := hear(short(t)); err != nil || got != want {
		t.Errorf("it said %+v, %v", got, err)
	}
	if _, err := w.Ask(ctx, wire.ShortWait)(short(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("it was asked although nobody wanted to: %v", err)
	}
	if got, err := w.Hello(short(t)); err != nil || got != want {
		t.Errorf("after that it said %+v, %v", got, err)
	}
}

func TestHello(t *testing.T) {
	for _, frames := range []bool{false, true} {
		w := newWorld(t, frames)
		h, err := w.Hello(short(t))
		must(t, err)
		again, err := w.Hello(short(t))
		must(t, err)
		if h != again || h.PID != 1 || h.Version != "test" || len(h.Boot) != 32 || h.Pipes == frames ||
			!strings.HasPrefix(h.Kernel, "Linux ") {
			t.Errorf("got %+v, then %+v", h, again)
		}
	}
}

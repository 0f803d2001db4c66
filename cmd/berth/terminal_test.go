package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"berth/proto"

	"github.com/creack/pty"
	"golang.org/x/term"
)

// A user runs berth against one daemon.
type user struct{ env []string }

func newUser(t *testing.T) user {
	t.Helper()
	return user{append(os.Environ(), "BERTH_HOST="+newDaemon(t).URL, "BERTH_API_KEY="+testKey, "TERM=dumb")}
}

func (u user) command(args ...string) *exec.Cmd {
	cmd := exec.Command("berth", args...)
	cmd.Env = u.env
	return cmd
}

// berth runs berth to its end and returns its output.
func (u user) berth(t *testing.T, args ...string) string {
	t.Helper()
	out, err := u.command(args...).Output()
	if err != nil {
		t.Fatalf("berth %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

func statusOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	t.Fatal(err)
	return 0
}

// patience is the time limit for a whole conversation on a terminal.
const patience = 30 * time.Second

// A screen is the user's side of a terminal.
type screen struct {
	*os.File
	seen bytes.Buffer // since the last match of expect
	all  bytes.Buffer
}

// expect reads until the text since the last match matches pattern.
func (s *screen) expect(t *testing.T, pattern string) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	buf := make([]byte, 4096)
	for {
		if at := re.FindIndex(s.seen.Bytes()); at != nil {
			s.seen.Next(at[1])
			return
		}
		n, err := s.Read(buf)
		s.seen.Write(buf[:n])
		s.all.Write(buf[:n])
		if err != nil {
			t.Fatalf("waiting for %q: %v; the screen has %q", pattern, err, s.seen.String())
		}
	}
}

// on starts a command on its own terminal. The test keeps the terminal open to check its state later.
func on(t *testing.T, cmd *exec.Cmd, size *pty.Winsize) (*screen, *os.File) {
	t.Helper()
	ptmx, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ptmx.Close(); tty.Close() })
	if err := pty.Setsize(ptmx, size); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stderr = tty, tty
	if cmd.Stdout == nil {
		cmd.Stdout = tty
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	giveUp := time.AfterFunc(patience, func() { // the current read fails then and reports the text so far
		cmd.Process.Kill()
		tty.Close()
	})
	t.Cleanup(func() { giveUp.Stop(); cmd.Process.Kill() })
	return &screen{File: ptmx}, tty
}

func TestTerminal(t *testing.T) {
	u := newUser(t)
	c := u.berth(t, "create")
	cmd := u.command("exec", "-it", "-e", "PS1=> ", c, "bash", "--norc", "--noprofile")
	s, tty := on(t, cmd, &pty.Winsize{Rows: 30, Cols: 100})
	before := termios(t, tty)

	s.expect(t, "> ")
	fmt.Fprint(s, "stty size; echo $TERM; test -t 0 && echo ttyin; tty\r")
	s.expect(t, `\n30 100\r\ndumb\r\nttyin\r\n/dev/pts/`)
	if termios(t, tty) == before {
		t.Error("the terminal is not in raw mode")
	}

	if err := pty.Setsize(s.File, &pty.Winsize{Rows: 41, Cols: 121}); err != nil {
		t.Fatal(err)
	}
	// The command also gets SIGWINCH.
	fmt.Fprint(s, "until test \"$(stty size)\" = '41 121'; do read -t 0.01 x; done; echo 'resized 'now\r")
	s.expect(t, `resized now`)

	fmt.Fprint(s, "sh -c 'echo be\"gun\"; exec sleep 1000'\r") // it has the terminal once it prints this
	s.expect(t, "begun")
	fmt.Fprint(s, "\x03")
	s.expect(t, "> ")
	fmt.Fprint(s, "exit 5\r")
	if got := statusOf(t, cmd.Wait()); got != 5 {
		t.Errorf("the status is %d", got)
	}
	if termios(t, tty) != before {
		t.Error("the terminal was not given back as it was")
	}
}

// TestTerminalWithoutReader checks that the terminal is restored if the reader of the output exits.
func TestTerminalWithoutReader(t *testing.T) {
	u := newUser(t)
	cmd := u.command("exec", "-it", u.berth(t, "create"), "yes")
	out, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout = to
	_, tty := on(t, cmd, &pty.Winsize{Rows: 24, Cols: 80})
	before := termios(t, tty)
	to.Close()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if termios(t, tty) == before {
		t.Error("the terminal is not in raw mode")
	}
	out.Close()
	if got := statusOf(t, cmd.Wait()); got != 125 {
		t.Errorf("the status is %d", got)
	}
	if termios(t, tty) != before {
		t.Error("the terminal was not given back as it was")
	}
}

func termios(t *testing.T, f *os.File) string {
	t.Helper()
	st, err := term.GetState(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%+v", *st)
}

// TestRunOnTerminal checks that `berth run -it` starts a shell, and that --rm leaves nothing behind.
func TestRunOnTerminal(t *testing.T) {
	u := newUser(t)
	cmd := u.command("run", "-it", "--rm", "-q", "-e", "PS1=> ")
	s, _ := on(t, cmd, &pty.Winsize{Rows: 24, Cols: 80})
	fmt.Fprint(s, "echo $((6*7))\r")
	s.expect(t, `\n42\r\n`)
	fmt.Fprint(s, "exit\r")
	if got := statusOf(t, cmd.Wait()); got != 0 {
		t.Errorf("the status is %d", got)
	}
	if left := u.berth(t, "ls", "-q"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// TestProgressFitsTheTerminal checks that no state of a progress bar is wider than the terminal, on which each new state
// would then begin on a new line.
func TestProgressFitsTheTerminal(t *testing.T) {
	u := newUser(t)
	file := filepath.Join(t.TempDir(), "measurements-of-all-stations-of-the-northern-network-in-2026.parquet")
	if err := os.WriteFile(file, make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{100, 80, 50, 40} {
		s, _ := on(t, u.command("files", "put", file), &pty.Winsize{Rows: 24, Cols: uint16(width)})
		s.expect(t, `\d% \|.*MB`)
		s.expect(t, `file_\w{22}\r\n`)
		drawn := regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`).ReplaceAllString(s.all.String(), "")
		for _, line := range strings.FieldsFunc(drawn, func(r rune) bool { return r == '\r' || r == '\n' }) {
			if n := utf8.RuneCountInString(line); n > width {
				t.Errorf("%d columns of %d: %q", n, width, line)
			}
		}
	}
}

// A running is a running command whose standard output is read line by line.
type running struct {
	*exec.Cmd
	out    *bufio.Reader
	stderr bytes.Buffer
}

func (u user) start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{Cmd: u.command(args...)}
	out, err := r.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.out, r.Cmd.Stderr = bufio.NewReader(out), &r.stderr
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Process.Kill() })
	return r
}

func (r *running) line(t *testing.T) string {
	t.Helper()
	line, err := r.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%v; stderr: %s", err, r.stderr.String())
	}
	return strings.TrimSpace(line)
}

// TestSignalsReachTheCommand checks that output arrives while the command runs, and that signals reach the command.
func TestSignalsReachTheCommand(t *testing.T) {
	u := newUser(t)
	c := u.berth(t, "create")
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 33, syscall.SIGINT: 34, syscall.SIGUSR1: 35} {
		r := u.start(t, "exec", "-c",
			`trap "exit 33" TERM; trap "exit 34" INT; trap "exit 35" USR1; echo ready; while :; do sleep 0.05; done`, c)
		if got := r.line(t); got != "ready" {
			t.Fatalf("%q", got)
		}
		if err := r.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if got := statusOf(t, r.Wait()); got != code {
			t.Errorf("%v: the status is %d, want %d; %s", sig, got, code, r.stderr.String())
		}
	}
}

// TestLeavingACommandWithAKey checks that a command with a key continues without berth, and that the same command
// line finds it again.
func TestLeavingACommandWithAKey(t *testing.T) {
	u := newUser(t)
	c := u.berth(t, "create")
	u.berth(t, "exec", "-c", "mkfifo $JOB_DIR/go", c)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		line := []string{"exec", "--idempotency-key", sig.String(), "-c",
			`trap "exit 33" INT TERM HUP; echo ready; read x < $JOB_DIR/go; echo "got $x"; exit 7`, c}
		r := u.start(t, line...)
		r.line(t)
		if err := r.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if got := statusOf(t, r.Wait()); got != 128+int(sig) ||
			!strings.Contains(r.stderr.String(), "hint: the command continues; the same command line finds it again") {
			t.Errorf("%v: status %d, %s", sig, got, r.stderr.String())
		}
		u.berth(t, "exec", "-d", "-c", "echo word > $JOB_DIR/go", c)
		again := u.start(t, line...)
		for _, want := range []string{"ready", "got word"} {
			if got := again.line(t); got != want {
				t.Fatalf("%v: %q", sig, got)
			}
		}
		if got := statusOf(t, again.Wait()); got != 7 {
			t.Errorf("%v: status %d, %s", sig, got, again.stderr.String())
		}
	}
}

// TestSignalsThatEndBerth checks that the exit status and the message name the signal that ended berth.
func TestSignalsThatEndBerth(t *testing.T) {
	u := newUser(t)
	c := u.berth(t, "create")
	e := u.berth(t, "exec", "-d", "-c", "echo ready; sleep 600", c)
	for sig, want := range map[syscall.Signal]string{syscall.SIGINT: "berth: interrupted\n",
		syscall.SIGTERM: "berth: terminated\n"} {
		r := u.start(t, "logs", "-f", c, e)
		r.line(t)
		if err := r.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if got := statusOf(t, r.Wait()); got != 128+int(sig) || r.stderr.String() != want {
			t.Errorf("%v: status %d, %q", sig, got, r.stderr.String())
		}
	}
}

// TestLeavingACommandThatIsOwedInput checks that a command with unsent input gets the signal, since it cannot
// continue without berth.
func TestLeavingACommandThatIsOwedInput(t *testing.T) {
	u := newUser(t)
	cmd := u.command("exec", "-i", "--idempotency-key", "k", u.berth(t, "create"), "bash", "-c",
		`trap "exit 33" TERM; echo ready; while :; do read -t 0.05 x; done`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := statusOf(t, cmd.Wait()); got != 33 {
		t.Errorf("status %d", got)
	}
}

// TestInsisting checks that berth gives up at the third signal on a command that ignores signals, and has it killed.
func TestInsisting(t *testing.T) {
	u := newUser(t)
	// bash handles a signal that arrives just before a read only when the read ends. So each read has a timeout.
	r := u.start(t, "run", "-c",
		`trap 'echo no' INT; mkfifo p; exec 9<>p; echo ready; while :; do read -r -t 0.2 -u 9 x; done`)
	r.line(t)
	for i := range 3 {
		if err := r.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			if got := r.line(t); got != "no" {
				t.Fatalf("%q", got)
			}
		}
	}
	if got := statusOf(t, r.Wait()); got != 130 || !strings.Contains(r.stderr.String(), "berth: interrupted") {
		t.Errorf("status %d, stderr %s", got, r.stderr.String())
	}
	c := u.berth(t, "ls", "-q")
	var res proto.ExecResult
	if err := json.Unmarshal([]byte(u.berth(t, "wait", "--json", c)), &res); err != nil {
		t.Fatal(err)
	}
	if res.Exec.End.Reason != proto.EndKilled {
		t.Errorf("the command ended with %+v", res.Exec.End)
	}
}

// TestInterruptedRunIsTidied checks that --rm deletes the container after an interruption too.
func TestInterruptedRunIsTidied(t *testing.T) {
	u := newUser(t)
	r := u.start(t, "run", "--rm", "-c", `trap '' INT TERM HUP; echo ready; while :; do sleep 0.05; done`)
	r.line(t)
	// equal signals could merge into one
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if err := r.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	statusOf(t, r.Wait())
	if left := u.berth(t, "ls", "-q"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// TestSlowReaderGetsAllOfIt checks that a slow reader slows the command down and gets the complete output.
func TestSlowReaderGetsAllOfIt(t *testing.T) {
	const total = 150 << 20
	u := newUser(t)
	c := u.berth(t, "create")
	r := u.start(t, "exec", c, "head", "-c", strconv.Itoa(total), "/dev/zero")
	if _, err := r.out.Peek(1); err != nil { // it has started
		t.Fatal(err)
	}
	if list := u.berth(t, "ps", c); !strings.Contains(list, "running") {
		t.Errorf("it is over although nobody has read it: %s", list)
	}
	got, err := io.Copy(io.Discard, r.out)
	if err != nil || got != total {
		t.Errorf("%d bytes came of %d, %v; stderr: %s", got, total, err, r.stderr.String())
	}
	if status := statusOf(t, r.Wait()); status != 0 {
		t.Errorf("status %d", status)
	}
}

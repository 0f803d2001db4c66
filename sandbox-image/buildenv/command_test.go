package buildenv

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/test/needs"
)

// fifoVariable makes the test binary run sleeper on the FIFO it names, instead of tests.
const fifoVariable = "SANDBOXIMAGE_TEST_FIFO"

func TestMain(m *testing.M) {
	if fifo := os.Getenv(fifoVariable); fifo != "" {
		_, _ = sleeper(fifo).Run(context.Background())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// sleeper is a tool whose child holds the FIFO open for as long as it lives.
func sleeper(fifo string) Command {
	return Command{Path: "sh", Args: []string{"-c", `sleep 1000 >"$0" & wait`, fifo}, Private: true}
}

// makeFIFO returns a FIFO, and a channel that is closed once all who wrote to it are gone. opened is
// closed when the first has come.
func makeFIFO(t *testing.T) (path string, opened, gone chan struct{}) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	opened, gone = make(chan struct{}), make(chan struct{})
	go func() {
		f, err := os.Open(path)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		close(opened)
		_, _ = io.Copy(io.Discard, f)
		close(gone)
	}()
	return path, opened, gone
}

func await(t *testing.T, c chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatal("waited in vain for " + what)
	}
}

// TestCommandDiesWithUs kills a process that runs a tool. The children of the tool must end too: otherwise they would
// write into the cache of the next build.
func TestCommandDiesWithUs(t *testing.T) {
	needs.Root(t)
	needs.Time(t)
	path, opened, gone := makeFIFO(t)
	self := exec.Command(os.Args[0])
	self.Env = append(os.Environ(), fifoVariable+"="+path)
	if err := self.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, opened, "the tool")
	if err := self.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, gone, "the end of the tool's child")
	_ = self.Wait() // reports the kill
}

func TestCommandCanceled(t *testing.T) {
	needs.Root(t)
	needs.Time(t)
	path, opened, gone := makeFIFO(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		c := sleeper(path)
		c.Private = false // so that it has to be the whole process group that is killed
		_, err := c.Run(ctx)
		done <- err
	}()
	await(t, opened, "the tool")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled command: %v", err)
	}
	await(t, gone, "the end of the tool's child")
}

func TestCommandReports(t *testing.T) {
	var log strings.Builder
	var status []string
	c := Command{
		Path: "sh",
		Args: []string{"-c", "echo out; echo 'E: broken' >&2; echo 'one' >&3; exit 3"},
		Log:  &log, Status: func(line string) { status = append(status, line) },
	}
	_, err := c.Run(t.Context())
	var failed *toolError
	if !errors.As(err, &failed) || failed.Error() != "sh: broken" {
		t.Errorf("error %v, want what the tool said", err)
	}
	if len(status) != 1 || status[0] != "one" {
		t.Errorf("status %q", status)
	}
	if s := log.String(); !strings.Contains(s, "out\n") || !strings.Contains(s, "E: broken\n") {
		t.Errorf("log %q", s)
	}
	if out, err := (Command{Path: "echo", Args: []string{"x"}}).Run(t.Context()); out != "x\n" || err != nil {
		t.Errorf("echo: %q, %v", out, err)
	}
}

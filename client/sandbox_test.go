package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/client"
	"berth/proto"
	"berth/test/daemontest"
	"berth/test/needs"
)

// TestSandbox has the examples and a Sandbox use a real daemon, which is killed in the middle of a stream.
func TestSandbox(t *testing.T) {
	needs.Containers(t)
	d, err := daemontest.New("--stop-on-exit")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	t.Setenv("BERTH_URL", d.URL)
	t.Setenv("BERTH_API_KEY", d.Key)
	for want, example := range map[string]func(){"3\na PNG: true\n": ExampleSandbox, "137\n": ExampleSandbox_Start} {
		if got := printed(t, example); got != want {
			t.Errorf("an example prints %q, want %q", got, want)
		}
	}
	c, err := client.FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.NewSandbox(t.Context(), proto.CreateContainer{Name: "words"})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("killed", func(t *testing.T) { streamOverKill(t, d, s) })
	t.Run("words", func(t *testing.T) { words(t, c, s) })
	t.Run("rate", func(t *testing.T) { waitsForRate(t, d, c) })
}

// printed returns what fn prints.
func printed(t *testing.T, fn func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stdout
	os.Stdout = w
	fn()
	os.Stdout = old
	w.Close()
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// A notifier is a writer that closes a channel once it has seen a text.
type notifier struct {
	strings.Builder
	text string
	seen chan struct{}
}

func (n *notifier) Write(b []byte) (int, error) {
	before := strings.Contains(n.String(), n.text)
	n.Builder.Write(b)
	if !before && strings.Contains(n.String(), n.text) {
		close(n.seen)
	}
	return len(b), nil
}

// streamOverKill kills the daemon in the middle of a stream. The command runs once, and its output comes once.
func streamOverKill(t *testing.T, d *daemontest.Daemon, s *client.Sandbox) {
	out := &notifier{text: "5\n", seen: make(chan struct{})}
	restarted := make(chan error, 1)
	go func() {
		<-out.seen
		restarted <- d.Restart(syscall.SIGKILL)
	}()
	const command = "echo run >>/workspace/runs; for i in $(seq 0 39); do echo $i; sleep 0.05; done"
	res, err := s.RunTo(t.Context(), proto.Cmd{Command: command}, out, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-restarted; err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := range 40 {
		fmt.Fprintln(&want, i)
	}
	runs, err := s.Files().Get(t.Context(), "/workspace/runs")
	if err != nil || string(runs) != "run\n" || out.String() != want.String() || res.Stdout != want.String() || !res.OK() {
		t.Errorf("%v: it ran %q and wrote %q", err, runs, out)
	}
}

// words uses what a Sandbox has besides.
func words(t *testing.T, c *client.Client, s *client.Sandbox) {
	ctx := t.Context()
	res, err := s.Run(ctx, "echo a; echo b >&2; exit 3")
	if err != nil || res.ReturnCode != 3 || res.Stdout != "a\n" || res.Stderr != "b\n" || res.OK() {
		t.Errorf("%v %+v", err, res)
	}
	stop := errors.New("enough")
	if _, err := c.Stream(ctx, s.ID, proto.Cmd{Command: "echo a; sleep 60"}, func(ev proto.Event) error {
		if ev.Type == proto.EventStdout {
			return stop
		}
		return nil
	}); !errors.Is(err, stop) {
		t.Errorf("an error of the receiver is %v", err)
	}
	cat, err := s.Start(ctx, proto.Cmd{Command: "cat", OpenStdin: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := cat.Stdin(ctx, strings.NewReader("in")); err != nil {
		t.Error(err)
	}
	if res, err := cat.Wait(ctx); err != nil || res.Stdout != "in" {
		t.Errorf("%v %+v", err, res)
	}
	if out, _, err := cat.Output(ctx); err != nil || out != "in" {
		t.Errorf("%v %q", err, out)
	}
	code, err := s.RunCode(ctx, "print('hi'); 6*7")
	if err != nil || code.Text() != "42" || code.Stdout() != "hi\n" || code.PNG() != nil {
		t.Errorf("%v %+v", err, code)
	}
	kept, err := s.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	copies, err := s.Fork(ctx, 2)
	if err != nil || len(copies) != 2 {
		t.Fatal(err, copies)
	}
	for _, other := range copies {
		if err := other.Delete(ctx); err != nil {
			t.Error(err)
		}
	}
	if err := errors.Join(s.Files().Put(ctx, "/workspace/runs", []byte("changed")), s.Restore(ctx, kept.ID)); err != nil {
		t.Error(err)
	}
	if runs, err := s.Files().Get(ctx, "/workspace/runs"); err != nil || string(runs) != "run\n" {
		t.Errorf("%v %q", err, runs)
	}
	if url, err := s.PortURL(ctx, 8000); err != nil || !strings.Contains(url, "berth_token=") {
		t.Errorf("%v %q", err, url)
	}
	if err := errors.Join(s.Renew(ctx, time.Hour), s.Pause(ctx), s.Resume(ctx), s.Delete(ctx)); err != nil {
		t.Error(err)
	}
	var missing *client.MissingError
	if _, err := c.Sandbox(ctx, "words"); !errors.As(err, &missing) {
		t.Errorf("a deleted container is %v", err)
	}
}

// waitsForRate checks that a client waits for the rate of its key, as far as it may.
func waitsForRate(t *testing.T, d *daemontest.Daemon, c *client.Client) {
	key, err := c.CreateKey(t.Context(), proto.CreateKey{Quota: proto.Quota{RequestsPerSecond: 2, Burst: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for wait, refused := range map[time.Duration]bool{10 * time.Second: false, 0: true} {
		slow, err := client.New(client.Config{Host: d.URL, Key: key.Secret, Wait: wait, WaitForRate: true})
		if err != nil {
			t.Fatal(err)
		}
		var all error
		for range 3 {
			_, err := slow.Containers(context.Background(), client.Filter{})
			all = errors.Join(all, err)
		}
		if (proto.CodeOf(all) == proto.TooMany) != refused {
			t.Errorf("with %v to wait: %v", wait, all)
		}
	}
}

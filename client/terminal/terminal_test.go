package terminal_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/client"
	"berth/client/terminal"
	"berth/proto"
	"berth/test/daemontest"
	"berth/test/needs"
)

func TestTerminal(t *testing.T) {
	needs.Containers(t)
	d, err := daemontest.New("--stop-on-exit")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c, err := client.New(client.Config{Host: d.URL, Key: d.Key, Wait: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.NewSandbox(t.Context(), proto.CreateContainer{})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("shell", func(t *testing.T) { shell(t, c, s) })
	t.Run("close", func(t *testing.T) { closed(t, c, s) })
	t.Run("refused", func(t *testing.T) {
		_, err := terminal.Open(t.Context(), c, s.ID, proto.Cmd{User: "no-such-user"})
		var known *proto.Error
		if !errors.As(err, &known) || known.Code != proto.InvalidArgument {
			t.Errorf("a user that does not exist: %v", err)
		}
	})
	t.Run("killed", func(t *testing.T) { overKill(t, d, c, s) })
}

// shell types into a login shell, resizes it and ends it.
func shell(t *testing.T, c *client.Client, s *client.Sandbox) {
	term, err := terminal.Open(t.Context(), c, s.ID, proto.Cmd{})
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	shown := bufio.NewReader(term)
	typed(t, term, "echo at $PWD; stty size\n")
	until(t, shown, "at /workspace")
	until(t, shown, "24 80")
	if err := term.Resize(proto.WindowSize{Rows: 40, Cols: 132}); err != nil {
		t.Fatal(err)
	}
	typed(t, term, "until stty size | grep '40 132'; do :; done; exit 3\n")
	until(t, shown, "40 132\r\n")
	if _, err := io.ReadAll(shown); err != nil {
		t.Error(err)
	}
	res, err := term.Wait(t.Context())
	if err != nil || res.Exec.End.ReturnCode != 3 {
		t.Errorf("it ended with %v, %v", res.Exec.End, err)
	}
}

// closed ends a command that ignores the end of its terminal.
func closed(t *testing.T, c *client.Client, s *client.Sandbox) {
	stubborn := proto.Cmd{Command: "trap '' HUP; echo ready; while :; do sleep 1; done"}
	term, err := terminal.Open(t.Context(), c, s.ID, stubborn)
	if err != nil {
		t.Fatal(err)
	}
	until(t, bufio.NewReader(term), "ready")
	if err := term.Close(); err != nil {
		t.Fatal(err)
	}
	res, err := s.Command(term.ID).Wait(t.Context())
	if err != nil || res.Reason != proto.EndKilled {
		t.Errorf("it ended by %s, %v", res.Reason, err)
	}
	if err := term.Close(); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// overKill reads a terminal whose daemon is killed: each line comes once.
func overKill(t *testing.T, d *daemontest.Daemon, c *client.Client, s *client.Sandbox) {
	count := "stty -echo; read a; for i in $(seq 50); do echo line $i; sleep 0.02; done; " +
		"read b; echo got $a $b; stty size"
	term, err := terminal.Open(t.Context(), c, s.ID, proto.Cmd{Command: count})
	if err != nil {
		t.Fatal(err)
	}
	defer term.Close()
	if err := term.Resize(proto.WindowSize{Rows: 11, Cols: 22}); err != nil {
		t.Fatal(err)
	}
	typed(t, term, "one\n")
	shown := bufio.NewReader(term)
	until(t, shown, "line 10\r\n")
	if err := d.Restart(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for i := 11; i <= 50; i++ {
		if line, err := shown.ReadString('\n'); line != fmt.Sprintf("line %d\r\n", i) {
			t.Fatalf("line %d is %q, %v", i, line, err)
		}
	}
	typed(t, term, "two\n")
	if rest, err := io.ReadAll(shown); string(rest) != "got one two\r\n11 22\r\n" || err != nil {
		t.Errorf("at the end it shows %q, %v", rest, err)
	}
}

// typed types a text.
func typed(t *testing.T, term *terminal.Terminal, text string) {
	t.Helper()
	if _, err := io.WriteString(term, text); err != nil {
		t.Fatal(err)
	}
}

// until reads until a text was shown.
func until(t *testing.T, shown *bufio.Reader, text string) {
	t.Helper()
	var all strings.Builder
	for !strings.HasSuffix(all.String(), text) {
		b, err := shown.ReadByte()
		if err != nil {
			t.Fatalf("%v after %q, without %q", err, all.String(), text)
		}
		all.WriteByte(b)
	}
}

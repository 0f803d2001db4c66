package pid1

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/guest/wire"
	"berth/proto"
)

func TestTTY(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		var o collected
		p := w.start(wire.Command{Argv: []string{"bash", "--norc", "-i"}, Env: []string{"PS1=$ "}, Stdin: true,
			TTY: &proto.WindowSize{Rows: 30, Cols: 100}}, &o)
		type_ := func(s string) {
			_, err := p.Write(context.Background(), []byte(s))
			must(t, err)
		}
		type_("stty size; tty\n")
		o.until(t, proto.Stdout, "30 100")
		o.until(t, proto.Stdout, "/dev/pts/")
		must(t, p.Resize(short(t), proto.WindowSize{Rows: 40, Cols: 120}))
		type_("stty size\n")
		o.until(t, proto.Stdout, "40 120")
		type_("sleep 1111 &\nfg\n")
		eventually(t, "sleep has the terminal", func() bool { return w.hasTerminal("sleep") })
		type_("\x03") // job control: the signal goes to sleep and not to bash
		type_("echo status $?\n")
		o.until(t, proto.Stdout, "status 130")
		type_("exit 7\n")
		if r := w.wait(p, &o); r.Code != 7 || strings.Contains(r.stdout, "no job control") {
			t.Errorf("got %d %q", r.Code, r.stdout)
		}
	})
}

// hasTerminal reports whether a process of that name is in the foreground process group of its terminal.
func (w *world) hasTerminal(name string) bool {
	for _, pid := range w.count(name) {
		stat, _ := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		_, rest, _ := strings.Cut(string(stat), ") ")
		f := strings.Fields(rest) // state, parent, group, session, terminal, the terminal's group
		if len(f) > 5 && f[2] == f[5] {
			return true
		}
	}
	return false
}

// TestTTYOutputIsWhole checks that all output written to a terminal before the exit arrives.
func TestTTYOutputIsWhole(t *testing.T) {
	w := newWorld(t, false)
	for i := range 50 {
		r := w.run(wire.Command{Text: "seq 3000; printf end", TTY: &proto.WindowSize{Rows: 24, Cols: 80}})
		if !strings.HasPrefix(r.stdout, "1\r\n2\r\n") || !strings.HasSuffix(r.stdout, "\r\n3000\r\nend") {
			t.Fatalf("round %d: %d bytes, ending in %q", i, len(r.stdout), r.stdout[max(0, len(r.stdout)-20):])
		}
	}
}

func TestTTYEndOfInput(t *testing.T) {
	w := newWorld(t, false)
	var o collected
	p := w.start(wire.Command{Argv: []string{"cat"}, Stdin: true, TTY: &proto.WindowSize{Rows: 24, Cols: 80}}, &o)
	_, err := p.Write(context.Background(), []byte("line\n"))
	must(t, err)
	must(t, p.CloseStdin())
	if r := w.wait(p, &o); r.Code != 0 || r.stdout != "line\r\nline\r\n" {
		t.Errorf("got %d %q", r.Code, r.stdout)
	}
}

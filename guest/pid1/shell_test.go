package pid1

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/guest/wire"
	"berth/proto"
)

// A step is one call on a shell and its expected result.
type step struct {
	text           string
	code           int
	stdout, stderr string
	ended          bool
}

func TestShellCalls(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world) {
		for name, steps := range map[string][]step{
			"state stays": {
				{text: "x=1; cd /tmp; f() { echo f$1; }; declare -A m=([a]=b); export E=2; alias z=true"},
				{text: `echo $x $PWD ${m[a]}; f 3; printenv E`, stdout: "1 /tmp b\nf3\n2\n"},
			},
			"codes": {{text: "(exit 7)", code: 7}, {text: "false", code: 1},
				{text: "kill -9 $BASHPID &\nwait $!", code: 137, stderr: "?Killed"}},
			"streams apart": {{text: "echo o; echo e >&2; printf '\\xff\\x00x'", stdout: "o\n\xff\x00x",
				stderr: "e\n"}},
			"exit": {
				{text: "y=1; exit 3", code: 3, ended: true},
				{text: "echo ${y-unset}", stdout: "unset\n"},
			},
			"exec": {{text: "exec sh -c 'echo last; exit 4'", code: 4, stdout: "last\n", ended: true},
				{text: "echo new", stdout: "new\n"}},
			"syntax error": {{text: "echo a\nif then", code: 2, stdout: "a\n", stderr: "?syntax error"},
				{text: "echo b", stdout: "b\n"}},
			"open quote": {{text: "echo 'x", code: 2, stderr: "?unexpected EOF"}, {text: "echo b", stdout: "b\n"}},
			"open heredoc": {{text: "cat <<E\nxx", stdout: "xx\n", stderr: "?here-document"},
				{text: "echo b", stdout: "b\n"}},
			"line numbers": {{text: "true"}, {text: "\n\nno-such", code: 127,
				stderr: "bash: line 3: no-such: command not found\n"}},
			"stdin is empty": {{text: "read x; echo \"[$x]\"; cat", stdout: "[]\n"}, {text: "echo b", stdout: "b\n"}},
			"stdout closed": {{text: "exec 1>&- 2>&-"}, {text: "echo back; echo err >&2", stdout: "back\n",
				stderr: "err\n"}},
			"stdout moved": {{text: "exec >/dev/null; echo no"}, {text: "echo back", stdout: "back\n"}},
			"set -e": {{text: "set -e"}, {text: "echo a; false; echo b", code: 1, stdout: "a\n", ended: true},
				{text: "false; echo b", stdout: "b\n"}},
			"set -eux": {{text: "set -ux; IFS=/; set -f", stderr: "++ IFS=/\n++ set -f\n"},
				{text: "set +x; echo \"$IFS\"", stdout: "/\n", stderr: "++ set +x\n"}, {text: "echo q", stdout: "q\n"}},
			"odd options": {{text: "set -C; set -o posix; shopt -s nullglob failglob"},
				{text: "echo on", stdout: "on\n"}},
			"break": {{text: "break; continue 2"}, {text: "echo on", stdout: "on\n"}},
			"traps": {{text: "trap 'echo err' ERR; trap 'echo bye; echo bye >&2' EXIT; false", stdout: "err\n",
				code: 1}, {text: "exit 9", stdout: "bye\n", stderr: "bye\n", code: 9, ended: true}},
			"control fds": {{text: "ls /proc/self/fd | tr '\\n' ' '", stdout: "0 1 2 3 "}},
			"control closed": {{text: "for f in /proc/$$/fd/*; do n=${f##*/}; [ $n -gt 2 ] && eval \"exec $n>&-\"; " +
				"done; echo a", stdout: "a\n"}, {text: "echo new", stdout: "new\n"}},
			"empty lines": {{text: "\n\n"}, {text: "echo a\n\n", stdout: "a\n"}},
			"long text":   {{text: "x='" + strings.Repeat("y", 1<<20) + "'; echo ${#x}", stdout: "1048576\n"}},
			"UTF-8":       {{text: "echo 'grüße ✓ \\'", stdout: "grüße ✓ \\\n"}},
		} {
			t.Run(name, func(t *testing.T) { w.steps(t, name, steps) })
		}
		list, err := w.Shells(short(t))
		must(t, err)
		for _, info := range list {
			must(t, w.CloseShell(short(t), info.Name))
		}
		if n := w.count("bash"); len(n) != 0 {
			t.Errorf("%d bashes are left", len(n))
		}
		wantCode(t, w.CloseShell(short(t), "none"), proto.NotFound)
	})
}

func (w *world) steps(t *testing.T, shell string, steps []step) {
	for _, s := range steps {
		r := w.run(wire.Command{Shell: shell, Text: s.text})
		okErr := r.stderr == s.stderr
		if part, ok := strings.CutPrefix(s.stderr, "?"); ok {
			okErr = strings.Contains(r.stderr, part)
		}
		text := s.text[:min(len(s.text), 100)]
		if shell == "control closed" { // whether it survives, and its answer then, are not specified
			s.ended, s.code, okErr = r.ShellEnded, r.Code, true
		}
		if r.Code != s.code || r.stdout != s.stdout || !okErr || r.ShellEnded != s.ended {
			t.Errorf("%q: got %d %.200q %.300q ended %v, want %d %q %q ended %v", text, r.Code, r.stdout, r.stderr,
				r.ShellEnded, s.code, s.stdout, s.stderr, s.ended)
		}
	}
}

func TestShellEnvironment(t *testing.T) {
	w := newWorld(t, false)
	for i := range 3 {
		out := fmt.Sprintf("%s/out%d", w.workspace, i)
		r := w.run(wire.Command{ID: fmt.Sprintf("exec_%d", i), Shell: "s",
			Text: `echo "$OUTPUT_DIR" "$Q" $BERTH_EXEC_ID; ls -A "$OUTPUT_DIR"; pwd`,
			Env:  []string{"OUTPUT_DIR=" + out, "Q=it's \"$x\" `y`\n"}, Output: out, Dir: "job"})
		want := out + " it's \"$x\" `y`\n" + fmt.Sprintf(" exec_%d\n", i) + filepath.Join(w.workspace, "job") + "\n"
		if r.stdout != want {
			t.Errorf("got %q %q, want %q", r.stdout, r.stderr, want)
		}
	}
}

// TestShellKeepsItsVariables checks that a variable that the shell has changed stays until a call sets another value.
func TestShellKeepsItsVariables(t *testing.T) {
	w := newWorld(t, false)
	for _, c := range []struct{ given, text, want string }{
		{"V=1", "echo $V; V=mine", "1\n"}, {"V=1", "echo $V", "mine\n"}, {"V=2", "echo $V; unset V", "2\n"},
		{"V=2", "echo ${V-none}", "none\n"},
	} {
		if r := w.run(wire.Command{Shell: "s", Text: c.text, Env: []string{c.given}}); r.stdout != c.want {
			t.Errorf("%+v: got %q", c, r.stdout)
		}
	}
}

func TestShellStdin(t *testing.T) {
	w := newWorld(t, false)
	for i := range 20 {
		var o collected
		p := w.start(wire.Command{Shell: "s", Text: "read a; echo \"[$a]\"; wc -c", Stdin: true}, &o)
		big := strings.Repeat("z", 500_000)
		_, err := p.Write(context.Background(), []byte("line\n"+big))
		must(t, err)
		must(t, p.CloseStdin())
		if r := w.wait(p, &o); r.stdout != "[line]\n500000\n" {
			t.Fatalf("round %d: %q %q", i, r.stdout, r.stderr)
		}
	}
	// A stdin that is neither written nor closed blocks nothing.
	var o collected
	p := w.start(wire.Command{Shell: "s", Text: "echo done", Stdin: true}, &o)
	if r := w.wait(p, &o); r.stdout != "done\n" {
		t.Errorf("%+v", r)
	}
}

// TestShellBackgroundJob checks that a background job of one call cannot write into the next.
func TestShellBackgroundJob(t *testing.T) {
	w := newWorld(t, false)
	r := w.run(
		wire.Command{Shell: "s",
			Text: "(while [ ! -e go ]; do sleep 0.02; done; echo late; echo $? >wrote) & echo now"})
	if r.stdout != "now\n" || r.Leftover == 0 {
		t.Errorf("got %+v", r)
	}
	r = w.run(wire.Command{Shell: "s", Text: "touch go; while [ ! -s wrote ]; do sleep 0.02; done; cat wrote; wait"})
	if r.stdout != "0\n" || r.Leftover != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestShellTurns(t *testing.T) {
	w := newWorld(t, false)
	var first collected
	p := w.start(wire.Command{Shell: "s", Text: "n=0; echo up; while [ ! -e go ]; do sleep 0.02; done"}, &first)
	first.until(t, proto.Stdout, "up")
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() {
		_, err := w.Start(ctx, wire.Command{Shell: "s", Text: "n=100"}, func(proto.Stream, int64, []byte) {})
		gone <- err
	}()
	results := make(chan string, 10)
	for range 10 {
		go func() {
			var o collected
			p, err := w.Start(context.Background(),
				wire.Command{Shell: "s", Text: "m=$n; sleep 0.01; n=$((m+1)); echo $n"},
				o.sink)
			if err != nil {
				results <- err.Error()
				return
			}
			_, _ = p.Wait(context.Background())
			results <- o.stdout()
		}()
	}
	list, err := w.Shells(short(t))
	must(t, err)
	if len(list) != 1 || !list[0].Busy || list[0].PID != p.PID() || list[0].Dir != w.workspace {
		t.Errorf("got %+v", list)
	}
	cancel() // one call leaves the queue
	wantCode(t, <-gone, proto.Canceled)
	must(t, os.WriteFile(filepath.Join(w.workspace, "go"), nil, 0o644))
	w.wait(p, &first)
	seen := map[string]bool{}
	for range 10 {
		seen[<-results] = true
	}
	if len(seen) != 10 || !seen["10\n"] {
		t.Errorf("calls did not take turns: %v", seen)
	}
}

func TestShellKill(t *testing.T) {
	w := newWorld(t, false)
	w.run(wire.Command{Shell: "s", Text: "x=1; sleep 1111 & setsid sleep 1112 & true"})
	var o collected
	p := w.start(wire.Command{Shell: "s", Text: "echo up; sleep 1113"}, &o)
	o.until(t, proto.Stdout, "up")
	must(t, p.Kill(short(t)))
	if r := w.wait(p, &o); r.Code != 137 || !r.ShellEnded || r.stdout != "up\n" {
		t.Errorf("got %+v", r)
	}
	if left := w.alive("sleep 111"); left != "" {
		t.Errorf("left:\n%s", left)
	}
	var next collected
	q := w.start(wire.Command{Shell: "s", Text: "echo ${x-fresh}"}, &next)
	if r := w.wait(q, &next); r.stdout != "fresh\n" || !q.Fresh() {
		t.Errorf("got %+v", r)
	}
}

// TestShellSignal checks that a signal goes to the shell's command, and that the shell continues.
func TestShellSignal(t *testing.T) {
	w := newWorld(t, false)
	var o collected
	p := w.start(wire.Command{Shell: "s", Text: "x=1; echo up; sleep 1111; echo $?"}, &o)
	o.until(t, proto.Stdout, "up")
	eventually(t, "sleep runs", func() bool { return len(w.count("sleep")) > 0 })
	must(t, p.Signal(short(t), syscall.SIGTERM))
	if r := w.wait(p, &o); r.stdout != "up\n143\n" || r.ShellEnded {
		t.Errorf("got %+v", r)
	}
	if r := w.run(wire.Command{Shell: "s", Text: "echo $x"}); r.stdout != "1\n" {
		t.Errorf("got %+v", r)
	}
}

func TestShellUsers(t *testing.T) {
	w := newWorld(t, false)
	w.run(wire.Command{Shell: "s", Text: "true"})
	_, err := w.Start(short(t), wire.Command{Shell: "s", Text: "id -u", User: "root"},
		func(proto.Stream, int64, []byte) {})
	wantCode(t, err, proto.Conflict)
	if r := w.run(wire.Command{Shell: "r", Text: "id -u", User: "root"}); r.stdout != "0\n" {
		t.Errorf("got %+v", r)
	}
	_, err = w.Start(short(t), wire.Command{Shell: "s", Argv: []string{"true"}}, func(proto.Stream, int64, []byte) {})
	wantCode(t, err, proto.InvalidArgument)
}

// TestShellFilesAreItsUsers checks that other users of the container cannot use a shell's files and FIFOs. The files
// contain secrets and the text, and the FIFOs carry the output.
func TestShellFilesAreItsUsers(t *testing.T) {
	w := newWorld(t, false)
	for _, user := range []string{"user", "root"} {
		r := w.run(wire.Command{Shell: "s" + user, User: user,
			Text: `stat -L -c '%a %u' /proc/self/fd/1 "${__berth_call}.env" "${__berth_call}.text"`})
		want := map[string]string{"user": "600 1000 400 1000 400 1000", "root": "600 0 400 0 400 0"}[user]
		if got := strings.Join(strings.Fields(r.stdout), " "); got != want {
			t.Errorf("%s: %q %q", user, r.stdout, r.stderr)
		}
	}
}

// TestShellWithoutRoom checks that a call is refused when there is no room for its files, and that the shell
// continues. A refused call must set no variables in the shell.
func TestShellWithoutRoom(t *testing.T) {
	tiny := inMemory(t, "size=256k")
	w := newWorld(t, false)
	ask := func(foo string) wire.Command {
		return wire.Command{Text: "echo $FOO" + strings.Repeat(" ", 8<<10), Shell: "s", Env: []string{"FOO=" + foo}}
	}
	if r := w.run(ask("1")); r.stdout != "1\n" {
		t.Fatalf("%+v", r)
	}
	full := filepath.Join(w.dir, "full")
	if r := w.run(wire.Command{User: "root", Text: "cat /dev/zero >" + full}); r.Code == 0 {
		t.Fatalf("%s has no end: %+v", tiny, r)
	}
	_, err := w.Start(short(t), ask("2"), func(proto.Stream, int64, []byte) {})
	if text := wantCode(t, err, proto.QuotaExceeded); !strings.Contains(text, tiny) {
		t.Errorf("%q does not say where there is no room", text)
	}
	if r := w.bash("rm " + full); r.Code == 0 {
		t.Error("a user removed root's file")
	}
	must(t, os.Remove(full))
	if r := w.run(ask("2")); r.stdout != "2\n" {
		t.Errorf("with room again: %+v", r)
	}
}

// TestShellEnvironmentOfARefusedCall checks that a call sets no variables if it is refused after its environment was
// written.
func TestShellEnvironmentOfARefusedCall(t *testing.T) {
	w := newWorld(t, false)
	ask := func(id, foo string) wire.Command {
		return wire.Command{Text: "echo $FOO", Shell: "s", ID: id, Keep: 1 << 10, Env: []string{"FOO=" + foo}}
	}
	if r := w.run(ask("a", "1")); r.stdout != "1\n" {
		t.Fatalf("%+v", r)
	}
	_, err := w.Start(short(t), ask("a", "2"), func(proto.Stream, int64, []byte) {})
	wantCode(t, err, proto.AlreadyExists)
	if r := w.run(ask("b", "2")); r.stdout != "2\n" {
		t.Errorf("%+v", r)
	}
}

package pid1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/guest/wire"
	"berth/proto"
)

// withAccounts gives the guest of w lists of users and groups of its own.
func withAccounts(t *testing.T, w *world) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	for name, text := range map[string]string{
		"passwd": "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n" +
			"alice:x:1001:1001::/home/alice:/bin/zsh\ntoor:x:0:0::/root:/bin/sh\n",
		"group": "root:x:0:\nuser:x:1000:\nalice:x:1001:\nteam:x:4000:user,alice\n",
	} {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o644))
		if r := w.run(wire.Command{User: "root", Text: "mount --bind " + path + " /etc/" + name}); r.Code != 0 {
			t.Fatal(r.stderr)
		}
	}
}

// TestCommandsOfAnyUser checks the rights and the environment of commands of users of the image, that they get a
// working directory and an output directory of their own, and that they end with their processes.
func TestCommandsOfAnyUser(t *testing.T) {
	w := newWorld(t, false)
	withAccounts(t, w)
	const show = `echo $(id -u) $(id -g) $(id -G) $HOME $USER $SHELL; pwd; stat -c "%u %g" "$OUT"; : >"$OUT/file"`
	for n, k := range []struct{ user, want string }{
		{"alice", "1001 1001 1001 4000 /home/alice alice /bin/zsh 1001 1001"},
		{"alice:user", "1001 1000 1000 /home/alice alice /bin/zsh 1001 1000"},
		{"4242:77", "4242 77 77 / 4242 /bin/bash 4242 77"},
		{"toor", "0 0 0 /root toor /bin/sh 0 0"},
		{"0:77", "0 77 77 /root root /bin/bash 0 77"},
		{"user", "1000 1000 1000 4000"},
		{"1000", "1000 1000 1000 4000"},
		{"root", "0 0 0 /root root /bin/bash 0 0"},
	} {
		for range 4 { // also by a zygote
			out := filepath.Join(w.workspace, "job", ".outputs", string(rune('a'+n)))
			r := w.run(wire.Command{User: k.user, Text: show, Dir: "job", Output: out, Env: []string{"OUT=" + out}})
			got := strings.Join(strings.Fields(strings.Replace(r.stdout, w.workspace+"/job", "", 1)), " ")
			if r.Code != 0 || !strings.HasPrefix(got, k.want) {
				t.Errorf("%s: %d %q %s, want %q", k.user, r.Code, got, r.stderr, k.want)
			}
		}
	}
	r := w.run(wire.Command{User: "alice", ID: "exec_a", Text: "(sleep 1000 & sleep 1000 &) >/dev/null 2>&1", Dir: "/"})
	if r.Leftover != 2 {
		t.Errorf("%d processes of another user are known to be left, want 2", r.Leftover)
	}
	out := filepath.Join(w.workspace, "job", ".outputs", "empty")
	if r := w.run(wire.Command{User: "alice", Text: "true", Output: out}); !r.NoOutput {
		t.Error("an empty output directory of another user stays")
	}
	_, err := w.Start(short(t), wire.Command{User: "bob", Text: "true"}, nil)
	if proto.CodeOf(err) != proto.InvalidArgument || !strings.Contains(err.Error(), "alice") {
		t.Errorf("%v", err)
	}
}

// TestFilesOfAnyUser checks that file calls have the rights of the user that they name, with its groups, and that a
// second name of root gets no more than root: a link of another user does not lead it.
func TestFilesOfAnyUser(t *testing.T) {
	w := newWorld(t, false)
	withAccounts(t, w)
	w.run(wire.Command{User: "root", Text: "mkdir d; cd d; echo team >team; chown 0:4000 team; chmod 640 team; " +
		"echo own >own; chown 1001 own; chmod 600 own; echo secret >secret; chmod 600 secret; chmod 777 ."})
	w.run(wire.Command{Text: "ln -s secret d/link"})
	for _, k := range []struct {
		user, file string
		code       proto.Code
	}{
		{"alice", "team", ""}, {"user", "team", ""}, {"1001", "own", ""}, {"toor", "secret", ""}, {"0", "secret", ""},
		{"4242:team", "team", ""},
		{"alice:77", "team", proto.PermissionDenied}, {"4242", "team", proto.PermissionDenied},
		{"user", "own", proto.PermissionDenied}, {"alice", "secret", proto.PermissionDenied},
		{"bob", "team", proto.InvalidArgument},
	} {
		f, _, err := w.Read(short(t), k.user, "d/"+k.file, 0, -1)
		if proto.CodeOf(err) != k.code {
			t.Errorf("%s reads %s: %v, want %q", k.user, k.file, err, k.code)
		}
		if err == nil {
			_ = f.Close()
		}
	}
	for user, code := range map[string]proto.Code{"root": proto.PermissionDenied, "toor": proto.PermissionDenied,
		"0": proto.PermissionDenied, "0:77": proto.PermissionDenied} {
		if _, _, err := w.ReadFollowing(short(t), user, w.workspace+"/d/link"); proto.CodeOf(err) != code {
			t.Errorf("%s follows a link of the user: %v", user, err)
		}
	}
	fi, err := w.Write(short(t), "alice:team", "d/new", wire.WriteOptions{}, strings.NewReader("x"))
	if err != nil || fi.UID != 1001 || fi.GID != 4000 {
		t.Errorf("%+v %v", fi, err)
	}
}

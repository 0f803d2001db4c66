package pid1

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/guest/wire"
	"berth/proto"
)

// TestNoLinks checks that no link redirects the daemon when it works as root in the user's directories, whether the
// link is at the end of a path or before it.
func TestNoLinks(t *testing.T) {
	w := newWorld(t, false)
	ctx := short(t)
	outside := filepath.Join(w.dir, "private")
	must(t, os.Mkdir(outside, 0o700))
	must(t, os.WriteFile(filepath.Join(outside, "file"), []byte("of root"), 0o600))
	w.put("job/file", "mine")
	must(t, os.Symlink(outside, filepath.Join(w.workspace, "dir")))
	must(t, os.Symlink(filepath.Join(outside, "file"), filepath.Join(w.workspace, "job/link")))
	must(t, os.Symlink(outside, filepath.Join(w.workspace, "job/sub")))

	_, _, err := w.Walk(ctx, "root", "dir", 10)
	wantCode(t, err, proto.InvalidArgument)
	_, err = w.TarNoLinks(ctx, "root", "dir")
	wantCode(t, err, proto.InvalidArgument)
	for _, path := range []string{"dir/file", "job/link", "job/sub/file"} {
		_, _, err := w.ReadNoLinks(ctx, "root", path)
		wantCode(t, err, proto.InvalidArgument)
		sums, err := w.Hash(ctx, "root", []string{path, "job/file"})
		if must(t, err); sums[path] != "" || sums["job/file"] == "" {
			t.Errorf("%s: %v", path, sums)
		}
	}
	for _, path := range []string{"dir/file", "job/sub/new"} {
		_, err := w.Write(ctx, "root", path, wire.WriteOptions{NoLinks: true}, strings.NewReader("x"))
		wantCode(t, err, proto.InvalidArgument)
	}
	if _, err := w.Write(ctx, "root", "job/link", wire.WriteOptions{NoLinks: true}, strings.NewReader(
		"x")); err != nil ||
		w.get("job/link") != "x" {
		t.Errorf("a link at the end was not replaced: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(outside, "file")); err != nil || string(b) != "of root" {
		t.Errorf("root's file holds %q, %v", b, err)
	}
	if files, _, err := w.Walk(ctx, "root", "job", 10); err != nil || len(files) != 3 {
		t.Errorf("%+v %v", files, err)
	}
}

// TestFollowedLink checks which links a read for a job follows: those that stay in the workspace, step by step, and for
// root only its own.
func TestFollowedLink(t *testing.T) {
	w := newWorld(t, true)
	in := func(name string) string { return filepath.Join(w.workspace, name) }
	outside := filepath.Join(w.dir, "private")
	must(t, os.Mkdir(outside, 0o755))
	must(t, os.WriteFile(filepath.Join(outside, "file"), []byte("private"), 0o644))
	w.run(wire.Command{User: "user", Text: "mkdir -p a/b; printf text >a/b/file; printf x >a/closed; chmod 0 a/closed"})
	w.run(wire.Command{User: "root", Text: "printf root >of-root; chmod 600 of-root; ln -s a/b/file by-root"})
	links := map[string]string{
		"near": "b/file", "absolute": in("a/b/file"), "up": "../a/b/../../a/./b//file", "over": in("a") + "/../../" +
			filepath.Base(w.workspace) + "/a/b/file", "chain": "dir/file", "dir": "b", "to-dir": "b", "self": "self",
		"none": "nothing", "slash": "b/file/", "out": filepath.Join(outside, "file"), "out-up": "../../private/file",
		"root": "/", "to-closed": "closed", "to-fifo": "fifo", "passwd": "/proc/self/root/etc/passwd",
		"to-root": "../of-root",
	}
	script := "cd a; mkfifo fifo"
	for name, target := range links {
		script += "; ln -s " + target + " " + name
	}
	w.run(wire.Command{User: "user", Text: script})
	for path, want := range map[string]any{
		"a/b/file": "text", "a/near": "text", "a/absolute": "text", "a/up": "text", "a/over": "text", "a/chain": "text",
		"by-root": "text", "a/dir/file": proto.InvalidArgument, "a/to-dir": proto.InvalidArgument,
		"a/self": proto.InvalidArgument, "a/none": proto.NotFound, "a/slash": proto.InvalidArgument,
		"a/out": proto.InvalidArgument, "a/out-up": proto.InvalidArgument, "a/root": proto.InvalidArgument,
		"a/to-closed": proto.PermissionDenied, "a/to-fifo": proto.InvalidArgument, "a/passwd": proto.InvalidArgument,
		"a/to-root": proto.PermissionDenied, "../private/file": proto.InvalidArgument, ".": proto.InvalidArgument,
	} {
		r, _, err := w.ReadFollowing(short(t), "user", path)
		if code, fails := want.(proto.Code); fails {
			if proto.CodeOf(err) != code {
				t.Errorf("%s: %v, want %s", path, err, code)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		text, err := io.ReadAll(r)
		_ = r.Close()
		if err != nil || string(text) != want {
			t.Errorf("%s: %q %v", path, text, err)
		}
	}
	r, _, err := w.ReadFollowing(short(t), "root", "by-root")
	if must(t, err); r != nil {
		_ = r.Close()
	}
	for _, path := range []string{"a/near", "a/to-root"} {
		_, _, err := w.ReadFollowing(short(t), "root", path)
		wantCode(t, err, proto.PermissionDenied)
	}
}

// TestRootOutputNotBehindALink checks that a command of root gets its output directory in the job's own directory, or
// none.
func TestRootOutputNotBehindALink(t *testing.T) {
	w := newWorld(t, false)
	outside := filepath.Join(w.dir, "private")
	must(t, os.Mkdir(outside, 0o700))
	w.put("job/file", "mine")
	must(t, os.Symlink(outside, filepath.Join(w.workspace, "away")))
	must(t, os.Symlink(outside, filepath.Join(w.workspace, "job/outputs")))
	for _, out := range []string{"away/outputs/exec_1", "job/outputs/exec_1"} {
		_, err := w.Start(short(t), wire.Command{Argv: []string{"/bin/true"}, Output: out, User: "root"},
			func(proto.Stream, int64, []byte) {})
		wantCode(t, err, proto.InvalidArgument)
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) > 0 {
		t.Errorf("root made %v %v", list, err)
	}
	must(t, os.Remove(filepath.Join(w.workspace, "job/outputs")))
	p, err := w.Start(short(t), wire.Command{Argv: []string{"touch", "job/outputs/exec_2/made"},
		Output: "job/outputs/exec_2", User: "root"}, func(proto.Stream, int64, []byte) {})
	must(t, err)
	if x, err := p.Wait(short(t)); err != nil || x.Code != 0 {
		t.Errorf("%+v %v", x, err)
	}
	if list, err := os.ReadDir(filepath.Join(w.workspace, "job/outputs")); err != nil || len(list) != 1 {
		t.Errorf("%v %v", list, err)
	}
}

package pid1

import (
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

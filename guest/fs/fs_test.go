package fs

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// TestRemoveDeep removes a very deep tree without renaming anything. It also checks that a removal does not go on above
// a directory that was moved in the meantime.
func TestRemoveDeep(t *testing.T) {
	dir := t.TempDir()
	top, err := os.Open(dir)
	must(t, err)
	defer top.Close()
	if out, err := exec.Command("python3", "-c", `
import os, sys
os.chdir(sys.argv[1])
os.mkdir("tree"); os.chdir("tree")
for i in range(3000):
    open("file", "w").close(); os.mkdir("a"); os.mkdir("empty"); os.symlink("/etc", "link")
    os.chdir("a")`, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	must(t, removeDeep(int(top.Fd()), "tree"))
	if _, err := os.Lstat(filepath.Join(dir, "tree")); !os.IsNotExist(err) {
		t.Errorf("it is there: %v", err)
	}
	must(t, os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o755))
	c, err := os.Open(filepath.Join(dir, "a", "b"))
	must(t, err)
	defer c.Close()
	var st unix.Stat_t
	must(t, unix.Stat(dir, &st))
	if _, err := ascend(c, level{st.Dev, st.Ino, "a"}); err == nil {
		t.Error("it went on above a tree that was moved")
	}
}

// TestManyAttributesInAList checks that no message of a list has more attributes than the daemon accepts.
func TestManyAttributesInAList(t *testing.T) {
	many := map[string]string{}
	for i := range 2000 {
		many[fmt.Sprintf("%03x", i)] = ""
	}
	files := make([]proto.FileInfo, 400)
	for i := range files {
		files[i] = proto.FileInfo{Path: "/x", Attributes: many}
	}
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		defer theirs.Close()
		_ = (&handler{conn: wire.NewConn(theirs, false)}).list(files, wire.Listing{}, nil)
	}()
	conn, got := wire.NewConn(ours, false), 0
	for more := true; more; {
		var l wire.Listing
		must(t, conn.ReadReply(&l))
		got, more = got+len(l.Files), l.More
	}
	if got != len(files) {
		t.Errorf("%d files", got)
	}
}

// FuzzPath checks that an accepted path is absolute, clean and without NUL bytes.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"", ".", "..", "/", "a/../../b", "//x//", "/workspace/../etc", "a\x00b", "\xff/..",
		strings.Repeat("../", 100), "a/./b/"} {
		f.Add([]byte(s))
	}
	s := NewFS("/workspace", user.NewUsers(1000, 1000), nil)
	f.Fuzz(func(t *testing.T, raw []byte) {
		path, err := s.pathOf(wire.OpStat, raw)
		if err != nil {
			return
		}
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.Contains(path, "\x00") ||
			strings.Contains(path+"/", "/../") {
			t.Errorf("%q became %q", raw, path)
		}
	})
}

// FuzzFileRequest checks that the limit of a list stays in its bounds for every request that can be decoded.
func FuzzFileRequest(f *testing.F) {
	for _, s := range []string{`{}`, `{"op":"stat","path":"Lw=="}`,
		`{"op":"edit","path":"eA==","edit":{"command":"view","view_range":[1,-1]}}`,
		`{"op":"hash","paths":["eA==",""]}`, `{"op":"untar","untar":{"bytes":-1}}`,
		`{"op":"exec","command":{"argv":[""]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var req wire.Request
		if wire.Decode(raw, &req) != nil {
			return
		}
		if n := clamp(req.Max, wire.MaxWalk); n < 0 || n > wire.MaxWalk {
			t.Errorf("%d entries", n)
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package pid1

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
)

// What a killed or abandoned child has used is told with its command.
func TestOrphansCount(t *testing.T) {
	w := newWorld(t, false)
	const work = `python3 -c 'x = bytearray(64 << 20); sum(range(8000000))'`
	const gone = `; until [ -s done ]; do sleep 0.01; done; while [ -e /proc/$(cat done) ]; do sleep 0.01; done; rm done`
	for name, text := range map[string]string{
		"ended before its command": `(setsid ` + work + `; echo $BASHPID >done) & disown`,
		"its parent ended first":   `sh -c '(setsid sh -c "$0; echo \$\$ >done") & ' "$W"`,
	} {
		r := w.run(wire.Command{Text: text + gone, Env: []string{"W=" + work}})
		if r.Code != 0 || r.CPU < 50*time.Millisecond || r.PeakBytes < 64<<20 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := w.run(wire.Command{Text: "true"}); r.CPU > 50*time.Millisecond {
		t.Errorf("a command that did nothing is told to have used what came before it: %+v", r)
	}
}

// A tree is removed where nothing can be renamed, however deep it is, and not by way of what was moved meanwhile.
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

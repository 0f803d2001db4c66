package pid1

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"berth/guest/wire"
)

// memoryCgroup creates a cgroup with a limit, in the hierarchy that has the memory controller on this machine.
func memoryCgroup(t *testing.T, limit int) string {
	t.Helper()
	for _, v := range []struct{ root, file string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"},
	} {
		dir := filepath.Join(v.root, fmt.Sprintf("berth-guest-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { eventually(t, "the cgroup is empty", func() bool { return os.Remove(dir) == nil }) })
		if os.WriteFile(filepath.Join(dir, v.file), fmt.Append(nil, limit), 0) == nil {
			return dir
		}
	}
	t.Fatal("this test needs root and a memory cgroup, of version 1 or 2, that it can make children of")
	return ""
}

// TestOutOfMemory checks that the guest reports a lack of memory only for commands that the kernel killed for it.
func TestOutOfMemory(t *testing.T) {
	w := newWorld(t, false, cgroup+"="+memoryCgroup(t, 96<<20))
	const bomb = "python3 -c 'x = bytearray(400 << 20)'"
	for _, c := range []struct {
		cmd  wire.Command
		code int
		oom  bool
	}{
		{wire.Command{Text: bomb}, 137, true},
		{wire.Command{Text: bomb + "; exit $?"}, 137, true},
		{wire.Command{Text: "kill -9 $$"}, 137, false},
		{wire.Command{Text: bomb + "; exit 3"}, 3, false},
		{wire.Command{Text: "kill -9 $$"}, 137, false},
		{wire.Command{Text: bomb, Shell: "s"}, 137, true},
		{wire.Command{Text: "echo alive", Shell: "s"}, 0, false},
	} {
		if r := w.run(c.cmd); r.Code != c.code || r.OutOfMemory != c.oom {
			t.Errorf("%+v: got %+v", c.cmd, r)
		}
	}
}

package user

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEnsureUser(t *testing.T) {
	for name, c := range map[string]struct{ passwd, group, wantPasswd, wantGroup, home string }{
		"bare image": {"", "", "user:x:1000:1000::/home/user:/bin/sh\n", "user:x:1000:\n", "/home/user"},
		"no line end": {"root:x:0:0:root:/root:/bin/sh", "root:x:0:",
			"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n", "root:x:0:\nuser:x:1000:\n",
			"/home/user"},
		"there": {"node:x:1000:1000::/home/node:/bin/bash\n", "node:x:1000:\n",
			"node:x:1000:1000::/home/node:/bin/bash\n", "node:x:1000:\n", "/home/node"},
		"name taken": {"user:x:7:7::/u:/bin/sh\n", "user:x:7:\n",
			"user:x:7:7::/u:/bin/sh\nuser1000:x:1000:1000::/home/user1000:/bin/sh\n", "user:x:7:\nuser1000:x:1000:\n",
			"/home/user1000"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			must(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
			if c.passwd != "" {
				must(t, os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(c.passwd), 0o644))
				must(t, os.WriteFile(filepath.Join(root, "etc/group"), []byte(c.group), 0o644))
			}
			for range 2 { // a second time changes nothing
				must(t, EnsureUser(root, 1000, 1000))
				passwd, _ := os.ReadFile(filepath.Join(root, "etc/passwd"))
				group, _ := os.ReadFile(filepath.Join(root, "etc/group"))
				if string(passwd) != c.wantPasswd || string(group) != c.wantGroup {
					t.Errorf("got %q and %q", passwd, group)
				}
				if fi, err := os.Stat(filepath.Join(root, c.home)); err != nil || !fi.IsDir() {
					t.Errorf("no home: %v", err)
				}
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

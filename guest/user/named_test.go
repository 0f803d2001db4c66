package user

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/proto"
)

const (
	passwd = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n" +
		"alice:x:1001:1001:Alice:/home/alice:/bin/zsh\ntoor:x:0:0::/r:/bin/sh\n# comment\n\nodd:x:7:7::relative:relative\n" +
		"high:x:4294967295:0::/:/bin/sh\nlow:x:-1:0::/:/bin/sh\n1002:x:1003:1003::/:/bin/sh\n"
	group = "root:x:0:\nuser:x:1000:\nteam:x:4000:user,alice\nalice:x:1001:\naudio:x:29:alice\nagain:x:29:alice\n"
)

// image makes the lists of an image.
func image(t testing.TB, passwd, group string) string {
	t.Helper()
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, "etc"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(passwd), 0o644))
	must(t, os.WriteFile(filepath.Join(root, "etc/group"), []byte(group), 0o644))
	return root
}

func TestUsersOfTheImage(t *testing.T) {
	root := image(t, passwd, group)
	for name, want := range map[string]User{
		"alice":      {Name: "alice", UID: 1001, GID: 1001, Groups: []int{29, 4000}, Home: "/home/alice", Shell: "/bin/zsh"},
		"1001":       {Name: "alice", UID: 1001, GID: 1001, Groups: []int{29, 4000}, Home: "/home/alice", Shell: "/bin/zsh"},
		"alice:team": {Name: "alice", UID: 1001, GID: 4000, Home: "/home/alice", Shell: "/bin/zsh"},
		"alice:77":   {Name: "alice", UID: 1001, GID: 77, Home: "/home/alice", Shell: "/bin/zsh"},
		"alice:":     {Name: "alice", UID: 1001, GID: 1001, Groups: []int{29, 4000}, Home: "/home/alice", Shell: "/bin/zsh"},
		"4242":       {Name: "4242", UID: 4242, Home: "/"},
		"4242:team":  {Name: "4242", UID: 4242, GID: 4000, Home: "/"},
		"toor":       {Name: "toor", Home: "/r", Shell: "/bin/sh"},
		"0":          {Name: "root", Home: "/root", Shell: "/bin/bash"},
		"odd":        {Name: "odd", UID: 7, GID: 7, Home: "/"},
		"1002":       {Name: "1002", UID: 1002, Home: "/"}, // a number is never a name
	} {
		got, err := InImage(root, name)
		if err != nil || got.Rights() != want.Rights() || got.Name != want.Name || got.Home != want.Home ||
			got.Shell != want.Shell || got.IsRoot() != (want.UID == 0) {
			t.Errorf("%s: %+v %v, want %+v", name, got, err, want)
		}
	}
	for name, text := range map[string]string{
		"bob":                  `unknown user "bob"; the container's /etc/passwd has root, user, alice, toor`,
		"bob:team":             `unknown user "bob"`,
		"alice:none":           `unknown group "none"; the container's /etc/group has root, user, team`,
		"high":                 "from 0 to 65535", // the kernel would take it as "leave the user unchanged"
		"low":                  "from 0 to 65535",
		"65536":                "from 0 to 65535",
		"1:65536":              "from 0 to 65535",
		"-1":                   "from 0 to 65535",
		"99999999999999999999": "from 0 to 65535",
	} {
		if _, err := InImage(root, name); proto.CodeOf(err) != proto.InvalidArgument || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHostileLists puts into the place of the lists what the root of a container may put there. No lookup may wait, and
// no answer may grow.
func TestHostileLists(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"FIFO":      func(path string) error { return unix.Mkfifo(path, 0o644) },
		"device":    func(path string) error { return os.Symlink("/dev/zero", path) },
		"terminal":  func(path string) error { return os.Symlink("/dev/tty", path) },
		"of kernel": func(path string) error { return os.Symlink("/proc/self/environ", path) },
		"loop":      func(path string) error { return os.Symlink(path, path) },
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"one line":  func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("a", 3<<20)), 0o644) },
		"binary": func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("\x00\xff\x1b[2J:\n", 1<<10)), 0o644)
		},
		"many": func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat(strings.Repeat("n", 60)+":x:1:1::/:/\n", 1<<16)), 0o644)
		},
		"missing": func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			root := image(t, passwd, group)
			for _, list := range []string{"passwd", "group"} {
				path := filepath.Join(root, "etc", list)
				must(t, os.Remove(path))
				must(t, put(path))
			}
			_, err := InImage(root, "alice")
			if proto.CodeOf(err) != proto.InvalidArgument || len(err.Error()) > 2000 ||
				strings.ContainsAny(err.Error(), "\x00\x1b") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestOwnGroups checks that the ordinary user has the groups of the list as it is now, and none of a broken one.
func TestOwnGroups(t *testing.T) {
	root := image(t, passwd, group)
	ids := Users{Default: User{Name: "user", UID: 1000, GID: 1000, Self: true}, root: root, setGroups: true, others: true,
		own: &ownGroups{}}
	check := func(want ...int) {
		t.Helper()
		for range 2 { // the second time from memory
			if who, err := ids.Named(proto.UserDefault); err != nil || !slices.Equal(who.Groups, want) {
				t.Errorf("%v %v, want %v", who.Groups, err, want)
			}
		}
	}
	check(4000)
	list := filepath.Join(root, "etc/group")
	must(t, os.WriteFile(list, []byte(group+"docker:x:999:user\n"), 0o644))
	check(999, 4000)
	must(t, os.WriteFile(list, []byte("broken"), 0o644))
	check()
	must(t, os.Remove(list))
	check()
}

// TestGuestThatIsNotRoot checks that a guest without the rights to switch says so.
func TestGuestThatIsNotRoot(t *testing.T) {
	ids := Users{Default: User{Name: "user", UID: 1000, GID: 1000, Self: true}, root: image(t, passwd, group),
		own: &ownGroups{}}
	for _, name := range []string{"user", "1000:1000"} {
		if who, err := ids.Named(name); err != nil || who.UID != 1000 {
			t.Errorf("%s: %+v %v", name, who, err)
		}
	}
	if _, err := ids.Named("toor"); proto.CodeOf(err) != proto.Unsupported {
		t.Errorf("%v", err)
	}
}

func TestGroupsAreBounded(t *testing.T) {
	var list strings.Builder
	for n := range maxGroups + 1 {
		fmt.Fprintf(&list, "g%d:x:%d:alice\n", n, n+1)
	}
	if _, err := InImage(image(t, passwd, list.String()), "alice"); proto.CodeOf(err) != proto.InvalidArgument {
		t.Errorf("%v", err)
	}
}

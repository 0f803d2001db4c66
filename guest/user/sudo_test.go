package user

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAllowSudo checks the file that lets the user call sudo, also over what earlier code of the container has left.
func TestAllowSudo(t *testing.T) {
	for name, put := range map[string]func(dir string) error{
		"no sudo yet": func(string) error { return nil },
		"from before": func(dir string) error { return AllowSudo(filepath.Dir(filepath.Dir(dir)), 7) },
		"FIFO":        func(dir string) error { return unix.Mkfifo(filepath.Join(dir, "berth"), 0o644) },
		"half":        func(dir string) error { return os.Symlink("/dev/null", filepath.Join(dir, "berth.new")) },
	} {
		t.Run(name, func(t *testing.T) {
			root := image(t, passwd, group)
			dir := filepath.Join(root, "etc/sudoers.d")
			if name != "no sudo yet" {
				must(t, os.Mkdir(dir, 0o755))
			}
			must(t, put(dir))
			must(t, AllowSudo(root, 1000))
			file := filepath.Join(dir, "berth")
			text, err := os.ReadFile(file)
			must(t, err)
			fi, err := os.Lstat(file)
			must(t, err)
			if !strings.HasSuffix(string(text), "\n#1000 ALL=(ALL:ALL) NOPASSWD: ALL\n") || !fi.Mode().IsRegular() ||
				fi.Mode().Perm()&0o222 != 0 {
				t.Errorf("%v %s", fi.Mode(), text)
			}
		})
	}
}

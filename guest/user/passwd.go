package user

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// PasswdEntry is one line of a passwd file.
type PasswdEntry struct {
	name string
	home string
}

// Find looks uid up in a passwd file.
func Find(passwd string, uid int) (PasswdEntry, bool) {
	var found PasswdEntry
	ok := eachLine(passwd, func(f []string) bool {
		if len(f) < 6 || f[2] != strconv.Itoa(uid) {
			return false
		}
		found = PasswdEntry{name: f[0], home: f[5]}
		return true
	})
	return found, ok
}

// eachLine calls fn with the fields of each line until it returns true.
func eachLine(file string, fn func(fields []string) bool) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		if fn(strings.Split(s.Text(), ":")) {
			return true
		}
	}
	return false
}

// EnsureUser adds the user and group with the given IDs to the image below root if the image lacks them, and makes a
// home directory. The user is named "user", or "user" followed by the ID if that name is taken. Existing entries do
// not change.
func EnsureUser(root string, uid, gid int) error {
	passwd, group := filepath.Join(root, "etc/passwd"), filepath.Join(root, "etc/group")
	if err := os.MkdirAll(filepath.Dir(passwd), 0o755); err != nil {
		return err
	}
	if !hasID(group, gid) {
		if err := appendLine(group, fmt.Sprintf("%s:x:%d:", freeName(group, gid), gid)); err != nil {
			return err
		}
	}
	e, ok := Find(passwd, uid)
	if !ok {
		name := freeName(passwd, uid)
		e = PasswdEntry{name: name, home: "/home/" + name}
		line := fmt.Sprintf("%s:x:%d:%d::%s:%s", name, uid, gid, e.home, shellIn(root))
		if err := appendLine(passwd, line); err != nil {
			return err
		}
	}
	return makeHome(filepath.Join(root, e.home), uid, gid)
}

// makeHome makes a home directory if there is none. It runs before any code of the container runs, so no process can
// put a link at the path.
func makeHome(dir string, uid, gid int) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chown(dir, uid, gid)
}

// hasID reports whether a passwd or group file lists id.
func hasID(file string, id int) bool {
	return eachLine(file, func(f []string) bool { return len(f) > 2 && f[2] == strconv.Itoa(id) })
}

// freeName returns "user", or a name with the ID in it if "user" is taken.
func freeName(file string, id int) string {
	if eachLine(file, func(f []string) bool { return f[0] == "user" }) {
		return fmt.Sprintf("user%d", id)
	}
	return "user"
}

func shellIn(root string) string {
	if _, err := os.Stat(filepath.Join(root, "bin/bash")); err == nil {
		return "/bin/bash"
	}
	return "/bin/sh"
}

// appendLine adds a line to a file. The file's last line may lack a newline.
func appendLine(file, line string) error {
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		line = "\n" + line
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(line + "\n")
	return err
}

package pid1

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"berth/guest/user"
	"berth/guest/wire"
)

// checkJobDir looks at what the command's job holds. Its output directory goes if nothing is in it: commands of one
// job would become slower and slower if each left a directory behind. While some process of the command goes on it
// may yet write there.
func (e *execution) checkJobDir(x *wire.Exit) {
	empty := ""
	if x.Leftover == 0 && !e.shellIsIn(e.output) {
		empty = e.output
	}
	if e.job != "" && e.kept == nil { // what is kept may be told when all is different
		x.Seen, empty = e.s.fs.Fingerprint(e.job, empty)
	}
	if empty != "" {
		e.removeOutputDir()
	}
}

// shellIsIn reports whether a shell that lives on has its working directory in dir, or may have.
func (e *execution) shellIsIn(dir string) bool {
	if e.group == nil || !e.group.shell {
		return false
	}
	at, err := workingDirOf(e.id, e.group.pid)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	return at == dir || strings.HasPrefix(at, dir+"/")
}

// workingDirOf is where a process of a user is. The user may look at it, and root without CAP_SYS_PTRACE may not.
func workingDirOf(id user.User, pid int) (dir string, err error) {
	err = id.Do(func() error {
		dir, err = os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
		return err
	})
	return dir, err
}

// removeOutputDir removes the command's output directory if it is empty, under the rules of freshDir.
func (e *execution) removeOutputDir() {
	if e.output == "" {
		return
	}
	e.s.fs.RemoveEmptyDir(e.id, e.output)
}

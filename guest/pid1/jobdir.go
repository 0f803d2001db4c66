package pid1

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"berth/guest/user"
	"berth/guest/wire"
)

// checkJobDir reads the fingerprint of the command's job and removes the command's output directory if that is empty.
// Commands of a job would become slower and slower if each left a directory behind. The directory stays while a
// process of the command runs, since that may still write there.
func (e *execution) checkJobDir(x *wire.Exit) {
	empty := ""
	if x.Leftover == 0 && !e.shellIsIn(e.output) {
		empty = e.output
	}
	if e.job != "" && e.kept == nil { // the end of a kept command may be read later, when the job has changed
		x.Seen, empty = e.s.fs.Fingerprint(e.job, empty)
	}
	if empty != "" {
		e.removeOutputDir()
	}
}

// shellIsIn reports whether a running shell has its working directory in dir. It also reports true if that is
// unknown.
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

// workingDirOf returns the working directory of a user's process. It acts as the user, since root without
// CAP_SYS_PTRACE may not read it.
func workingDirOf(id user.User, pid int) (dir string, err error) {
	err = id.Do(func() error {
		dir, err = os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
		return err
	})
	return dir, err
}

// removeOutputDir removes the command's output directory if it is empty, under the same rules as FreshDir.
func (e *execution) removeOutputDir() {
	if e.output == "" {
		return
	}
	e.s.fs.RemoveEmptyDir(e.id, e.output)
}

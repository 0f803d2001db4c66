package pid1

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"berth/guest/wire"
	"berth/proto"
)

// A look at a job's directory at a command's end saves the daemon a walk of it, nearly always: commands that change
// no file are the most frequent ones. It must cost next to nothing, so in a directory with more than this the daemon
// walks.
const (
	sightFiles   = 100 // files and links
	sightEntries = 400 // all that directories hold
)

// sight is the gist of what dir holds, or "" where that would take long or cannot be told. On the way it removes the
// directory prune if that is empty, and returns it if that is still to be done.
func (s *Server) sight(dir, prune string) (gist, left string) {
	w := &walker{most: sightFiles, left: sightEntries, prune: prune}
	if err := s.ids.root.do(func() error { return w.from(s, dir) }); err != nil || w.truncated {
		return "", w.prune
	}
	return proto.Gist(dir, w.sorted()), w.prune
}

// lookBack looks at what the command's job holds. Its output directory goes if nothing is in it: commands of one
// job would become slower and slower if each left a directory behind. While some process of the command goes on it
// may yet write there.
func (e *execution) lookBack(x *wire.Exit) {
	empty := ""
	if x.Leftover == 0 && !e.standsIn(e.output) {
		empty = e.output
	}
	if e.job != "" && e.kept == nil { // what is kept may be told when all is different
		x.Seen, empty = e.s.sight(e.job, empty)
	}
	if empty != "" {
		e.removeOutputDir()
	}
}

// standsIn reports whether a shell that lives on has its working directory in dir, or may have.
func (e *execution) standsIn(dir string) bool {
	if e.o == nil || !e.o.shell {
		return false
	}
	at, err := workingDirOf(e.id, e.o.pid)
	if err != nil {
		return !isMissing(err)
	}
	return at == dir || strings.HasPrefix(at, dir+"/")
}

// workingDirOf is where a process of a user is. The user may look at it, and root without CAP_SYS_PTRACE may not.
func workingDirOf(id identity, pid int) (dir string, err error) {
	err = id.do(func() error {
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
	_ = e.id.do(func() error {
		if e.id.name != proto.UserRoot {
			return unix.Rmdir(e.output)
		}
		at, name, err := e.s.openParent(e.output)
		if err != nil {
			return err
		}
		defer unix.Close(at)
		return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	})
}

package pid1

import (
	"errors"
	"io/fs"
	"os"

	"berth/proto"
)

// sharedMemory is the directory of files that only this sandbox has.
const sharedMemory = "/dev/shm"

// idle answers whether the container could be stopped without a loss: no process runs but the guest, and nothing is
// kept in memory. It fails with Conflict if not.
func (k *caller) idle() error {
	s := k.s
	s.zygotes.Close() // they are processes, and start again when commands come
	defer s.zygotes.Reopen()
	return k.reply(nil, s.inUse())
}

// inUse returns an error if a process runs, or if there is state that only memory has.
func (s *Server) inUse() error {
	s.mu.Lock()
	shells := len(s.shells)
	s.mu.Unlock()
	used := proto.Errorf(proto.Conflict, "idle", "", "the container is in use")
	if shells+s.procs.Groups() > 0 || s.keeps.some() || !s.procs.Childless() {
		return used
	}
	s.scratch.remove()
	if left, err := os.ReadDir(sharedMemory); len(left) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return used
	}
	return nil
}

// some reports whether any command is kept.
func (ks *keptCommands) some() bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return len(ks.all) > 0
}

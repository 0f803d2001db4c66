package inside

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

// eventBytes is the size of an event, struct fanotify_event_metadata, and of an answer, struct fanotify_response.
const eventBytes, answerBytes = 24, 8

// serve answers the kernel until Close.
func (f *Files) serve() {
	buf := make([]byte, 64*eventBytes)
	for {
		n, err := f.events.Read(buf)
		if err != nil {
			return // closed
		}
		for b := buf[:n]; len(b) >= eventBytes; b = b[min(len(b), int(binary.NativeEndian.Uint32(b))):] {
			if fd := int32(binary.NativeEndian.Uint32(b[16:])); fd >= 0 {
				f.answer(int(fd))
			}
		}
	}
}

// answer writes the present figures to a file that a process is about to read, and lets that process go on.
func (f *Files) answer(fd int) {
	k, of, ok := f.find(fd)
	if ok {
		text := f.read(of.sandbox).text(of.at)
		_, err := unix.Pwrite(fd, text, 0)
		if err == nil {
			err = unix.Ftruncate(fd, int64(len(text)))
		}
		if err != nil {
			f.log.Warn("writing a container's figures", "sandbox", of.sandbox, "file", of.at, "err", err)
		}
	}
	var b [answerBytes]byte
	binary.NativeEndian.PutUint32(b[:], uint32(fd))
	binary.NativeEndian.PutUint32(b[4:], unix.FAN_ALLOW)
	if _, err := unix.Write(f.fd, b[:]); err != nil {
		f.log.Warn("allowing a read", "err", err)
	}
	if !ok || !f.pause(k, fd) {
		_ = unix.Close(fd)
	}
}

// find returns which file fd is. It does not find one that was written just now, for an earlier reader.
func (f *Files) find(fd int) (k key, of file, ok bool) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return k, of, false
	}
	k = key{st.Dev, st.Ino}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.written[k] != nil {
		return k, of, false
	}
	of, ok = f.known[k]
	return k, of, ok
}

// pause has the kernel allow reads of a file for a while. It keeps fd if it returns true.
func (f *Files) pause(k key, fd int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, still := f.known[k]; !still || f.mark(unix.FAN_MARK_REMOVE, fd, "") != nil {
		return false
	}
	p := &pause{fd: fd}
	p.timer = time.AfterFunc(fresh, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.written[k] == p {
			f.resume(k, true)
		}
	})
	f.written[k] = p
	return true
}

// resume ends the pause of a file, if it has one. Called with mu held.
func (f *Files) resume(k key, again bool) {
	p := f.written[k]
	if p == nil {
		return
	}
	delete(f.written, k)
	p.timer.Stop()
	if again {
		if err := f.mark(unix.FAN_MARK_ADD, p.fd, ""); err != nil {
			f.log.Warn("watching a file of limits again", "sandbox", f.known[k].sandbox, "err", err)
		}
	}
	_ = unix.Close(p.fd)
}

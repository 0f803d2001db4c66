package fs

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/fs/notify"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// Bounds of watches.
const (
	maxWatches  = 32      // at a time in one container
	maxWatched  = 8192    // directories of one watch
	maxUnsent   = 1 << 20 // bytes of events that a slow client has not read
	watchedDirs = unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_CREATE |
		unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
)

// errWatchOver ends the connection of a watch.
var errWatchOver = errors.New("the watch is over")

// watching counts the watches of this guest.
var watching atomic.Int32

// A watch follows a directory for a client.
type watch struct {
	id        user.User
	in        *notify.Instance
	top       string
	recursive bool
	entries   bool

	dirs    map[int32]string
	found   map[string]bool // entries that a scan has told, whose own event may follow
	movedIn uint32          // cookie of a directory that has left its place
	moved   string          // that place; "" if there is none

	mu   sync.Mutex
	out  []byte // lines that were not sent yet
	lost bool   // there were more
	wake chan struct{}
}

// watch sends the changes of a directory as lines of JSON until the client closes the connection, or the directory is
// gone. It sends an empty line now and then, so that the client knows that it goes on.
func (k *handler) watch(id user.User, req *wire.Request, path string) error {
	if watching.Add(1) > maxWatches {
		watching.Add(-1)
		return k.conn.SendReply(nil, proto.Errorf(proto.TooMany, wire.OpWatch, path, "%d watches are open in this "+
			"container, which is the limit; close one, or watch a directory above", maxWatches))
	}
	defer watching.Add(-1)
	w := &watch{id: id, top: path, recursive: req.Recursive, entries: req.Entries, dirs: map[int32]string{},
		found: map[string]bool{}, wake: make(chan struct{}, 1)}
	if err := w.start(); err != nil {
		return k.conn.SendReply(nil, err)
	}
	defer w.in.Close()
	if err := k.conn.SendJSON(wire.FrameReply, nil); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer k.conn.Close() // ends the reader below
	wg.Go(func() {       // a client sends nothing more, so this ends with the connection
		_, _, _ = k.conn.ReadFrame()
		w.in.Close()
	})
	over := make(chan struct{})
	wg.Go(func() {
		defer close(over)
		w.follow()
	})
	return w.send(k.conn, over)
}

// start adds the watches that there are at the beginning.
func (w *watch) start() (err error) {
	if w.in, err = notify.Open(true); err != nil {
		return watchError(w.top, err)
	}
	err = w.id.Do(func() error {
		d, err := access.OpenDir(unix.AT_FDCWD, w.top, true)
		if err != nil {
			return err
		}
		defer d.Close()
		return w.add(d, w.top, 0, false)
	})
	if err != nil {
		w.in.Close()
		return watchError(w.top, err)
	}
	return nil
}

// watchError explains why a directory cannot be watched.
func watchError(path string, err error) error {
	switch {
	case errors.Is(err, unix.EMFILE):
		return proto.Errorf(proto.TooMany, wire.OpWatch, path, "the container has no inotify instance left; end a "+
			"program in it that watches files, or raise fs.inotify.max_user_instances on the host")
	case errors.Is(err, unix.ENOSPC):
		return proto.Errorf(proto.TooMany, wire.OpWatch, path, "%s has more than %d directories, or more than "+
			"fs.inotify.max_user_watches of the host; watch a part of it", path, maxWatched)
	}
	return wire.FileError(wire.OpWatch, path, err)
}

// add watches an open directory, and those below it if the watch is recursive. tell says that its entries are new.
func (w *watch) add(d *os.File, path string, depth int, tell bool) error {
	if len(w.dirs) >= maxWatched || depth > wire.MaxDepth {
		return unix.ENOSPC
	}
	wd, err := w.in.Add(int(d.Fd()), watchedDirs)
	if err != nil {
		return err
	}
	w.dirs[wd] = path
	if !w.recursive {
		return nil
	}
	var names []string
	err = access.EachEntry(int(d.Fd()), make([]byte, 8<<10), func(name []byte, kind byte) bool {
		if tell || kind == unix.DT_DIR || kind == unix.DT_UNKNOWN {
			names = append(names, string(name))
		}
		return len(names) <= 100_000
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		child := filepath.Join(path, name)
		sub, err := access.OpenDir(int(d.Fd()), name, false)
		if tell {
			w.found[child] = true
			w.tell(proto.FileEvent{Type: proto.FileCreated, Path: child, Directory: err == nil})
			if hasContent(int(d.Fd()), name) { // the write came before this directory's watch
				w.tell(proto.FileEvent{Type: proto.FileWritten, Path: child})
			}
		}
		if err != nil {
			continue // no directory, gone, or not this user's to read
		}
		err = w.add(sub, child, depth+1, tell)
		_ = sub.Close()
		if errors.Is(err, unix.ENOSPC) {
			return err
		}
	}
	return nil
}

// hasContent reports whether an entry of a directory is a file that somebody has written to.
func hasContent(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG &&
		st.Size > 0
}

// follow reads the events until the watch ends.
func (w *watch) follow() {
	buf := make([]byte, 32<<10)
	for len(w.dirs) > 0 && w.in.Wait() == nil {
		list, err := w.in.Drain(buf)
		if err != nil {
			return
		}
		_ = w.id.Do(func() error {
			for _, e := range list {
				w.note(e)
			}
			return nil
		})
		if w.moved != "" { // it is not below the watched directory any more
			w.forget(w.moved)
			w.moved = ""
		}
		if len(list) == 0 {
			clear(w.found)
		}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// kinds translates the bits of inotify, in the order in which they are looked for.
var kinds = []struct {
	mask uint32
	kind proto.FileEventType
}{
	{unix.IN_CREATE | unix.IN_MOVED_TO, proto.FileCreated}, {unix.IN_MODIFY, proto.FileWritten},
	{unix.IN_DELETE, proto.FileRemoved}, {unix.IN_MOVED_FROM, proto.FileRenamed},
	{unix.IN_ATTRIB, proto.FileAttributes},
}

// note tells one event.
func (w *watch) note(e notify.Event) {
	dir, ok := w.dirs[e.WD]
	switch {
	case e.Mask&unix.IN_Q_OVERFLOW != 0:
		w.lose()
	case !ok:
	case e.Mask&unix.IN_IGNORED != 0:
		delete(w.dirs, e.WD)
	case e.Name == "": // the directory itself, which the one above tells too
		if dir == w.top && e.Mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0 {
			w.tell(proto.FileEvent{Type: proto.FileRemoved, Path: dir, Directory: true})
			clear(w.dirs)
		}
	default:
		w.noteEntry(e, filepath.Join(dir, e.Name))
	}
}

// noteEntry tells an event of an entry of a watched directory.
func (w *watch) noteEntry(e notify.Event, path string) {
	ev := proto.FileEvent{Path: path, Directory: e.Mask&unix.IN_ISDIR != 0}
	for _, k := range kinds {
		if e.Mask&k.mask != 0 {
			ev.Type = k.kind
			break
		}
	}
	if ev.Type == "" || e.Mask&unix.IN_CREATE != 0 && w.found[path] {
		return
	}
	w.tell(ev)
	if !ev.Directory || !w.recursive {
		return
	}
	switch {
	case e.Mask&unix.IN_MOVED_FROM != 0:
		w.moved, w.movedIn = path, e.Cookie
	case e.Mask&unix.IN_MOVED_TO != 0 && w.moved != "" && w.movedIn == e.Cookie:
		w.rename(w.moved, path)
		w.moved = ""
	case e.Mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		d, err := access.OpenDir(unix.AT_FDCWD, path, false)
		if err != nil {
			return
		}
		if errors.Is(w.add(d, path, 0, true), unix.ENOSPC) {
			w.lose()
		}
		_ = d.Close()
	}
}

// rename gives the watched directories at and below a path another one.
func (w *watch) rename(from, to string) {
	for wd, path := range w.dirs {
		if rest, ok := strings.CutPrefix(path, from); ok && (rest == "" || rest[0] == '/') {
			w.dirs[wd] = to + rest
		}
	}
}

// forget ends the watches of the directories at and below a path.
func (w *watch) forget(top string) {
	for wd, path := range w.dirs {
		if rest, ok := strings.CutPrefix(path, top); ok && (rest == "" || rest[0] == '/') {
			w.in.Remove(wd)
			delete(w.dirs, wd)
		}
	}
}

// tell queues an event for the client.
func (w *watch) tell(ev proto.FileEvent) {
	ev.Name = strings.TrimPrefix(strings.TrimPrefix(ev.Path, w.top), "/")
	if w.entries && ev.Type != proto.FileRemoved && ev.Type != proto.FileRenamed {
		if fi, err := access.InfoAt(unix.AT_FDCWD, ev.Path, ev.Path); err == nil {
			fi.Attributes = access.Attributes(ev.Path)
			ev.Entry = &fi
		}
	}
	ev.Path, ev.Name = strings.ToValidUTF8(ev.Path, "\uFFFD"), strings.ToValidUTF8(ev.Name, "\uFFFD")
	line, err := json.Marshal(ev)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil || len(w.out)+len(line) >= maxUnsent {
		w.lost = true
		return
	}
	w.out = append(append(w.out, line...), '\n')
}

// lose notes that events are missing.
func (w *watch) lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = true
}

// take returns the lines to send. Missing events are told behind those before them.
func (w *watch) take() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.out
	w.out = nil
	if w.lost {
		w.lost = false
		line, _ := json.Marshal(proto.FileEvent{Type: proto.FileOverflow, Path: strings.ToValidUTF8(w.top, "\uFFFD")})
		out = append(append(out, line...), '\n')
	}
	return out
}

// watchAlive is how often a watch without events shows that it goes on; less than wire.ShortWait.
const watchAlive = 10 * time.Second

// send sends the lines until the watch is over.
func (w *watch) send(conn *wire.Conn, over <-chan struct{}) error {
	alive := time.NewTicker(watchAlive)
	defer alive.Stop()
	for ended := false; ; {
		out := w.take()
		for len(out) > 0 {
			n := min(len(out), wire.BodyBytes)
			if err := conn.Send(wire.FrameBody, out[:n]); err != nil {
				return err
			}
			out = out[n:]
		}
		if ended {
			_ = conn.Send(wire.FrameClose, nil)
			return errWatchOver
		}
		select {
		case <-w.wake:
		case <-over:
			ended = true
		case <-alive.C:
			if err := conn.Send(wire.FrameBody, []byte{'\n'}); err != nil {
				return err
			}
		}
	}
}

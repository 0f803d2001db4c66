package fs

import (
	"cmp"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/fs/find"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// Bounds of searches.
const (
	maxSearches = 8       // at a time in one container: each may hold wire.MaxDepth descriptors
	pageBytes   = 4 << 20 // text of the entries of one page
)

// searching counts the searches of this guest.
var searching atomic.Int32

// beginSearch counts one more search, unless there are too many.
func beginSearch(op, path string) error {
	if searching.Add(1) > maxSearches {
		searching.Add(-1)
		return proto.Errorf(proto.TooMany, op, path, "%d searches run in this container, which is the limit; try "+
			"again when one has ended", maxSearches)
	}
	return nil
}

// find sends a page of the entries below a directory.
func (k *handler) find(id user.User, req *wire.Request, path string) error {
	err := req.Find.Check()
	if err == nil {
		err = beginSearch(req.Op, path)
	}
	if err != nil {
		return k.conn.SendReply(nil, err)
	}
	defer searching.Add(-1)
	w := find.New(*req.Find, k.conn.Alive, false)
	var files []proto.FileInfo
	most, room := cmp.Or(req.Find.Limit, proto.MaxFindPage), pageBytes
	err = id.Do(func() error {
		d, err := access.OpenDir(unix.AT_FDCWD, path, true)
		if err != nil {
			return err
		}
		defer d.Close()
		return w.Run(int(d.Fd()), path, func(e *find.Entry) bool {
			if len(files) == most {
				return false
			}
			e.Info.Attributes = access.Attributes(e.Path)
			size := sizeOf(&e.Info)
			if size > room && len(files) > 0 {
				return false
			}
			files, room = append(files, e.Info), room-size
			return true
		})
	})
	describe(id, files)
	next := w.Next()
	return k.list(files, wire.Listing{Truncated: next != nil, Next: next, Skipped: w.Skipped()},
		wire.FileError(req.Op, path, err))
}

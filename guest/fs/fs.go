// Package fs works on the files of a container for the guest: reading, writing, listing, archives, the editor tool,
// and the directories that a command gets. It makes every access as a user of the container, so that the kernel
// checks that user's permissions. guest/pid1 calls it. It starts no processes.
package fs

import (
	"os"
	"path/filepath"
	"strings"

	"berth/guest/fs/access"
	"berth/guest/fs/editor"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// FS works on the files of one container. It is safe for concurrent use.
type FS struct {
	access.Workspace
	users    user.Users
	editor   *editor.Editor
	marks    marks
	mappings func() Mappings
}

// NewFS makes an FS for a container whose workspace is at that absolute path. mappings says what other processes may do
// unseen at the moment.
func NewFS(workspace string, users user.Users, mappings func() Mappings) *FS {
	w := access.Workspace(workspace)
	return &FS{Workspace: w, users: users, editor: editor.New(w), mappings: mappings,
		marks: marks{own: filepath.Join(workspace, filepath.Base(proto.OwnDir))}}
}

// handler serves one request on files over its connection.
type handler struct {
	s    *FS
	conn *wire.Conn
}

// Serve serves a request on files as a user of the container. An error ends the connection.
func (s *FS) Serve(conn *wire.Conn, id user.User, req *wire.Request) error {
	switch {
	case req.Op == wire.OpHash:
		return conn.SendReply(s.hash(id, req.Paths), nil)
	case req.Op == wire.OpEdit && req.Edit == nil, req.Op == wire.OpFind && req.Find == nil,
		req.Op == wire.OpGrep && req.Grep == nil:
		return wire.ErrFrame
	}
	path, err := s.pathOf(req.Op, req.Path)
	if err != nil {
		return conn.SendReply(nil, err)
	}
	k := &handler{s: s, conn: conn}
	switch req.Op {
	case wire.OpStat:
		return conn.SendReply(s.stat(id, path))
	case wire.OpMkdir:
		err := id.Do(func() error { return os.MkdirAll(path, 0o755) })
		return conn.SendReply(nil, wire.FileError(req.Op, path, err))
	case wire.OpRemove:
		return conn.SendReply(nil, s.remove(id, path, req.Recursive))
	case wire.OpMove:
		to, err := s.pathOf(req.Op, req.To)
		if err == nil {
			err = move(id, path, to)
		}
		return conn.SendReply(nil, err)
	case wire.OpEdit:
		return conn.SendReply(s.editor.Run(id, path, req.Edit))
	case wire.OpList:
		files, truncated, err := list(id, path, clamp(req.Max, wire.MaxList))
		return k.list(files, wire.Listing{Truncated: truncated}, wire.FileError(req.Op, path, err))
	case wire.OpFind:
		return k.find(id, req, path)
	case wire.OpGrep:
		return k.grep(id, req, path)
	case wire.OpWalk:
		return k.walk(id, path, clamp(req.Max, wire.MaxWalk), req.Others, req.Since)
	case wire.OpRead:
		return k.read(id, req, path)
	case wire.OpTar:
		return k.tar(id, path, req.NoLinks)
	case wire.OpWrite:
		return k.write(id, req, path)
	case wire.OpWatch:
		return k.watch(id, req, path)
	case wire.OpUntar:
		return k.untar(id, req, path)
	}
	return wire.ErrFrame
}

func clamp(n, most int) int { return min(max(n, 0), most) }

// pathOf checks a path and makes it absolute.
func (s *FS) pathOf(op string, raw []byte) (string, error) {
	path := string(raw)
	switch {
	case path == "":
		return "", proto.Errorf(proto.InvalidArgument, op, "path", "the path is empty")
	case strings.IndexByte(path, 0) >= 0:
		return "", proto.Errorf(proto.InvalidArgument, op, "path", "the path holds a NUL byte")
	}
	return s.Absolute(path), nil
}

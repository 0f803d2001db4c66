// Package fs works on the files of a container for the guest: reading, writing, listing, archives, the editor tool,
// and the directories that a command gets. It makes every access as a user of the container, so that the kernel
// checks that user's permissions. guest/pid1 calls it. It starts no processes.
package fs

import (
	"berth/guest/fs/access"
	"berth/guest/fs/editor"
	"berth/guest/user"
	"berth/guest/wire"
)

// FS works on the files of one container. It is safe for concurrent use.
type FS struct {
	access.Workspace
	users  user.Users
	editor *editor.Editor
}

// NewFS makes an FS for a container whose workspace is at that absolute path.
func NewFS(workspace string, users user.Users) *FS {
	w := access.Workspace(workspace)
	return &FS{Workspace: w, users: users, editor: editor.New(w)}
}

// handler serves one request on files over its connection.
type handler struct {
	s    *FS
	conn *wire.Conn
}

// Serve serves a request on files as a user of the container. An error ends the connection.
func (s *FS) Serve(conn *wire.Conn, id user.User, req *wire.Request) error {
	return (&handler{s: s, conn: conn}).file(id, req)
}

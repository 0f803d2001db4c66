// Package fs works on the files of a container for the guest: reading, writing, listing, archives, the editor tool, and
// the directories that a command gets. Every access is made as a user of the container, so that the kernel checks that
// user's permissions. guest/pid1 calls it; it starts no processes.
package fs

import (
	"sync"

	"berth/guest/user"
	"berth/guest/wire"
)

// An FS works on the files of one container. It is safe for concurrent use.
type FS struct {
	workspace string
	users     user.Users
	editing   sync.Mutex // held from reading a file to replacing it; see edit
}

// NewFS works on the files of a container whose workspace is at that absolute path.
func NewFS(workspace string, users user.Users) *FS {
	return &FS{workspace: workspace, users: users}
}

// A handler serves one request on files over its connection.
type handler struct {
	s    *FS
	conn *wire.Conn
}

// Serve serves a request on files as a user of the container. An error ends the connection.
func (s *FS) Serve(conn *wire.Conn, id user.User, req *wire.Request) error {
	return (&handler{s: s, conn: conn}).file(id, req)
}

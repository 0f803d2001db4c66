// Package access opens, describes and replaces single files and directories of a container, for packages guest/fs,
// guest/fs/editor and guest/fs/archive.
//
// It opens directories by descriptor, from step to step, so that no link changes where a path leads in the meantime. A
// Workspace follows no link at all below itself; the daemon needs that for its own work as root. A NewFile replaces a
// file as a whole. The kernel checks the permissions of the user for whom a call is made.
package access

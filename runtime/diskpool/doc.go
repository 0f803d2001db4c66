// Package diskpool keeps the workspaces and layers of sandboxes on disk. Each is a directory with a byte limit: a
// subvolume of a btrfs if the host can have one. The package opens and repairs the pool, and keeps its sparse file
// and the disk below in agreement (backing.go). It assigns each sandbox a range of user IDs. The ioctls are in package
// btrfs.
//
// It knows directories and bytes only. Packages launch and containerd mount workspaces and layers; they call this
// package. So does package meter, which reads how full a subvolume is.
package diskpool

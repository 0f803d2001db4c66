// Package diskpool keeps the workspaces and layers of sandboxes on disk: directories with a byte limit each, subvolumes
// of a btrfs where the host can have one. It opens and repairs the pool, keeps its sparse file and the disk below in
// agreement (backing.go), removes trees of any depth, and assigns each sandbox a range of user IDs.
//
// It knows directories and bytes only. Mounting a workspace or a layer is the work of packages launch and containerd,
// which call this package; so does package meter, which reads how full a subvolume is.
package diskpool

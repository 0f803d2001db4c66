// Package containerd is the session.Runtime of one Linux machine. It decides when a sandbox is started, taken from
// the warm pool, paused and removed, and keeps the records of that. Packages images, diskpool, cgroup and launch make
// the parts of a sandbox, warmpool keeps started ones, and meter reads what they use. The daemon opens a Runtime, and
// package session calls it.
//
// containerd's server runs inside the daemon (package inprocess) and is called without a socket. No request passes
// through this package: once Start has returned, the daemon talks to the guest over the socket that Dial opens.
//
// Contents of the data directory:
//
//	ctr/                        containerd's own root: images, layers, its database
//	lock                        held by the one daemon that may use this directory
//	runsc                       a script that gives gVisor its flags
//	pool.img                    the btrfs pool (sparse), unless the directory is btrfs already
//	pool/bin/guest-<hash>       the guest binaries that sandboxes run
//	pool/ws/<workspace>         one subvolume per workspace, limited by a qgroup
//	pool/layer/<sandbox>/       one subvolume per sandbox: the overlay's upper and work, and run, mounted
//	                            at /.berth/run, where the guest makes guest.sock; claim, a link that names the
//	                            session, if the sandbox came from the warm pool
//
// Contents of /run/berth/<hash of the data directory>, which a reboot may delete:
//
//	d/<session>/                the bundle of a sandbox that runc runs: configuration, runc's state, the guest's PID
//	c, r                        containerd's and runsc's state
//	s, t                        the shims' sockets, containerd's event socket
//
// Start makes the parts of a sandbox in this order: a container record that names its class, workspace and UID range;
// the workspace; the layer; the run directory in it; the bundle and the process, or containerd's task. Stop removes
// them in the opposite order. So the rest of an interrupted call can still be listed and removed by its session's ID.
//
// A sandbox of the warm pool is made without a workspace and under a name of its own. A Start claims it (pooled.go): it
// attaches the workspace, sets the limits, and writes the claim to disk.
//
// A daemon that is killed leaves containers running, and gVisor's shims. The next daemon mounts the same loop device
// again in its own mount namespace. It finds containers by their bundles, and shims by containerd's state.
package containerd

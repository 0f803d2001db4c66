package containerd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"berth/proto"
	"berth/runtime/diskpool"
	"berth/runtime/warmpool"
)

// A Config says where a Runtime keeps its data and what it may use.
type Config struct {
	// Dir is the data directory, an absolute path. It is made if missing and holds images, workspaces and layers.
	// Required.
	Dir string

	// BinDir holds containerd-shim-runc-v2, runc, runsc and berth-guest. It is an absolute path. Without runsc only
	// that class is unavailable; the other programs are required.
	BinDir string

	// Guest is the program that becomes PID 1. Empty means BinDir/berth-guest.
	Guest string

	// Address is the socket of a containerd that runs already. Empty means that the Runtime runs its own in this
	// process. With an address, the pool must be visible to that containerd, so the caller must not have moved to a
	// private mount namespace.
	Address string

	// HasFiles: there are workspaces in the pool, so that a missing pool is an error and no new one is made.
	HasFiles bool
	// PoolBytes is the size of the disk pool that is made if there is none. 0 means half of the free space below Dir,
	// and at most 64 GiB. The pool is sparse: unused space takes no disk.
	PoolBytes int64

	// OwnerBytes bounds what the containers and snapshots of one owner may have in the disk pool together. 0 is no
	// bound. Not every pool can do that; see diskpool.
	OwnerBytes int64

	// FirstID is the first host UID and GID given to sandboxes, a multiple of 65,536.
	// 0 means 0x70000000, which distributions keep free.
	FirstID uint32

	// Starts is how many sandboxes may be made at the same time. A higher number makes each start slower, because
	// starts contend for the kernel's mount lock. 0 means twice the number of CPUs, at least 4.
	Starts int

	// Warm keeps sandboxes ready for later sessions. The zero value keeps none.
	Warm Warm

	// Handshake checks that a guest answers. nil means no check.
	Handshake warmpool.Handshake

	// Log receives what an operator must know. nil means slog.Default().
	Log *slog.Logger
}

// Warm says how many sandboxes the warm pool keeps.
type Warm = warmpool.Size

const guestName = "berth-guest"

// GuestProgram returns the path from which the guest is copied.
func (c Config) GuestProgram() string {
	return cmp.Or(c.Guest, filepath.Join(c.BinDir, guestName))
}

// Starter returns the path of the fork server's program: the guest that comes with the daemon, whichever guest
// sandboxes run.
func (c Config) Starter() string { return filepath.Join(c.BinDir, guestName) }

// withDefaults checks c and fills in the defaults.
func (c Config) withDefaults() (Config, error) {
	if !filepath.IsAbs(c.Dir) || !filepath.IsAbs(c.BinDir) {
		return c, proto.Errorf(proto.InvalidArgument, "opening the runtime", "",
			"the data and program directories must be absolute paths")
	}
	c.Dir, c.BinDir = filepath.Clean(c.Dir), filepath.Clean(c.BinDir)
	c.Guest = c.GuestProgram()
	if c.FirstID == 0 {
		c.FirstID = diskpool.DefaultFirst
	}
	if c.Starts <= 0 {
		c.Starts = max(4, 2*runtime.NumCPU())
	}
	if c.Handshake == nil {
		c.Handshake = func(_ context.Context, conn net.Conn) (net.Conn, error) { return conn, nil }
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, nil
}

// rundir returns the directory of sockets, containerd's state and the mount points of root file systems. It is below
// /run, under a name that depends only on Dir. It is not below Dir, because a sandbox's mapped root must be able to
// walk there, and users keep data below directories like /root that no other user may enter. Also, the path of a
// socket may have only 107 characters.
func (c Config) rundir() string {
	sum := sha256.Sum256([]byte(c.Dir))
	return filepath.Join("/run/berth", hex.EncodeToString(sum[:8]))
}

// bundleDir returns the directory of the bundles of sandboxes without a shim.
func (c Config) bundleDir() string { return filepath.Join(c.rundir(), "d") }

// rootDir returns the directory in which root file systems are mounted while a shim takes them over.
func (c Config) rootDir() string { return filepath.Join(c.rundir(), "m") }

// makeDirs makes the directories that all other code expects.
func (c Config) makeDirs() error {
	for _, d := range []string{filepath.Join(c.Dir, "ctr"), c.rundir(), c.bundleDir()} {
		if err := os.MkdirAll(d, 0o711); err != nil {
			return err
		}
	}
	return os.MkdirAll(c.rootDir(), 0o700)
}

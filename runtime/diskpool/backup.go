package diskpool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"berth/runtime/btrfs"
	"berth/runtime/layer"
)

// A backup of the pool has each workspace, layer and snapshot as what `btrfs send` would write. Content that they
// share, such as a snapshot and the workspace that it was made of, is sent once.

// A Tree is a workspace, a layer or a part of a snapshot in a backup.
type Tree struct {
	Name     string `json:"name"` // path in the pool
	Copy     int    `json:"copy"` // number, which the copies in the pool are named by
	ReadOnly bool   `json:"read_only,omitempty"`
	Limit    int64  `json:"limit,omitempty"` // bytes; 0 is none
	Group    uint64 `json:"group,omitempty"` // of its owner; 0 is none
	Bytes    int64  `json:"bytes"`           // that the pool counts for it; an estimate of what is sent

	held uint64 // number of the copy's subvolume, while Hold has it
}

// holdersAtOnce is how many snapshots are made at the same time, each kind in a directory of its own: the kernel takes
// a commit of the file system for each, and one commit serves all that wait for it.
const holdersAtOnce = 16

func (d *Pool) backupDir() string { return filepath.Join(d.root, "backup") }

// copyPath returns where the copy number n of a tree is while a backup is written or read.
func (d *Pool) copyPath(n int) string {
	return filepath.Join(d.backupDir(), strconv.Itoa(n%holdersAtOnce), fmt.Sprintf("%08d", n))
}

// SizeBytes returns the size of the pool's file, or 0 if it is not in a file.
func (d *Pool) SizeBytes() int64 {
	if d.backing == nil {
		return 0
	}
	return d.backing.size
}

// Hold makes read-only copies of all trees. Release removes them.
func (d *Pool) Hold() ([]Tree, error) {
	if d.Kind == Plain {
		return nil, ErrNoSnapshots
	}
	trees, err := d.trees()
	if err != nil {
		return nil, err
	}
	for n := range holdersAtOnce {
		if err := os.MkdirAll(filepath.Dir(d.copyPath(n)), 0o700); err != nil {
			return nil, err
		}
	}
	var making errgroup.Group
	making.SetLimit(holdersAtOnce)
	for i := range trees {
		making.Go(func() error {
			t := &trees[i]
			err := btrfs.Snapshot(filepath.Join(d.root, t.Name), d.copyPath(t.Copy), true)
			if errors.Is(err, os.ErrNotExist) { // it was removed a moment ago
				t.Copy = 0
				return nil
			}
			if err == nil {
				t.held, err = btrfs.SubvolumeID(d.copyPath(t.Copy))
			}
			return err
		})
	}
	if err := making.Wait(); err != nil {
		return nil, fmt.Errorf("copying the containers' files: %w", err)
	}
	return slices.DeleteFunc(trees, func(t Tree) bool { return t.Copy == 0 }), nil
}

// trees lists what a backup has of the pool, in the order of the numbers of their copies.
func (d *Pool) trees() ([]Tree, error) {
	names, err := d.treeNames()
	if err != nil {
		return nil, err
	}
	var trees []Tree
	for _, name := range names {
		t := Tree{Name: name, Copy: len(trees) + 1}
		t.ReadOnly = filepath.Dir(filepath.Dir(filepath.Join(d.root, name))) == d.snapshotDir()
		path := filepath.Join(d.root, name)
		if err := d.readCounts(path, &t); errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		trees = append(trees, t)
	}
	return trees, nil
}

// treeNames lists the trees of containers. Sandboxes of the warm pool are of no container.
func (d *Pool) treeNames() ([]string, error) {
	var all []string
	for _, dir := range []string{d.workspaceDir(), d.keptDir(), d.LayerDir(), d.snapshotDir()} {
		names, err := Names(dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			path := filepath.Join(dir, name)
			switch dir {
			case d.LayerDir():
				if c, err := d.ReadClaim(name); err != nil || c.Layer == "" || layer.Untouched(path) {
					continue
				}
			case d.snapshotDir():
				for _, part := range []string{snapshotWorkspace, snapshotLayer} {
					if Exists(filepath.Join(path, part)) {
						all = append(all, filepath.Join(filepath.Base(dir), name, part))
					}
				}
				continue
			}
			all = append(all, filepath.Join(filepath.Base(dir), name))
		}
	}
	return all, nil
}

// readCounts reads the limit of a tree, whose it is, and its size.
func (d *Pool) readCounts(path string, t *Tree) error {
	if !d.Quota {
		return nil
	}
	id, err := btrfs.SubvolumeID(path)
	if err != nil {
		return err
	}
	dir := filepath.Join("/sys/fs/btrfs", d.Fsid(), "qgroups", fmt.Sprintf("0_%d", id))
	for name, to := range map[string]*int64{"referenced": &t.Bytes, "max_referenced": &t.Limit} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue // an older kernel does not tell, or the tree has no group yet
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 63); err == nil {
			*to = int64(n)
		}
	}
	if d.countsOwners() {
		g, err := btrfs.GroupOf(path)
		if err != nil {
			return err
		}
		t.Group = uint64(g)
	}
	return nil
}

// mostShared is how many trees the kernel looks for shared content in.
const mostShared = 1000

// Send writes a tree that Hold has returned. What it shares with those before it, which Hold has returned, too, is not
// written. It ends early if w fails.
func (d *Pool) Send(before []Tree, t Tree, w io.Writer) error {
	var others []uint64
	for _, o := range before[max(0, len(before)-mostShared):] {
		others = append(others, o.held)
	}
	var ends [2]int // blocking, unlike those of os.Pipe: the kernel writes to one
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	in := os.NewFile(uintptr(ends[0]), "what is sent")
	sent := make(chan error, 1)
	go func() { sent <- errors.Join(btrfs.Send(d.copyPath(t.Copy), others, ends[1]), unix.Close(ends[1])) }()
	_, err := io.Copy(w, in)
	if err := errors.Join(err, in.Close()); err != nil {
		<-sent
		return err
	}
	return <-sent
}

// Receive reads what Send has written. The trees before t must have been received. Settle makes them usable.
func (d *Pool) Receive(ctx context.Context, t Tree, r io.Reader) error {
	dir := filepath.Dir(d.copyPath(t.Copy))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var said strings.Builder
	cmd := exec.CommandContext(ctx, "btrfs", "receive", "--quiet", dir)
	cmd.Stdin, cmd.Stderr = r, &said
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return errors.New("the program btrfs is missing: install btrfs-progs")
	}
	if err != nil {
		return fmt.Errorf("btrfs receive: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// Settle gives received trees their places, limits and owners. A layer that a sandbox used is kept for its container.
func (d *Pool) Settle(trees []Tree) error {
	for _, t := range trees {
		from, to := d.copyPath(t.Copy), filepath.Join(d.root, t.Name)
		if err := d.settle(t, from, to); err != nil {
			return fmt.Errorf("putting %s to its place: %w", t.Name, err)
		}
	}
	layers, err := d.Layers()
	for _, sandbox := range layers {
		err = errors.Join(err, d.ReleaseLayer(sandbox))
	}
	return errors.Join(err, d.Release(), d.Sync())
}

func (d *Pool) settle(t Tree, from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o711); err != nil {
		return err
	}
	// The kernel moves no read-only subvolume.
	if err := btrfs.SetReadOnly(from, false); err != nil {
		return err
	}
	if err := renameNew(from, to); err != nil {
		return err
	}
	if g := btrfs.Group(t.Group); g != 0 && d.countsOwners() {
		if err := errors.Join(g.Make(d.root), g.Add(d.root, to)); err != nil {
			return err
		}
	}
	if t.Limit > 0 {
		if err := d.Limit(to, t.Limit); err != nil {
			return err
		}
	}
	if t.ReadOnly {
		return btrfs.SetReadOnly(to, true)
	}
	return nil
}

// Release removes the copies that Hold has made, and what a crash has left of them.
func (d *Pool) Release() error {
	dirs, err := Names(d.backupDir())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, dir := range dirs {
		names, lerr := Names(filepath.Join(d.backupDir(), dir))
		err = errors.Join(err, lerr)
		for _, name := range names {
			err = errors.Join(err, d.remove(filepath.Join(d.backupDir(), dir, name)))
		}
	}
	return errors.Join(err, os.RemoveAll(d.backupDir()))
}

package containerd

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/session"
)

var _ session.Meter = (*Runtime)(nil)

// Measure reads the sandbox's cgroup and quotas, from outside. See session.Meter.
func (r *Runtime) Measure(id, workspace string) session.Reading {
	reading := session.Reading{OOMKills: -1, PIDRefusals: -1}
	if !proto.ValidID(proto.ContainerPrefix, id) || !proto.ValidID(proto.WorkspacePrefix, workspace) {
		return reading
	}
	name := r.claims.sandbox(id)
	reading.OOMKills = cgroupTally(name, "oom_kill", "memory/%s/memory.oom_control", "%s/memory.events")
	reading.PIDRefusals = cgroupTally(name, "max", "pids/%s/pids.events", "%s/pids.events")
	reading.Workspace = r.disk.space(r.disk.workspacePath(workspace))
	reading.Layer = r.disk.space(r.disk.layerPath(name))
	reading.Pool = r.disk.poolSpace()
	return reading
}

// cgroupTally reads the line "key N" of the first of the files that is there; -1 if none is.
func cgroupTally(sandbox, key string, files ...string) int64 {
	var buf [page]byte
	for _, file := range files {
		content := readPage(buf[:], filepath.Join(cgroupRoot, fmt.Sprintf(file, namespace+"/"+sandbox)))
		if n, ok := tallyIn(content, key); ok {
			return n
		}
	}
	return -1
}

// tallyIn finds the number on the line "key N".
func tallyIn(content []byte, key string) (int64, bool) {
	for len(content) > 0 {
		line, rest, _ := bytes.Cut(content, []byte("\n"))
		if k, v, ok := bytes.Cut(line, []byte(" ")); ok && string(k) == key {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64)
			return n, err == nil
		}
		content = rest
	}
	return 0, false
}

// space is what the subvolume path uses of its limit. The kernel counts what is written in its qgroup only when
// it commits, so what is reserved until then counts too; both are in sysfs since Linux 5.9.
func (d *disk) space(path string) session.Space {
	if !d.quota {
		return session.Space{}
	}
	id, err := subvolumeID(path)
	if err != nil {
		return session.Space{}
	}
	dir := fmt.Sprintf("/sys/fs/btrfs/%s/qgroups/0_%d/", d.fsid(), id)
	limit, ok := readNumber(dir + "max_referenced")
	if !ok {
		return session.Space{}
	}
	used := qgroupUse(dir, "referenced", "rsv_data")
	if limit-used < metaBytes {
		used += qgroupUse(dir, "rsv_meta_pertrans", "rsv_meta_prealloc")
	}
	return session.Space{Used: used, Limit: limit}
}

// metaBytes is how little must be left, in bytes, for what is reserved for records of files to count: where more is, the kernel writes
// out what those are for rather than refuse anything.
const metaBytes = 512 << 20

// qgroupUse adds up numbers of a qgroup.
func qgroupUse(dir string, names ...string) (used int64) {
	for _, name := range names {
		n, _ := readNumber(dir + name)
		used += n
	}
	return used
}

// poolSpace is what all share.
func (d *disk) poolSpace() session.Space {
	var st unix.Statfs_t
	if err := unix.Statfs(d.root, &st); err != nil {
		return session.Space{}
	}
	size, free := int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
	return session.Space{Used: size - free, Limit: size}
}

// fsid names the pool's file system as sysfs does; asked once.
func (d *disk) fsid() string {
	d.named.Do(func() {
		var info [1024]byte // struct btrfs_ioctl_fs_info_args: two numbers of eight bytes, then the UUID
		if err := dirIoctl(d.root, btrfsFSInfo, unsafe.Pointer(&info)); err == nil {
			h := hex.EncodeToString(info[16:32])
			d.name = h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
		}
	})
	return d.name
}

func readNumber(path string) (int64, bool) {
	var buf [page]byte
	n, err := strconv.ParseInt(string(bytes.TrimSpace(readPage(buf[:], path))), 10, 64)
	return n, err == nil
}

// page is as much as the kernel gives of a file of its own at once, in bytes: all of it, for those read here.
const page = 4096

// openAgain is unix.Open, again if a signal interrupts it.
func openAgain(path string, flags int) (fd int, err error) {
	fd, err = unix.Open(path, flags, 0)
	for err == unix.EINTR {
		fd, err = unix.Open(path, flags, 0)
	}
	return fd, err
}

// readPage reads a file of the kernel's into buf; nothing if it cannot. A dozen are read for each command, and
// os.ReadFile makes twice the system calls, since it serves files that have to be waited for.
func readPage(buf []byte, path string) []byte {
	fd, err := openAgain(path, unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	for err == unix.EINTR {
		n, err = unix.Read(fd, buf)
	}
	if err != nil {
		return nil
	}
	return buf[:n]
}

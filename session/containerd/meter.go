package containerd

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
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
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(cgroupRoot, fmt.Sprintf(file, namespace+"/"+sandbox)))
		if err != nil {
			continue
		}
		for line := range bytes.Lines(content) {
			if v, ok := bytes.CutPrefix(line, []byte(key+" ")); ok {
				if n, err := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64); err == nil {
					return n
				}
			}
		}
	}
	return -1
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
	var used int64
	for _, name := range []string{"referenced", "rsv_data", "rsv_meta_pertrans", "rsv_meta_prealloc"} {
		n, _ := readNumber(dir + name)
		used += n
	}
	return session.Space{Used: used, Limit: limit}
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
	content, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(content)), 10, 64)
	return n, err == nil
}

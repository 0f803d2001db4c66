package containerd

import (
	"bytes"
	"encoding/hex"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/session"
)

var _ session.Meter = (*Runtime)(nil)

// Measure reads the sandbox's cgroup and quotas, from outside. See session.Meter.
func (r *Runtime) Measure(id, workspace string) session.Reading {
	if !proto.ValidID(proto.ContainerPrefix, id) || !proto.ValidID(proto.WorkspacePrefix, workspace) {
		return session.Reading{OOMKills: -1, PIDRefusals: -1}
	}
	name := r.claims.sandbox(id)
	reading := r.gauges.read(name, workspace, func() *gauge { return r.openGauge(name, workspace) })
	reading.Pool = r.disk.poolSpace()
	return reading
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

package attack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// Group 29: one container must not exhaust resources that all containers of a host share. A container's limits apply
// to what the kernel counts per cgroup. Resources that it counts per user, or not at all, need other limits.
var _ = register(
	Case{
		// The directory comes from the host. If it were on a file system of the host, filling it would affect all
		// containers.
		Group: 29, Name: "hostlimits/run-directory", Inside: true,
		Tries: "fill the directory of the guest's socket, which the container's root may write to, with 160 MiB and " +
			"5,000 files of 8 kB, in a container of 32 MiB",
		Wants: "the container's own disk limit ends it",
		Run:   fillRunDirectory,
	},
	// A device node always refers to the host's device. A tmpfs without a size may take half of the host's memory.
	attempts(Case{
		Group: 29, Name: "hostlimits/devices",
		Tries: "fill /dev, make nodes of loop, disk, memory and tun devices there and elsewhere, and open more loop devices",
		Wants: "/dev holds less than 1 MiB, and no node is made that can be opened",
	}, asBoth, deviceAttempts),
	// inotify watches and terminals are counted per user and per host. Containers with the same host user IDs would
	// compete for them.
	Case{
		Group: 29, Name: "hostlimits/shared-tables", Inside: true, Alone: true,
		Tries: "take as many terminals, inotify watches, message queues, semaphores, shared memory segments and " +
			"descriptors as there are to be had",
		Wants: "another container gets its own while they are held",
		Run:   sharedTables,
	},
)

// fillRunDirectory writes more than the container's disk holds: first one file, then many small ones.
func fillRunDirectory(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{Limits: proto.Limits{DiskBytes: 32 << 20}})
	if err != nil {
		return "", err
	}
	out, err := t.Output(ctx, con.ID, proto.UserRoot, `cd /.berth/run
		head -c 160M /dev/zero 2>/dev/null > big; stat -c %s big; rm -f big
		python3 -c '
n = 0
try:
    while n < 5000:
        open("f%d" % n, "w").write("x" * 8000); n += 1
except OSError as e: pass
print(n)'; rm -f f*`)
	if err != nil {
		return "", err
	}
	var bytes, files int64
	if _, err := fmt.Sscan(out, &bytes, &files); err != nil {
		return "", fmt.Errorf("reading %q: %w", out, err)
	}
	// The container's disk is 32 MiB; twice that leaves a margin.
	if bytes > 64<<20 || files >= 5000 {
		return "", Breached("%d MiB and %d files fit into it", bytes>>20, files)
	}
	return fmt.Sprintf("%d MiB and %d files fit", bytes>>20, files), nil
}

// deviceAttempts create nodes for devices that exist on nearly every host.
func deviceAttempts() []attempt {
	var all []attempt
	// The numbers are from the kernel's list of devices (Documentation/admin-guide/devices.txt). vda and nvme have
	// the numbers that they usually get.
	for name, dev := range map[string]uint64{
		"loop-control": unix.Mkdev(10, 237), "loop0": unix.Mkdev(7, 0), "sda": unix.Mkdev(8, 0), "vda": unix.Mkdev(
			254, 0), "nvme": unix.Mkdev(259, 0),
		"mem": unix.Mkdev(1, 1), "kmsg": unix.Mkdev(1, 11), "port": unix.Mkdev(1, 4), "tun": unix.Mkdev(10, 200),
		"fuse": unix.Mkdev(10, 229),
		"kvm":  unix.Mkdev(10, 232), "console": unix.Mkdev(5, 1), "tty0": unix.Mkdev(4, 0), "btrfs-control": unix.Mkdev(
			10, 234), "mapper": unix.Mkdev(10, 236),
	} {
		// Each directory may be a different mount with its own flags: nodev on one says nothing about the others.
		for _, dir := range []string{"/dev", "/tmp", "/workspace", "/dev/shm", "/"} {
			for kind, bits := range map[string]uint32{"block": unix.S_IFBLK, "character": unix.S_IFCHR} {
				path := filepath.Join(dir, "attack-"+name+"-"+kind)
				all = append(all, attempt{kind + " device " + name + " in " + dir,
					func() error { return useDevice(path, bits, dev) }})
			}
		}
	}
	return append(all, attempt{"1 MiB in /dev", func() error {
		if sentry() {
			return moot("/dev is in the memory that the container's limit bounds")
		}
		defer os.Remove("/dev/attack-big")
		return os.WriteFile("/dev/attack-big", make([]byte, 1<<20), 0o600)
	}})
}

// useDevice creates a node and opens it. Creating may succeed for a node that refers to no device; only opening
// counts.
func useDevice(path string, kind uint32, dev uint64) error {
	if err := unix.Mknod(path, kind|0o666, int(dev)); err != nil {
		return err
	}
	defer os.Remove(path)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// takeAll allocates everything that the kernel counts per user or for the whole host, and prints how much it got. It
// runs as the container's root, which has the highest limits.
const takeAll = `
import os, resource, ctypes, select, time, sys
libc = ctypes.CDLL(None, use_errno=True)
held, got = [], {}
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
def take(name, n, fn):
    got[name] = 0
    try:
        for i in range(n):
            held.append(fn(i)); got[name] += 1
    except OSError as e: pass
def call(name, *args):
    r = getattr(libc, name)(*args)
    if r < 0: raise OSError(ctypes.get_errno(), name)
    return r
take("inotify instances", 1000, lambda i: call("inotify_init"))
fd = held[-1] if got["inotify instances"] else -1
os.makedirs("/tmp/w", exist_ok=True)
def watch(i):
    os.mkdir("/tmp/w/%d" % i); return call("inotify_add_watch", fd, ("/tmp/w/%d" % i).encode(), 2)
take("inotify watches", 20000, watch)
take("message queues", 2000, lambda i: call("msgget", i + 1, 0o1600))
take("semaphore sets", 2000, lambda i: call("semget", i + 1, 10, 0o1600))
take("shared segments", 2000, lambda i: call("shmget", i + 1, 4096, 0o1600))
take("terminals", 1000, lambda i: os.openpty())
take("pipes", 30000, lambda i: os.pipe())
print(", ".join("%d %s" % (n, k) for k, n in got.items())); sys.stdout.flush()
time.sleep(60)
`

// takeOne needs one of each. It stands for a program in another container, which needs a terminal, a pipe, a watch
// and System V objects.
const takeOne = `
import os, ctypes
libc = ctypes.CDLL(None, use_errno=True)
os.openpty(); os.pipe()
fd = libc.inotify_init(); assert fd >= 0, "inotify instance"
assert libc.inotify_add_watch(fd, b"/tmp", 2) >= 0, "inotify watch"
for f, a in (("msgget", (7, 0o1600)), ("semget", (7, 1, 0o1600)), ("shmget", (7, 4096, 0o1600))): assert getattr(libc, f)(*a) >= 0, f
print("fine")
`

// sharedTables lets one container hold as much as it can get for a minute, while another one needs one of each.
func sharedTables(ctx context.Context, t *Target) (string, error) {
	greedy, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	modest, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	// Check first that it works at all. Otherwise a container that can never have them would count as attacked.
	if got, err := t.Output(ctx, modest.ID, "", "python3 -c '"+takeOne+"'"); err != nil || got != "fine" {
		return "", fmt.Errorf("a container without a neighbour cannot have one of each: %q %w", got, err)
	}
	holder, err := t.Launch(ctx, greedy.ID, proto.Cmd{Argv: []string{"python3", "-c", takeAll}, User: proto.UserRoot,
		TimeoutSeconds: 90})
	if err != nil {
		return "", err
	}
	said, err := t.firstLine(ctx, greedy.ID, holder.ID)
	if err != nil {
		return "", err
	}
	// Use other keys than the first time, since those objects may still exist.
	if got, err := t.Output(ctx, modest.ID, "", "python3 -c '"+strings.ReplaceAll(takeOne, "(7,", "(8,")+
		"'"); err != nil || got != "fine" {
		return "", Breached("while one container held %s, another one could not have one of each: %q %v", said, got,
			err)
	}
	return "while one held " + said + ", another one had its own", nil
}

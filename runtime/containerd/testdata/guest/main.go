// Command guest is the PID 1 of this package's tests: it listens where the real
// guest does and answers one JSON request per connection with what it sees from inside.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

type request struct {
	Op   string `json:"op"`
	Path string `json:"path,omitempty"`
	Size int64  `json:"size,omitempty"`
	UID  int    `json:"uid,omitempty"`
}

type answer struct {
	Text   string            `json:"text,omitempty"`
	Err    string            `json:"err,omitempty"`
	Number int64             `json:"number,omitempty"`
	Probes map[string]string `json:"probes,omitempty"`
}

const socket = "/.berth/run/guest.sock"

func main() {
	if len(os.Args) > 1 && os.Args[1][0] != '-' { // an option is for the real guest
		child(os.Args[1:])
		return
	}
	go reap()
	os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		fatal(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			fatal(err)
		}
		go serve(c)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// reap only sleeps, because reaping would take the children that package exec waits for. Only the real guest reaps.
func reap() { select {} }

func serve(c net.Conn) {
	defer c.Close()
	for in := bufio.NewReader(c); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var req request
		if err := json.Unmarshal(line, &req); err != nil {
			return
		}
		if json.NewEncoder(c).Encode(handle(req)) != nil {
			return
		}
	}
}

func handle(req request) answer {
	switch req.Op {
	case "ping":
		return answer{Text: "pong"}
	case "read":
		b, err := os.ReadFile(req.Path)
		return answer{Text: string(b), Err: text(err)}
	case "list":
		entries, err := os.ReadDir(req.Path)
		names := ""
		for _, e := range entries {
			names += e.Name() + "\n"
		}
		return answer{Text: names, Err: text(err)}
	case "links":
		entries, err := os.ReadDir(req.Path)
		links := ""
		for _, e := range entries {
			if to, err := os.Readlink(filepath.Join(req.Path, e.Name())); err == nil { // not the one that lists them
				links += to + "\n"
			}
		}
		return answer{Text: links, Err: text(err)}
	case "write":
		n, err := write(req.Path, req.Size)
		return answer{Number: n, Err: text(err)}
	case "rename": // to the same name below /workspace
		return answer{Err: text(os.Rename(req.Path, filepath.Join("/workspace", filepath.Base(req.Path))))}
	case "stat":
		var st unix.Stat_t
		err := unix.Lstat(req.Path, &st)
		return answer{Text: fmt.Sprintf("%d:%d %o", st.Uid, st.Gid, st.Mode), Err: text(err)}
	case "statfs":
		var st unix.Statfs_t
		err := unix.Statfs(req.Path, &st)
		return answer{Number: int64(st.Blocks) * st.Bsize, Err: text(err)}
	case "env":
		return answer{Text: fmt.Sprint(os.Environ())}
	case "hostname":
		h, err := os.Hostname()
		return answer{Text: h, Err: text(err)}
	case "interfaces":
		ifs, err := net.Interfaces()
		return answer{Text: fmt.Sprint(ifs), Number: int64(len(ifs)), Err: text(err)}
	case "probes":
		return answer{Probes: probes()}
	case "child":
		return run(req, req.Path, strconv.FormatInt(req.Size, 10))
	case "kill":
		return answer{Err: text(killChild(req.UID))}
	case "symlink":
		os.Remove(socket)
		return answer{Err: text(os.Symlink(req.Path, socket))}
	case "exit":
		os.Exit(7)
	}
	return answer{Err: "unknown op " + req.Op}
}

// write makes a file of the given size and returns how many bytes it has written.
func write(path string, size int64) (int64, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	for i := range buf {
		buf[i] = byte(i * 7)
	}
	var done int64
	for done < size {
		n, err := f.Write(buf[:min(int64(len(buf)), size-done)])
		done += int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, f.Sync()
}

// run starts this program again as a child, as another user if asked.
func run(req request, args ...string) answer {
	cmd := exec.Command("/.berth/guest", args...)
	if req.UID != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
			Uid: uint32(req.UID), Gid: uint32(req.UID), Groups: []uint32{}}}
	}
	out, err := cmd.CombinedOutput()
	return answer{Text: string(out), Err: text(err)}
}

func killChild(uid int) error {
	cmd := exec.Command("/.berth/guest", "sleep", "0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{
		Uid: uint32(uid), Gid: uint32(uid), Groups: []uint32{}}}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	_ = cmd.Wait()
	return nil
}

func child(args []string) {
	n, _ := strconv.ParseInt(args[1], 10, 64)
	switch args[0] {
	case "sleep":
		select {}
	case "status":
		b, err := os.ReadFile("/proc/self/status")
		if err != nil {
			fatal(err)
		}
		os.Stdout.Write(b)
	case "touch":
		f, err := os.Create(fmt.Sprintf("/workspace/by-%d", os.Getuid()))
		if err != nil {
			fatal(err)
		}
		f.Close()
	case "eat":
		buf := make([]byte, n)
		for i := 0; i < len(buf); i += 4096 {
			buf[i] = 1
		}
		fmt.Println("ate", len(buf))
	case "fork":
		fork(int(n))
	case "spin":
		start := time.Now()
		for time.Since(start) < time.Duration(n)*time.Millisecond {
		}
		var use unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_SELF, &use)
		fmt.Print(use.Utime.Nano()/1e6 + use.Stime.Nano()/1e6)
	}
}

// fork starts n children and returns how many it got.
func fork(n int) {
	var got int
	for range n {
		cmd := exec.Command("/.berth/guest", "sleep", "0")
		if err := cmd.Start(); err != nil {
			break
		}
		defer cmd.Process.Kill()
		got++
	}
	fmt.Print(got)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// probes tries what must not work and reports each answer.
func probes() map[string]string {
	out := make(map[string]string)
	call := func(name string, nr uintptr, args ...uintptr) {
		var a [6]uintptr
		copy(a[:], args)
		fd, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		if out[name] = "ok"; errno != 0 {
			out[name] = unix.ErrnoName(errno)
		} else if int(fd) > 2 {
			unix.Close(int(fd))
		}
	}
	call("bpf", unix.SYS_BPF)
	call("io_uring_setup", unix.SYS_IO_URING_SETUP, 1)
	call("userfaultfd", unix.SYS_USERFAULTFD)
	call("keyctl", unix.SYS_KEYCTL)
	call("add_key", unix.SYS_ADD_KEY)
	call("perf_event_open", unix.SYS_PERF_EVENT_OPEN)
	call("mount", unix.SYS_MOUNT)
	call("fsopen", unix.SYS_FSOPEN)
	call("setns", unix.SYS_SETNS)
	call("unshare_user", unix.SYS_UNSHARE, unix.CLONE_NEWUSER)
	call("clone_user", unix.SYS_CLONE, unix.CLONE_NEWUSER|unix.CLONE_NEWNS|uintptr(unix.SIGCHLD))
	call("clone3", unix.SYS_CLONE3)
	call("settimeofday", unix.SYS_SETTIMEOFDAY)
	for name, family := range map[string]uintptr{
		"AF_UNIX": unix.AF_UNIX, "AF_INET": unix.AF_INET, "AF_INET6": unix.AF_INET6, "AF_VSOCK": unix.AF_VSOCK,
		"AF_ALG": unix.AF_ALG, "AF_KEY": unix.AF_KEY, "AF_PACKET": unix.AF_PACKET, "AF_TIPC": unix.AF_TIPC,
	} {
		call(name, unix.SYS_SOCKET, family, unix.SOCK_DGRAM)
	}
	call("netlink_route", unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	call("netlink_netfilter", unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	call("netlink_audit", unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT)
	call("mknod", unix.SYS_MKNODAT, ^uintptr(99), cstr("/workspace/dev"), unix.S_IFBLK|0o600, 7<<8)
	call("chroot", unix.SYS_CHROOT, cstr("/"))
	out["write_proc_sys"] = text(os.WriteFile("/proc/sys/kernel/core_pattern", []byte("|/x"), 0))
	out["write_cgroup"] = text(os.Mkdir("/sys/fs/cgroup/x", 0o755))
	out["write_memory_cgroup"] = text(os.Mkdir("/sys/fs/cgroup/memory/x", 0o755))
	out["write_guest"] = text(os.WriteFile("/.berth/guest", nil, 0))
	out["subvolume"] = subvolume("/workspace")
	out["reflink"] = reflink("/workspace")
	return out
}

func cstr(s string) uintptr {
	b, _ := unix.BytePtrFromString(s)
	return uintptr(unsafe.Pointer(b))
}

// subvolume tries to make one in dir, where no quota of ours would hold.
func subvolume(dir string) string {
	f, err := os.Open(dir)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	var args [4096]byte
	copy(args[8:], "escape")
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), 0x5000940e, uintptr(unsafe.Pointer(&args)))
	if errno != 0 {
		return unix.ErrnoName(errno)
	}
	return "ok"
}

func reflink(dir string) string {
	src, err := os.Create(filepath.Join(dir, "src"))
	if err != nil {
		return err.Error()
	}
	defer src.Close()
	io.WriteString(src, "x")
	dst, err := os.Create(filepath.Join(dir, "dst"))
	if err != nil {
		return err.Error()
	}
	defer dst.Close()
	if err := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())); err != nil {
		return err.Error()
	}
	return "ok"
}

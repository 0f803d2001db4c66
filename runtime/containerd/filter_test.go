package containerd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/mountns"
)

// TestFilterIsLikeRuncs compares the filter of a sandbox that a setup program made with that of one that runc made,
// as the kernel has them. Both must answer every system call alike, with arguments at and beside every value that a
// rule names.
func TestFilterIsLikeRuncs(t *testing.T) {
	r := needsScripts(t)
	_, pid := startByScript(t, r)
	ours := filterIn(t, pid)
	again := runcAlone(r)
	id, _ := startTest(t, r, proto.ClassRunc)
	again()
	pid, err := r.bundles.LivePID(id)
	if err != nil {
		t.Fatal(err)
	}
	runcs := filterIn(t, pid)
	values := []uint64{0, 1, 2, 3, 8, 9, 10, 15, 16, 17, 40, 0x20000, 0x20008, 0xffffffff, 1 << 32, 1<<32 | 1, ^uint64(0),
		0x40049409, 0x4020940d, 0x5000940e, 0x9400, 0x5401, 1<<32 | 0x40049409}
	for bit := range 64 {
		values = append(values, 1<<bit, 0x9400^1<<bit)
	}
	numbers := []uint32{1 << 30, 1<<30 | 1, 1<<30 | 451, 1 << 31, ^uint32(0), ^uint32(0) - 1, 1000}
	for n := range uint32(600) {
		numbers = append(numbers, n)
	}
	compared, allowed := 0, 0
	for _, audit := range []uint32{uint32(arch.X86_64.ID), uint32(arch.I386.ID), uint32(arch.AARCH64.ID), 0} {
		for _, number := range numbers {
			for _, value := range values {
				for _, args := range [][6]uint64{{value}, {1, value}, {16, 3, value}, {2, value, 0}} {
					want, have := answer(t, runcs, audit, number, args), answer(t, ours, audit, number, args)
					if compared++; want == 0x7fff0000 {
						allowed++
					}
					if want != have {
						t.Fatalf("architecture %#x, call %d %q %#x: %#x, runc's %#x", audit, number,
							arch.X86_64.SyscallNumbers[int(number)], args, have, want)
					}
				}
			}
		}
	}
	if allowed == 0 || allowed == compared {
		t.Errorf("%d of %d calls are allowed", allowed, compared)
	}
	t.Logf("%d calls compared, %d allowed; %d instructions, runc's %d", compared, allowed, len(ours.raw), len(runcs.raw))
}

// A loadedFilter is a filter that can be asked.
type loadedFilter struct {
	raw []unix.SockFilter
	vm  *bpf.VM
}

func filterIn(t *testing.T, pid int) (f loadedFilter) {
	t.Helper()
	var err error
	if f.raw, err = filterOf(pid); err != nil {
		t.Fatal(err)
	}
	var program []bpf.Instruction
	for _, i := range f.raw {
		program = append(program, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K}.Disassemble())
	}
	if f.vm, err = bpf.NewVM(program); err != nil {
		t.Fatal(err)
	}
	return f
}

// answer returns what a filter answers to a call. The virtual machine reads words in network order, so every word of
// struct seccomp_data is written so.
func answer(t *testing.T, f loadedFilter, audit, number uint32, args [6]uint64) uint32 {
	t.Helper()
	data := binary.BigEndian.AppendUint32(nil, number)
	data = binary.BigEndian.AppendUint32(data, audit)
	data = append(data, make([]byte, 8)...) // instruction pointer
	for _, a := range args {
		data = binary.BigEndian.AppendUint32(data, uint32(a))
		data = binary.BigEndian.AppendUint32(data, uint32(a>>32))
	}
	got, err := f.vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(got)
}

// TestForkServerOff checks that BERTH_FORKSERVER=off makes runc start every sandbox, with a user namespace of its own
// as before.
func TestForkServerOff(t *testing.T) {
	t.Setenv("BERTH_FORKSERVER", "off")
	r := openTest(t)
	for range 2 {
		id, _ := startTest(t, r, proto.ClassRunc)
		if byScript(r, id) {
			t.Error("a setup program made the sandbox")
		}
		if _, err := os.Stat(filepath.Join(r.bundles.Path(id), "config.json")); err != nil {
			t.Errorf("runc has no configuration: %v", err)
		}
		if got := ask(t, r, id, guestRequest{Op: "ping"}).Text; got != "pong" {
			t.Errorf("it answers %q", got)
		}
		if iso, err := r.Inspect(t.Context(), id); err != nil || !iso.OwnCounts {
			t.Errorf("%+v, %v", iso, err)
		}
	}
	if why := r.SetupFailure(); why != nil {
		t.Errorf("a failure is reported: %v", why)
	}
}

const ptraceGetFilter = 0x420c // PTRACE_SECCOMP_GET_FILTER

// filterOf returns the system call filter of a process, as the kernel runs it. It stops the process for that. It
// needs root, a kernel with CONFIG_CHECKPOINT_RESTORE and a test that has no filter itself.
func filterOf(pid int) (filter []unix.SockFilter, err error) {
	done := make(chan struct{})
	go mountns.OffMain(func() { // ptrace belongs to one thread
		defer close(done)
		filter, err = traceFilter(pid)
	})
	<-done
	if err != nil {
		return nil, fmt.Errorf("reading the filter of process %d: %w", pid, err)
	}
	return filter, nil
}

func traceFilter(pid int) (filter []unix.SockFilter, err error) {
	if err := unix.PtraceSeize(pid); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unix.PtraceDetach(pid)) }()
	if err := unix.PtraceInterrupt(pid); err != nil {
		return nil, err
	}
	if err := awaitStop(pid); err != nil {
		return nil, err
	}
	n, _, errno := unix.Syscall6(unix.SYS_PTRACE, ptraceGetFilter, uintptr(pid), 0, 0, 0, 0)
	if errno != 0 {
		return nil, errno
	}
	if _, _, errno = unix.Syscall6(unix.SYS_PTRACE, ptraceGetFilter, uintptr(pid), 1, 0, 0, 0); errno != unix.ENOENT {
		return nil, fmt.Errorf("there is not one filter: %w", errno)
	}
	filter = make([]unix.SockFilter, n)
	if _, _, errno = unix.Syscall6(unix.SYS_PTRACE, ptraceGetFilter, uintptr(pid), 0,
		uintptr(unsafe.Pointer(unsafe.SliceData(filter))), 0, 0); errno != 0 {
		return nil, errno
	}
	return filter, nil
}

// stopTime is the time limit for a waiting process to stop.
const stopTime = time.Second

// awaitStop waits until a process that this thread traces has stopped. It polls, because the kernel has no wait for
// this with a time limit.
func awaitStop(pid int) error {
	for end := time.Now().Add(stopTime); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		var status unix.WaitStatus
		n, err := unix.Wait4(pid, &status, unix.WALL|unix.WNOHANG, nil)
		switch {
		case err == unix.EINTR || err == nil && n == 0:
		case err != nil:
			return err
		case status.Stopped():
			return nil
		default:
			return unix.ESRCH
		}
	}
	return fmt.Errorf("it did not stop: %w", unix.ETIMEDOUT)
}

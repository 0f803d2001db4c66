package sockets

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBothWaysAgree checks that the kernel and its tables tell the same of sockets of both families.
func TestBothWaysAgree(t *testing.T) {
	var want []Listener
	for _, at := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"} {
		ln, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		raw, err := ln.(*net.TCPListener).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := raw.Control(func(fd uintptr) { _ = unix.Fstat(int(fd), &st) }); err != nil {
			t.Fatal(err)
		}
		addr := ln.Addr().(*net.TCPAddr).AddrPort()
		want = append(want, Listener{netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), st.Ino})
	}
	asked, err := askKernel(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	var read []Listener
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6", "/proc/net/none"} {
		more, err := readTable(table, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, more...)
	}
	for _, l := range want {
		if !slices.Contains(asked, l) {
			t.Errorf("the kernel does not tell %v", l)
		}
		if !slices.Contains(read, l) {
			t.Errorf("the tables do not have %v", l)
		}
	}
	if some, err := askKernel(2); err != nil || len(some) != 2 {
		t.Errorf("at most two: %v %v", some, err)
	}
}

// TestKernelIsAskedAgain checks that a lack of descriptors is not taken for a lack of sock_diag.
func TestKernelIsAskedAgain(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	_, err := Listening(4)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.EMFILE) || noDiag.Load() {
		t.Errorf("%v, and sock_diag counts as missing: %v", err, noDiag.Load())
	}
	for err, want := range map[error]bool{unix.EPROTONOSUPPORT: true, unix.EACCES: true, unix.ENOENT: true,
		unix.EAGAIN: false, unix.EMFILE: false, errShort: false} {
		if lacksDiag(err) != want {
			t.Errorf("%v says that sock_diag is missing: %v", err, !want)
		}
	}
}

// FuzzAnswer checks that no answer makes the parser fail badly.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x10\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Add(slices.Concat([]byte("\x58\x00\x00\x00\x14\x00\x02\x00"), make([]byte, 80)))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if list, _, err := parseAnswer(nil, data, 4); err == nil && len(list) > 4 {
			t.Errorf("%d sockets of at most 4", len(list))
		}
		_, _ = parseLine(string(data))
	})
}

func BenchmarkAsk(b *testing.B) {
	for b.Loop() {
		if _, err := askKernel(1024); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for b.Loop() {
		if _, err := readTable("/proc/net/tcp", 1024); err != nil {
			b.Fatal(err)
		}
	}
}

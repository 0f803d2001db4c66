package capacity

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"berth/test/needs"
)

func TestMain(m *testing.M) {
	needs.Main("hold up system calls of other users")
	os.Exit(m.Run())
}

func TestParse(t *testing.T) {
	got := parse([]byte("layer 100 30\nworkspace 5 9\nnew 1\nodd x 1\nminus -1 2\n"))
	if len(got) != 2 || got["layer"].left() != 70 || got["workspace"].left() != 0 {
		t.Errorf("%+v", got)
	}
}

// TestFilter checks that the kernel asks about two calls, in the machine's own architecture, and about no other.
func TestFilter(t *testing.T) {
	var program []bpf.Instruction
	for _, f := range filter() {
		program = append(program, bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K}.Disassemble())
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []uint32{auditArch(), unix.AUDIT_ARCH_I386} {
		for number := range uint32(600) {
			want := uint32(retAllow)
			if arch == auditArch() && (number == unix.SYS_STATFS || number == unix.SYS_FSTATFS) {
				want = retNotify
			}
			data := []byte{byte(number >> 24), byte(number >> 16), byte(number >> 8), byte(number), byte(arch >> 24),
				byte(arch >> 16), byte(arch >> 8), byte(arch)} // the virtual machine reads the other byte order
			if got, err := vm.Run(data); uint32(got) != want || err != nil {
				t.Fatalf("architecture %#x, call %d: %#x %v, want %#x", arch, number, got, err, want)
			}
		}
	}
}

// TestAnswers runs programs that the guest would answer, as root and as another user: the sizes of the root are those
// of the figures, also through links and relative paths, and everything else is the kernel's answer.
func TestAnswers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "figures")
	const limit, used = 1 << 30, 1 << 29
	if err := os.WriteFile(path, fmt.Appendf(nil, "layer %d %d\n", limit, used), 0o644); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`
size() { stat -f -c '%%b %%S' -- "$1" 2>&1 | awk '/^[0-9]/ {print $1 * $2; next} {print}'; }
size /; cd /; size etc; size /proc/self/root; size /proc/1; size /nowhere; size %s
`, strings.Repeat("x/", 3000))
	wholeRoot := kernelSize(t, "/")
	for _, uid := range []int{0, 4321} {
		lines := strings.Split(runAnswered(t, path, uid, script), "\n")
		if len(lines) < 6 {
			t.Fatalf("user %d: %q", uid, lines)
		}
		for i, want := range []string{fmt.Sprint(limit), fmt.Sprint(limit), wholeRoot, "0", "No such file", "too long"} {
			if !strings.Contains(lines[i], want) || i < 4 && lines[i] != want {
				t.Errorf("user %d, answer %d is %.300q, want %q", uid, i, lines[i], want)
			}
		}
	}
}

// kernelSize is the size that the kernel gives, as awk prints it.
func kernelSize(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "stat -f -c '%b %S' "+path+" | awk '{print $1 * $2}'").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// runAnswered runs a script on a thread whose children are answered. The thread ends with it.
func runAnswered(t *testing.T, figures string, uid int, script string) string {
	t.Helper()
	type result struct {
		out string
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // for good: the filter stays on the thread
		err := start(figures)
		if err != nil {
			done <- result{err: err}
			return
		}
		out, err := exec.Command("setpriv", "--reuid", fmt.Sprint(uid), "--regid", fmt.Sprint(uid), "--clear-groups",
			"sh", "-c", script).Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		done <- result{string(out), err}
	}()
	got := <-done
	if got.err != nil {
		t.Fatal(got.err)
	}
	return got.out
}

// TestFiguresThatHang checks that the kernel answers when the figures do not come.
func TestFiguresThatHang(t *testing.T) {
	path := filepath.Join(t.TempDir(), "figures")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	s := &server{path: path, figures: make(chan figures, 1)}
	for range 2 {
		if got := s.read(); got != nil {
			t.Fatalf("figures %v", got)
		}
	}
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteString("layer 2 1\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for s.read() == nil { // the reader that was late
	}
}

package notify

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// listen makes a manager's socket and names it in the environment.
func listen(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return c
}

func receive(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1024)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

// TestMessages checks what the manager gets, and that no child process inherits the right to speak to it.
func TestMessages(t *testing.T) {
	c := listen(t)
	m, err := FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	if _, left := os.LookupEnv("NOTIFY_SOCKET"); left {
		t.Error("the variable is still there")
	}
	// A line break would begin an assignment.
	for want, send := range map[string]func() error{
		"READY=1\nSTATUS=a b":         func() error { return m.Ready("a\nb") },
		"STATUS=x READY=1":            func() error { return m.Status("x\nREADY=1") },
		"STOPPING=1\nSTATUS=stopping": m.Stopping,
	} {
		if err := send(); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	c.Close()
	if err := m.Ready("after the manager has gone"); err != nil {
		t.Errorf("a manager that is gone: %v", err)
	}
}

// TestNoManager checks that nothing happens without one.
func TestNoManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "1000")
	m, err := FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Ready(""), m.Reloading(), m.Stopping()); err != nil {
		t.Error(err)
	}
	m.Watch(t.Context(), func(context.Context) error { t.Error("it was asked for a sign of life"); return nil })
}

// TestWatchdogVariables checks whose variables count, and that nonsense is refused.
func TestWatchdogVariables(t *testing.T) {
	for _, tt := range []struct {
		usec, pid string
		want      time.Duration
		fails     bool
	}{
		{"", "", 0, false}, {"2000000", "", 2 * time.Second, false},
		{"2000000", strconv.Itoa(os.Getpid()), 2 * time.Second, false}, {"2000000", "1", 0, false},
		{"soon", "", 0, true}, {"-1", "", 0, true}, {"0", "", 0, true},
	} {
		listen(t)
		t.Setenv("WATCHDOG_USEC", tt.usec)
		t.Setenv("WATCHDOG_PID", tt.pid)
		m, err := FromEnvironment()
		if (err != nil) != tt.fails || err == nil && m.watchdog != tt.want {
			t.Errorf("%q, %q: %+v, %v", tt.usec, tt.pid, m, err)
		}
	}
}

// TestWatchAsksEachTime checks that signs of life are asked for twice in each interval, and end with the context.
func TestWatchAsksEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		m := &Manager{watchdog: 10 * time.Second}
		asked, ended := 0, make(chan struct{})
		go func() {
			defer close(ended)
			m.Watch(ctx, func(each context.Context) error {
				if end, ok := each.Deadline(); !ok || time.Until(end) > 5*time.Second {
					t.Error("the question has no end in time")
				}
				asked++
				return errors.New("it hangs")
			})
		}()
		time.Sleep(20*time.Second + time.Millisecond)
		synctest.Wait()
		if asked != 5 {
			t.Errorf("asked %d times in 20 s", asked)
		}
		cancel()
		<-ended
	})
}

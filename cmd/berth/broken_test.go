package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// A wire forwards connections to a daemon until they are cut.
type wire struct {
	net.Listener
	to string

	mu   sync.Mutex
	live []net.Conn
	wg   sync.WaitGroup
}

// wireTo puts a wire between a user and the daemon.
func wireTo(t *testing.T, u *user) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l}
	for i, e := range u.env {
		if host, ok := strings.CutPrefix(e, "BERTH_HOST=http://"); ok {
			w.to, u.env[i] = host, "BERTH_HOST=http://"+l.Addr().String()
		}
	}
	w.wg.Go(w.accept)
	t.Cleanup(func() {
		l.Close()
		w.cut()
		w.wg.Wait()
	})
	return w
}

func (w *wire) accept() {
	for {
		near, err := w.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.to)
		if err != nil {
			near.Close()
			continue
		}
		w.mu.Lock()
		w.live = append(w.live, near, far)
		w.mu.Unlock()
		for _, ends := range [][2]net.Conn{{near, far}, {far, near}} {
			w.wg.Go(func() {
				io.Copy(ends[0], ends[1])
				ends[0].Close()
			})
		}
	}
}

// cut breaks all connections.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.live {
		c.Close()
	}
	w.live = nil
}

// through puts a proxy between a user and the daemon. It calls first for each request and does not forward a request
// that first handled.
func through(t *testing.T, u *user, first func(w http.ResponseWriter, r *http.Request) (handled bool)) {
	t.Helper()
	for i, e := range u.env {
		if host, ok := strings.CutPrefix(e, "BERTH_HOST="); ok {
			to, err := url.Parse(host)
			if err != nil {
				t.Fatal(err)
			}
			on := httputil.NewSingleHostReverseProxy(to)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !first(w, r) {
					on.ServeHTTP(w, r)
				}
			}))
			t.Cleanup(s.Close)
			u.env[i] = "BERTH_HOST=" + s.URL
		}
	}
}

// TestLogsGoOnAfterABreak checks that following a log over a broken connection loses and repeats no output.
func TestLogsGoOnAfterABreak(t *testing.T) {
	u := newUser(t)
	w := wireTo(t, &u)
	c := u.berth(t, "create")
	u.berth(t, "exec", "-c", "mkfifo $JOB_DIR/go", c)
	u.berth(t, "exec", "-d", "-c", "echo one; read x < $JOB_DIR/go; echo two", c)
	r := u.start(t, "logs", "-f", c)
	if got := r.line(t); got != "one" {
		t.Fatalf("%q", got)
	}
	w.cut()
	u.berth(t, "exec", "-c", "echo > $JOB_DIR/go", c)
	rest, err := io.ReadAll(r.out)
	if got := statusOf(t, r.Wait()); err != nil || got != 0 || string(rest) != "two\n" {
		t.Errorf("%q, %v, status %d, %s", rest, err, got, r.stderr.String())
	}
}

// TestAuditGoesOnAfterABreak checks the same for the audit log, while others write to it.
func TestAuditGoesOnAfterABreak(t *testing.T) {
	u := newUser(t)
	near := user{append([]string(nil), u.env...)}
	w := wireTo(t, &near)
	r := near.start(t, "audit", "tail", "-f", "--act", "container.create")
	for range 2 {
		c := u.berth(t, "create")
		if got := r.line(t); !strings.Contains(got, c) {
			t.Fatalf("%q, not %s; %s", got, c, r.stderr.String())
		}
		w.cut()
	}
	if err := r.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if got := statusOf(t, r.Wait()); got != 130 || strings.Contains(r.stderr.String(), "EOF") {
		t.Errorf("status %d, %s", got, r.stderr.String())
	}
}

// TestAuditToAFullDisk checks that a full disk behind standard output ends the command, and is not taken for a daemon
// that is down.
func TestAuditToAFullDisk(t *testing.T) {
	u := newUser(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	u.berth(t, "create")
	cmd := u.command("audit", "tail", "-f")
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = full, &stderr
	if got := statusOf(t, cmd.Run()); got != 125 || strings.Contains(stderr.String(), "went away") {
		t.Errorf("status %d, %s", got, stderr.String())
	}
}

// TestTooLargeAFile checks that the error has the limit of files, not that of the form around the file.
func TestTooLargeAFile(t *testing.T) {
	u := newUser(t)
	through(t, &u, func(w http.ResponseWriter, r *http.Request) bool {
		large := r.Method == http.MethodPost && r.URL.Path == "/v1/files"
		if large {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			io.WriteString(
				w, `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds 524353536 bytes."}}`)
		}
		return large
	})
	cmd := u.command("files", "put", "broken_test.go")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if got := statusOf(t, cmd.Run()); got != 125 ||
		!strings.Contains(stderr.String(), "files of at most 524288000 bytes") ||
		strings.Contains(stderr.String(), "524353536") {
		t.Errorf("status %d, %s", got, stderr.String())
	}
}

// TestExecOverABrokenConnection checks that a command goes on over a broken connection, and ends soon if its client
// does not come back.
func TestExecOverABrokenConnection(t *testing.T) {
	u := newUser(t)
	w := wireTo(t, &u)
	c := u.berth(t, "create")
	u.berth(t, "exec", "-c", "mkfifo /tmp/go", c)
	r := u.start(t, "exec", "-c", "echo ready; read word </tmp/go; echo $word; exit 3", c)
	r.line(t)
	w.cut()
	u.berth(t, "exec", "-c", "echo on >/tmp/go", c)
	if got := r.line(t); got != "on" {
		t.Errorf("%q", got)
	}
	if got := statusOf(t, r.Wait()); got != 3 || r.stderr.Len() > 0 {
		t.Errorf("status %d, %s", got, r.stderr.String())
	}
	r = u.start(t, "exec", "-c", "echo ready; sleep 1000", c)
	r.line(t)
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Who waits for its end by the API would keep it.
	for end := time.Now().Add(time.Minute); u.berth(t, "ps", "--running", "-q", c) != ""; time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatal("it goes on without a client")
		}
	}
}

// TestInputThatBreaksOff checks that a command ends if its input breaks off, even with a key: it would wait for the
// rest forever.
func TestInputThatBreaksOff(t *testing.T) {
	u := newUser(t)
	c := u.berth(t, "create")
	through(t, &u, func(w http.ResponseWriter, r *http.Request) bool {
		lost := strings.HasSuffix(r.URL.Path, "/stdin")
		if lost {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return lost
	})
	for _, flags := range [][]string{{"-i"}, {"-i", "--idempotency-key", "k"}} {
		cmd := u.command(append(append([]string{"exec"}, flags...), c, "cat")...)
		var stderr strings.Builder
		cmd.Stdin, cmd.Stderr = strings.NewReader("some"), &stderr
		if got := statusOf(t, cmd.Run()); got != 125 ||
			!strings.HasPrefix(stderr.String(), "berth: passing on standard input: ") {
			t.Errorf("%v: status %d, %s", flags, got, stderr.String())
		}
	}
}

// TestInterruptedBesideTheCommand checks that --rm deletes the container if the user interrupts berth before the
// command has started or during the deletion.
func TestInterruptedBesideTheCommand(t *testing.T) {
	for name, tt := range map[string]struct {
		stalls func(r *http.Request) bool
		status int
	}{
		"before": {func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/live") }, 130},
		"after":  {func(r *http.Request) bool { return r.Method == http.MethodDelete }, 7},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUser(t)
			near := user{append([]string(nil), u.env...)}
			stalled, goOn := make(chan struct{}, 1), make(chan struct{})
			through(t, &near, func(_ http.ResponseWriter, r *http.Request) bool {
				if tt.stalls(r) {
					stalled <- struct{}{}
					select {
					case <-goOn:
					case <-r.Context().Done():
					}
				}
				return r.Context().Err() != nil
			})
			r := near.start(t, "run", "--rm", "-c", "exit 7")
			<-stalled
			if err := r.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if name == "after" {
				close(goOn)
			}
			if got := statusOf(t, r.Wait()); got != tt.status {
				t.Errorf("status %d, %s", got, r.stderr.String())
			}
			if left := u.berth(t, "ls", "-q"); left != "" {
				t.Errorf("left: %s", left)
			}
		})
	}
}

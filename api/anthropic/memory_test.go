package anthropic

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/api"
	"berth/files"
	"berth/state/ledger"
)

// TestMain lets the test program be a server in a process of its own, whose memory nobody else uses.
func TestMain(m *testing.M) {
	if dir := os.Getenv("BERTH_SERVE_DIR"); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve serves the edge until SIGTERM and prints its address first.
func serve(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	db, err := ledger.Open(filepath.Join(dir, "ledger.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	store, err := files.Open(files.Config{Dir: filepath.Join(dir, "files"), Ledger: db})
	if err != nil {
		return err
	}
	defer store.Close()
	srv, err := api.New(api.Config{Auth: twoKeys{}, Edges: []api.Edge{New(Config{Files: store, MaxFileBytes: store.MaxFileBytes()})}})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return srv.Serve(ctx, l)
}

// A remote is a server in another process.
type remote struct {
	cmd  *exec.Cmd
	addr string
}

func startRemote(t *testing.T) *remote {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BERTH_SERVE_DIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	r := &remote{cmd, strings.TrimSpace(line)}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return r
}

// peak is the most memory the process has had resident, in bytes.
func (r *remote) peak(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatal("no VmHWM in /proc; this test needs Linux")
	return 0
}

// upload sends a file of size bytes; announce says whether with a Content-Length.
func (r *remote) upload(t *testing.T, size int64, announce bool) (int, string) {
	t.Helper()
	kind, empty := formOf(filePart("big.bin", "application/octet-stream", ""))
	cut := bytes.LastIndex(empty, []byte("\r\n--"))
	body := io.MultiReader(bytes.NewReader(empty[:cut]), io.LimitReader(neverEnds{}, size), bytes.NewReader(
		empty[cut:]))
	req, err := http.NewRequest("POST", "http://"+r.addr+"/v1/files", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"X-Api-Key": {annKey}, "Anthropic-Version": {"2026-10-21"}, "Content-Type": {kind}}
	if announce {
		req.ContentLength = int64(len(empty)) + size
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var answer struct{ ID string }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, answer.ID
}

type neverEnds struct{}

func (neverEnds) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Row 14, and what fifty clients who ask for 500 MB and do not read it cost.
func TestMemoryStaysFlat(t *testing.T) {
	const most = 40 << 20 // growth; one upload held in memory would be 500 MB
	r := startRemote(t)
	if status, _ := r.upload(t, 1000, true); status != 200 {
		t.Fatalf("status %d", status)
	}
	before := r.peak(t)
	status, id := r.upload(t, files.DefaultMaxFileBytes, true)
	if status != 200 {
		t.Fatalf("500 MB: status %d", status)
	}
	if status, _ := r.upload(t, files.DefaultMaxFileBytes+1, false); status != 413 {
		t.Fatalf("one byte more: status %d", status)
	}
	for range 50 {
		conn, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /v1/files/%s/content HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nAnthropic-Version: "+
			"2026-10-21\r\n\r\n", id, annKey)
		if _, err := io.ReadFull(conn, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if grown := r.peak(t) - before; grown > most {
		t.Fatalf("memory grew by %d MiB, from %d MiB", grown>>20, before>>20)
	} else {
		t.Logf("memory grew by %d KiB, from %d MiB", grown>>10, before>>20)
	}
}

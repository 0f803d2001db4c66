package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/proto"
	"berth/test/daemontest"
	"berth/test/needs"

	"github.com/gorilla/websocket"
)

// These tests run the real daemon in its own process; see daemontest.

// A server is a berth daemon under test.
type server struct{ *daemontest.Daemon }

// warmMembers is the size of base's settled warm pool. The pool keeps exactly so many, so that tests can count them.
const warmMembers = 2

// base is a daemon with the base image. Tests share it, since unpacking the image takes long.
var base *server

func TestMain(m *testing.M) {
	needs.Main("run the daemon with real containers")
	os.Exit(func() int {
		d, err := daemontest.New("--stop-on-exit", "--sweep-every", "1s", "--warm-max", strconv.Itoa(warmMembers))
		if err != nil {
			fmt.Fprintln(os.Stderr, "preparing the daemon tests:", err)
			return 1
		}
		defer d.Close()
		base = &server{d}
		return m.Run()
	}())
}

// call sends a JSON request and decodes the answer. A status other than want fails the test.
func call[T any](t testing.TB, s *server, want int, method, path, body string) T {
	t.Helper()
	var v T
	status, out, err := s.Do(method, path, strings.NewReader(body))
	if err != nil || status != want {
		t.Fatalf("%s %s: %d %v %s", method, path, status, err, out)
	}
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, out)
	}
	return v
}

func create(t testing.TB, s *server) proto.Container {
	t.Helper()
	c := call[proto.Container](t, s, 201, "POST", "/v1/containers",
		`{"limits":{"memory_bytes":268435456,"disk_bytes":268435456}}`)
	t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/containers/"+c.ID, nil) })
	return c
}

func bash(t testing.TB, s *server, id, text string) proto.ExecResult {
	t.Helper()
	cmd, _ := json.Marshal(proto.Cmd{Command: text})
	return call[proto.ExecResult](t, s, 200, "POST", "/v1/containers/"+id+"/exec", string(cmd))
}

func TestKilledDaemonLosesNothing(t *testing.T) {
	s := base
	var live []proto.Container
	for i := range 5 {
		c := create(t, s)
		live = append(live, c)
		bash(t, s, c.ID, fmt.Sprintf("echo file %d >note; touch /tmp/same", i))
	}
	background := call[proto.Exec](t, s, 202, "POST", "/v1/containers/"+live[0].ID+"/exec",
		`{"command":"echo begun; sleep 1000","background":true}`)
	cut := make(chan error, 1)
	go func() {
		_, _, err := s.Do("POST", "/v1/containers/"+live[1].ID+"/exec", strings.NewReader(`{"command":"sleep 1001"}`))
		cut <- err
	}()
	waitRunning(t, s, live[1].ID)
	s.Stop(syscall.SIGKILL)
	if err := <-cut; err == nil {
		t.Error("a request outlived its daemon")
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	for i, c := range live {
		res := bash(t, s, c.ID, "cat note; test -e /tmp/same && echo same sandbox")
		if want := fmt.Sprintf("file %d\nsame sandbox\n", i); res.Result.Result == nil ||
			res.Result.Result.Stdout != want {
			t.Errorf("container %d: %+v", i, res.Result)
		}
	}
	if on := call[proto.Exec](t, s, 200, "GET", "/v1/containers/"+live[0].ID+"/execs/"+background.ID,
		""); on.State != proto.ExecRunning {
		t.Errorf("the background exec is told as %+v", on)
	}
	list := call[struct{ Data []proto.Exec }](t, s, 200, "GET", "/v1/containers/"+live[1].ID+"/execs", "")
	if len(list.Data) < 2 || list.Data[1].End == nil || list.Data[1].End.Reason != proto.EndLost ||
		!strings.Contains(list.Data[1].End.Message, "daemon was restarted") {
		t.Errorf("the foreground exec is told as %+v", list.Data)
	}
}

// waitRunning follows the container's events until a command runs.
func waitRunning(t *testing.T, s *server, id string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		if call[proto.Container](t, s, 200, "GET", "/v1/containers/"+id, "").RunningExecs > 0 {
			return
		}
	}
	t.Fatal("no command runs")
}

// held counts host resources of a daemon and its containers.
type held struct {
	Mounts, Cgroups, NetNamespaces, Shims, Files, Goroutines, Sandboxes int
}

// rundir returns the socket directory of the daemon's runtime. Its name depends on the data directory, so other
// daemons and concurrent tests are not counted.
func (s *server) rundir() string { return s.RunDir() }

// sandboxes returns the names of all sandboxes with their containers. A sandbox belongs to the container that took it
// from the warm pool, or to the container of the same name. A pooled sandbox looks like the latter.
func (s *server) sandboxes(t *testing.T) map[string]string {
	t.Helper()
	layers := filepath.Join("/proc", strconv.Itoa(s.PID()), "root", s.Dir, "runtime/pool/layer")
	list, err := os.ReadDir(layers)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range list {
		all[e.Name()] = e.Name()
		if claim, err := os.Readlink(filepath.Join(layers, e.Name(), "claim")); err == nil {
			all[e.Name()], _, _ = strings.Cut(claim, " ")
		}
	}
	return all
}

// workspaces counts the directories of workspaces.
func (s *server) workspaces(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(s.PID()), "root", s.Dir, "runtime", "pool", "ws"))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// sandbox returns the name of a container's current sandbox.
func (s *server) sandbox(t *testing.T, container string) string {
	t.Helper()
	for name, of := range s.sandboxes(t) {
		if of == container {
			return name
		}
	}
	t.Fatalf("container %s has no sandbox", container)
	return ""
}

// warm returns the numbers of ready and of starting sandboxes in the warm pool.
func (s *server) warm(t *testing.T) (ready, starting int) {
	t.Helper()
	_, out, err := s.Do("GET", "/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^berth_warm_members{image="[^"]*",state="(\w+)"} (\d+)$`).FindAllSubmatch(
		out, -1) {
		n, _ := strconv.Atoi(string(m[2]))
		if string(m[1]) == "ready" {
			ready += n
		} else {
			starting += n
		}
	}
	return ready, starting
}

// awaitWarm waits until the warm pool is full.
func (s *server) awaitWarm(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		ready, starting := s.warm(t)
		if ready == warmMembers && starting == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the warm pool has %d and makes %d, want %d", ready, starting, warmMembers)
		}
	}
}

// holds counts the daemon's current resources and what is left of the given containers.
func (s *server) holds(t *testing.T, containers []string) held {
	t.Helper()
	pid := strconv.Itoa(s.PID())
	mounts, err := os.ReadFile("/proc/" + pid + "/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	fds, _ := os.ReadDir("/proc/" + pid + "/fd")
	runs, err := os.ReadDir(filepath.Join("/proc", pid, "root", s.Dir, "runtime/pool/layer"))
	if err != nil {
		t.Fatal(err)
	}
	h := held{Mounts: bytes.Count(mounts, []byte("\n")), Files: len(fds), Sandboxes: len(runs), Goroutines: s.metric(
		t, "go_goroutines")}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && namesAny(d.Name(), containers) {
			h.Cgroups++
		}
		return nil
	})
	nets := map[string]bool{}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		cmd, _ := os.ReadFile(p + "/cmdline")
		shim := bytes.Contains(cmd, []byte("containerd-shim-runc-v2")) && bytes.Contains(cmd, []byte(s.rundir()))
		count(&h.Shims, shim)
		if cgroup, _ := os.ReadFile(p + "/cgroup"); !shim && namesAny(string(cgroup), containers) {
			// a zombie has no namespace
			if net, err := os.Readlink(p + "/ns/net"); err == nil {
				nets[net] = true
			}
		}
	}
	h.NetNamespaces = len(nets)
	return h
}

func count(n *int, is bool) {
	if is {
		*n++
	}
}

func namesAny(text string, ids []string) bool {
	return strings.Contains(text, proto.ContainerPrefix) &&
		slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(text, id) })
}

func (s *server) metric(t *testing.T, name string) int {
	t.Helper()
	_, out, err := s.Do("GET", "/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("no metric %s", name)
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int(v)
}

func TestRoundsLeaveNothingBehind(t *testing.T) {
	s := base
	const rounds, workers = 200, 4
	var mu sync.Mutex // guards made
	var made []string
	id := regexp.MustCompile(`container_[0-9A-Za-z]{22}`)
	round := func() error {
		status, out, err := s.Do("POST", "/v1/exec", strings.NewReader(
			`{"command":"echo $RANDOM >f; (sleep 100 &); cat f","ephemeral":true,"create":{"limits":{"disk_bytes":67108864}}}`))
		if err != nil || status != 200 || !bytes.Contains(out, []byte(`"return_code":0`)) {
			return fmt.Errorf("%d %v %s", status, err, out)
		}
		mu.Lock()
		defer mu.Unlock()
		made = append(made, id.FindString(string(out)))
		return nil
	}
	live := create(t, s)
	if h := s.holds(t, []string{s.sandbox(t, live.ID)}); h.Shims > 0 || h.Cgroups == 0 || h.NetNamespaces == 0 ||
		h.Sandboxes == 0 {
		t.Fatalf("a live container is not seen: %+v", h)
	}
	if status, out, err := s.Do("DELETE", "/v1/containers/"+live.ID, nil); status != 200 {
		t.Fatalf("%d %v %s", status, err, out)
	}
	for range workers { // creates what is made once and kept
		if err := round(); err != nil {
			t.Fatal(err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	before := s.settled(t, held{}, made)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds / workers {
				if err := round(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	http.DefaultClient.CloseIdleConnections()
	after := s.settled(t, before, made)
	if after.Mounts > before.Mounts || after.Cgroups > before.Cgroups || after.NetNamespaces > before.NetNamespaces ||
		after.Shims > before.Shims ||
		after.Sandboxes > before.Sandboxes || after.Files > before.Files+4 || after.Goroutines > before.Goroutines+8 {
		t.Errorf("%d rounds left something behind: before %+v, after %+v", rounds, before, after)
	}
}

// settled waits up to 20 s until the resources do not exceed want. The kernel and containerd release namespaces, idle
// connections and timers with a delay.
func (s *server) settled(t *testing.T, want held, containers []string) held {
	t.Helper()
	s.awaitWarm(t)
	h := s.holds(t, containers)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); h = s.holds(t, containers) {
		if want == (held{}) && h.Shims == 0 && h.Sandboxes == warmMembers {
			return h
		}
		if h.Mounts <= want.Mounts && h.Shims <= want.Shims && h.NetNamespaces <= want.NetNamespaces &&
			h.Goroutines <= want.Goroutines && h.Files <= want.Files {
			return h
		}
	}
	return h
}

// peak returns the daemon's maximum resident set since the last reset, in MiB.
func (s *server) peak(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	kb, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kb >> 10
}

func TestMemoryStaysBounded(t *testing.T) {
	s := base
	s.Stop(syscall.SIGTERM) // the image import must not count
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	const limit = 200 // MiB
	c := create(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	flood := call[proto.Exec](t, s, 202, "POST", "/v1/containers/"+c.ID+"/exec",
		`{"command":"head -c 2000000000 /dev/zero | tr '\\0' x","background":true}`)
	var readers sync.WaitGroup
	for range 50 {
		conn, _, err := websocket.DefaultDialer.Dial(strings.Replace(s.URL, "http", "ws", 1)+"/v1/containers/"+c.ID+
			"/live", http.Header{"X-Api-Key": {s.Key}})
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.WriteJSON(map[string]any{"type": "attach", "ref": "a", "exec_id": flood.ID}); err != nil {
			t.Fatal(err)
		}
		readers.Go(func() {
			defer conn.Close()
			<-ctx.Done() // never reads
		})
	}
	if err := s.upload(500 << 20); err != nil {
		t.Fatal(err)
	}
	res := call[proto.ExecResult](t, s, 200, "GET", "/v1/containers/"+c.ID+"/execs/"+flood.ID+
		"/result?wait_seconds=120", "")
	if res.Exec.StdoutBytes != 2_000_000_000 || !res.Exec.Truncated {
		t.Errorf("the flood ended as %+v", res.Exec)
	}
	if mb := s.peak(t); mb > limit {
		t.Errorf("the daemon's resident memory reached %d MiB, the limit is %d", mb, limit)
	} else {
		t.Logf("peak resident memory: %d MiB", mb)
	}
	cancel()
	readers.Wait()
}

// upload streams n bytes to the Files API.
func (s *server) upload(n int64) error {
	pr, pw := io.Pipe()
	form := multipart.NewWriter(pw)
	go func() {
		part, err := form.CreateFormFile("file", "big.bin")
		if err == nil {
			_, err = io.CopyN(part, zeros{}, n)
		}
		if err == nil {
			err = form.Close()
		}
		pw.CloseWithError(err)
	}()
	req, err := http.NewRequest("POST", s.URL+"/v1/files", pr)
	if err != nil {
		return err
	}
	req.Header.Set("X-Api-Key", s.Key)
	req.Header.Set("anthropic-version", "2023-06-01")
	req.Header.Set("Content-Type", form.FormDataContentType())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != 200 {
		body, _ := io.ReadAll(res.Body)
		return fmt.Errorf("uploading: %d %s", res.StatusCode, body)
	}
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestNoNetworkAndTheBaseImageWorks(t *testing.T) {
	s := base
	c := create(t, s)
	for text, want := range map[string]string{
		"ip -o link 2>/dev/null | wc -l || ls /sys/class/net":                                                  "",
		"ls /sys/class/net | tr '\\n' ' '":                                                                     "lo ",
		"getent hosts example.com || echo no name":                                                             "no name\n",
		"timeout 3 bash -c '</dev/tcp/169.254.169.254/80' 2>/dev/null || echo no tcp":                          "no tcp\n",
		"python3 -c 'import numpy, pandas, matplotlib, openpyxl, PIL, requests; print(numpy.arange(4).sum())'": "6\n",
		"for p in node git jq rg fd sqlite3 bc unzip 7z; do command -v $p >/dev/null || echo missing $p; done": "",
		"nproc >/dev/null; cat /proc/self/status | grep -E 'NoNewPrivs|Seccomp:' | tr -d '\\t\\n '":            "NoNewPrivs:1Seccomp:2",
	} {
		r := bash(t, s, c.ID, text).Result.Result
		if r == nil || want != "" && r.Stdout != want || strings.Contains(r.Stdout, "missing") {
			t.Errorf("%s: %+v", text, r)
		}
	}
	res := bash(t, s, c.ID, "python3 -c 'x = bytearray(400 << 20)'")
	if res.Exec.End.Reason != proto.EndOutOfMemory {
		t.Errorf("a memory bomb ended as %+v", res.Exec.End)
	}
	if r := bash(t, s, c.ID, "head -c 400M /dev/zero >/workspace/big; echo $?").Result.Result; r == nil ||
		strings.HasSuffix(r.Stdout, "0\n") {
		t.Errorf("400 MiB went into a workspace of 256: %+v", r)
	}
}

// TestStartNamesTheMissingImage checks that the log of a first start says which image is missing and what to type.
func TestStartNamesTheMissingImage(t *testing.T) {
	d := &daemontest.Daemon{Dir: t.TempDir(), Flags: []string{"--image", "nosuch", "--stop-on-exit"}}
	t.Cleanup(func() { d.Close() })
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	// The line follows the one for which Start waits.
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(d.Log(), `image=nosuch do="berth image build base"`) {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not name the image:\n%s", d.Log())
		}
		if _, _, err := d.Do("GET", "/v1/info", nil); err != nil {
			t.Fatal(err)
		}
	}
}

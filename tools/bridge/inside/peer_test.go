package inside_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/tools/bridge/inside"
	"berth/tools/bridge/inside/command"
)

// A peer is a daemon for tests of what a daemon does not do on demand: it breaks connections, and reports the
// requests that it got.
type peer struct {
	*httptest.Server
	mu      sync.Mutex // guards what follows
	batches [][]call
	breaks  int           // how many requests break after their first answer
	holds   time.Duration // nonzero: they break after this time, before any answer
	busy    int           // how many requests are answered with 503
	fails   int           // nonzero: the status of every answer
	meet    chan struct{}
	extra   bool // the list has one more tool
	hung    chan struct{}
}

type call struct {
	ID    string         `json:"id"`
	Tool  string         `json:"tool"`
	Input map[string]any `json:"input"`
}

const token = "the-token"

const listed = `{"name": "add", "description": "Adds two numbers.\nExactly.", "input_schema": {"type": "object", "properties":
	{"a": {"type": "integer", "description": "the first"}, "b": {"type": "integer", "default": 1}}, "required": ["a"]}},
	{"name": "echo", "description": "Gives its input back.", "input_schema": {"type": "object", "properties":
	{"url": {"type": "string"}, "n": {"type": ["integer", "null"]}, "deep": {"type": "object"}, "on": {"type": "boolean"}}}},
	{"name": "get-it", "input_schema": true}, {"name": "len", "input_schema": {}}, {"name": "fetch", "description": "Fetches.", "input_schema": {"properties": {"u": {"type": "string"}}}},
	{"name": "query", "description": "Asks.", "async": true, "input_schema": {"type": "object", "properties": {"sql": {"type": "string"}}}}`

func newPeer(t *testing.T) *peer {
	p := &peer{hung: make(chan struct{}), meet: make(chan struct{})}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+token {
		w.WriteHeader(401)
		fmt.Fprint(w, `{"error": {"type": "authentication_error", "message": "who are you?"}}`)
		return
	}
	if status := p.off(); status != 0 {
		w.WriteHeader(status)
		fmt.Fprint(w, `{"error": {"type": "RuntimeError", "message": "not now"}}`)
		return
	}
	if r.URL.Path == "/v1/tools" {
		p.mu.Lock()
		defer p.mu.Unlock()
		fmt.Fprint(w, `{"tools": [`+listed)
		if p.extra {
			fmt.Fprint(w, `, {"name": "late", "input_schema": {}}`)
		}
		fmt.Fprint(w, "]}")
		return
	}
	var req struct{ Calls []call }
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		w.WriteHeader(400)
		return
	}
	p.answer(w, r, req.Calls)
}

// off returns the status of a busy or failing daemon, or 0.
func (p *peer) off() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy--; p.busy >= 0 {
		return http.StatusServiceUnavailable
	}
	return p.fails
}

func (p *peer) answer(w http.ResponseWriter, r *http.Request, calls []call) {
	p.mu.Lock()
	p.batches = append(p.batches, calls)
	breaks := p.breaks > 0
	p.breaks--
	p.mu.Unlock()
	if breaks && p.holds > 0 {
		time.Sleep(p.holds) // the connection has to last this long
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := make(chan []byte)
	for _, c := range calls {
		go func() { lines <- p.line(r, c) }()
	}
	for range calls {
		line := <-lines
		_, _ = w.Write(line[:len(line)/2]) // each half is a chunk
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(line[len(line)/2:])
		_ = http.NewResponseController(w).Flush()
		if breaks {
			panic(http.ErrAbortHandler)
		}
	}
}

func (p *peer) line(r *http.Request, c call) []byte {
	out := map[string]any{"id": c.ID}
	fail := func(kind, text string) { out["error"] = map[string]string{"type": kind, "message": text} }
	switch c.Tool {
	case "add":
		a, ok := c.Input["a"].(float64)
		b, has := c.Input["b"].(float64)
		if !has {
			b = 1
		}
		if out["result"] = a + b; !ok {
			fail("ValueError", "a is missing")
		}
	case "echo", "get-it", "len", "late":
		out["result"] = c.Input
	case "meet": // waits for another concurrent call
		select {
		case p.meet <- struct{}{}:
		case <-p.meet:
		case <-time.After(10 * time.Second):
			fail("TimeoutError", "nobody else is there")
		}
		out["result"] = 1
	case "fetch":
		out["result"] = fmt.Sprintf("page %v ünï", c.Input["u"])
	case "query":
		out["result"] = map[string]any{"rows": []int{1}}
	case "slow":
		<-r.Context().Done()
		close(p.hung)
	case "hung":
		select {
		case <-p.hung:
		case <-r.Context().Done():
		}
	case "missing":
		fail("NameError", "tool missing is not registered")
	case "broken":
		fail("Exotic", "it broke")
	default:
		fail("PermissionError", "tool "+c.Tool+" is not on the list")
	}
	b, _ := json.Marshal(out)
	return append(b, '\n')
}

// count returns the number of requests, of calls, and of different calls.
func (p *peer) count() (requests, calls, distinct int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := map[string]bool{}
	for _, b := range p.batches {
		requests, calls = requests+1, calls+len(b)
		for _, c := range b {
			ids[c.ID] = true
		}
	}
	return requests, calls, len(ids)
}

// unpack extracts the archive into a directory, as the root of a container, with this program as the guest.
func unpack(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(inside.Archive())); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		name := filepath.Join(root, h.Name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(name), 0o755)
		}
		if err == nil && h.Typeflag == tar.TypeSymlink {
			err = os.Symlink(h.Linkname, name)
		} else if err == nil {
			var b []byte
			b, err = io.ReadAll(r)
			err = errorsFirst(err, os.WriteFile(name, b, h.FileInfo().Mode()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err = errorsFirst(err, os.Symlink(self, filepath.Join(root, ".berth/guest"))); err != nil {
		t.Fatal(err)
	}
	return root
}

func errorsFirst(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestMain is the guest's program if it is started as the command.
func TestMain(m *testing.M) {
	if args, ok := command.Asked(os.Args); ok {
		os.Exit(command.Main(args))
	}
	os.Exit(m.Run())
}

// run runs a program with the tools of p, and returns its output.
func (p *peer) run(t *testing.T, argv ...string) (stdout, stderr string, status int) {
	t.Helper()
	root := unpack(t)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = root
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "BERTH_TOOLS="+p.URL, "BERTH_TOOLS_TOKEN="+token)
	for _, kv := range inside.Lists {
		name, dir, _ := strings.Cut(kv, "=")
		cmd.Env = append(cmd.Env, name+"="+root+dir+":"+os.Getenv(name))
	}
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// languages has the command line that runs a program, by language.
var languages = map[string]func(text string) []string{
	"python": func(text string) []string { return []string{"python3", "-c", text} },
	"node":   func(text string) []string { return []string{"node", "-e", text} },
	"module": func(text string) []string { return []string{"node", "--input-type=module", "-e", text} },
	"bash":   func(text string) []string { return []string{"bash", "-c", text} },
}

// Package mcpclients_test has the official clients of the Model Context Protocol use the real daemon: both generations
// of the TypeScript and the Python SDK, the Go SDK, the inspector's command line, and the protocol's conformance suite.
package mcpclients_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/test/clients"
	"berth/test/daemontest"
	"berth/test/needs"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestClients(t *testing.T) {
	needs.Containers(t)
	node, python, python1 := install(t, "ts", clients.Node), install(t, "py", clients.Python), install(t, "py1",
		clients.Python)
	d, err := daemontest.New("--stop-on-exit")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	interpreter := func(dir string) string { return filepath.Join(dir, "venv", "bin", "python") }
	t.Run("typescript", func(t *testing.T) { program(t, d, 13, "node", filepath.Join(node, "main.mjs")) })
	t.Run("python", func(t *testing.T) {
		program(t, d, 13, interpreter(python), filepath.Join(python, "main.py"))
	})
	t.Run("single/typescript", func(t *testing.T) { program(t, d, 13, "node", filepath.Join(node, "main.single.mjs")) })
	t.Run("single/python", func(t *testing.T) {
		program(t, d, 13, interpreter(python), filepath.Join(python, "main.single.py"))
	})
	t.Run("go", func(t *testing.T) { goClients(t, d) })
	large := filepath.Join(python, "main.large.py")
	t.Run("large/python1", func(t *testing.T) { program(t, d, 14, interpreter(python1), large) })
	t.Run("large/python2", func(t *testing.T) { program(t, d, 14, interpreter(python), large) })
	large = filepath.Join(node, "main.large.mjs")
	t.Run("large/typescript1", func(t *testing.T) { program(t, d, 8, "node", large, "sdk") })
	t.Run("large/typescript2", func(t *testing.T) { program(t, d, 8, "node", large, "client") })
	t.Run("inspector", func(t *testing.T) { inspect(t, d, node) })
	t.Run("conformance", func(t *testing.T) { conform(t, d, node) })
	t.Run("restart", func(t *testing.T) { restart(t, d) })
	for _, line := range d.Faults() {
		t.Errorf("the daemon had an error of its own: %s", line)
	}
}

// environ is what programs need to find the daemon.
func environ(d *daemontest.Daemon) []string {
	bin, _ := daemontest.Binary() // daemontest.New has failed without one
	return append(os.Environ(), "BERTH_URL="+d.URL, "BERTH_HOST="+d.URL, "BERTH_API_KEY="+d.Key, "BERTH_BINARY="+bin)
}

// program runs a client's program and makes a subtest of each line that it reports. There must be at least that many.
func program(t *testing.T, d *daemontest.Daemon, least int, name string, args ...string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = environ(d)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Errorf("%v\n%s\n%s", err, out, stderr.String())
	}
	clients.Report(t, out, least)
}

// goClients has clients of the Go SDK use one container: of both generations, over HTTP and pipes.
func goClients(t *testing.T, d *daemontest.Daemon) {
	bin, _ := daemontest.Binary()
	for _, c := range []struct{ name, version, used string }{{"single", "", "2026-07-28"},
		{"session", "2025-11-25", "2025-11-25"}} {
		bridge := exec.Command(bin, "mcp")
		bridge.Env = environ(d)
		for j, transport := range []mcp.Transport{
			&mcp.StreamableClientTransport{Endpoint: d.URL + "/mcp",
				HTTPClient: &http.Client{Transport: withKey(d.Key)}},
			&mcp.CommandTransport{Command: bridge},
		} {
			client := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, nil)
			cs, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: c.version})
			if err != nil {
				t.Fatalf("%s, transport %d: %v", c.name, j, err)
			}
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "list_containers"})
			if used := cs.InitializeResult().ProtocolVersion; err != nil || res.IsError || used != c.used {
				t.Errorf("%s, transport %d, version %s: %v %v", c.name, j, used, res, err)
			}
			args := map[string]any{"command": "echo x >>/workspace/go; wc -l </workspace/go"}
			if c.version == "" {
				args["container"] = "go-clients"
			}
			res, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "bash", Arguments: args})
			want := "1\n" // the first in the container, and each session has one of its own
			if c.version == "" && j == 1 {
				want = "2\n"
			}
			if err != nil || !strings.HasPrefix(res.Content[0].(*mcp.TextContent).Text, want) {
				t.Errorf("%s, transport %d: %v %v", c.name, j, res, err)
			}
			if err := cs.Close(); err != nil {
				t.Errorf("%s, transport %d: %v", c.name, j, err)
			}
		}
	}
}

// withKey sends every request with an API key.
type withKey string

func (key withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Api-Key", string(key))
	return http.DefaultTransport.RoundTrip(r)
}

// inspect uses the inspector's command line as people do.
func inspect(t *testing.T, d *daemontest.Daemon, node string) {
	if major := nodeMajor(t); major < 20 {
		t.Skipf("the inspector needs Node 20 or newer; this machine has %d", major)
	}
	bin, _ := daemontest.Binary()
	command := []string{filepath.Join(node, "node_modules", ".bin", "mcp-inspector"), "--cli"}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"list", []string{d.URL + "/mcp", "--transport", "http", "--header", "X-Api-Key: " + d.Key, "--method",
			"tools/list"}, `"name": "code_executor"`},
		{"call", []string{d.URL + "/mcp", "--transport", "http", "--header", "X-Api-Key: " + d.Key, "--method",
			"tools/call", "--tool-name", "run_code", "--tool-arg", "code=6*7"}, `"42"`},
		{"stdio", []string{bin, "mcp", "-e", "BERTH_HOST=" + d.URL, "-e", "BERTH_API_KEY=" + d.Key, "--method",
			"tools/call", "--tool-name", "bash", "--tool-arg", "command=echo $((6*7))"}, `"text": "42\n"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, command[0], append(command[1:], c.args...)...)
			cmd.Env = environ(d)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func nodeMajor(t *testing.T) (major int) {
	out, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	if err == nil {
		_, err = fmt.Sscanf(string(out), "v%d.", &major)
	}
	if err != nil {
		t.Fatalf("node --version: %v %s", err, out)
	}
	return major
}

// scenarios are those of the conformance suite that any server can pass. The others ask for tools, prompts and
// resources by names that only a server made for the suite has.
var scenarios = []string{"server-initialize", "ping", "tools-list", "resources-list", "server-sse-multiple-streams",
	"dns-rebinding-protection"}

// conform runs the suite. It knows no API keys, so a proxy adds one.
func conform(t *testing.T, d *daemontest.Daemon, node string) {
	target, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
		r.Out.Header.Set("X-Api-Key", d.Key)
	}}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The proxy looks for the end of a body that it has sent. If the answer begins before that, net/http has
		// closed the body, and the proxy breaks the connection off in the middle of the answer.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		forward.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	for _, name := range scenarios {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(node, "node_modules", ".bin", "conformance"), "server",
				"--url", proxy.URL+"/mcp", "--scenario", name)
			cmd.Dir = t.TempDir()
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), " 0 failed") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// A bridge begins its session again when the daemon that had it is gone, and its client goes on. A container that was
// named is there as it was; one that belonged to the session is another one.
func restart(t *testing.T, d *daemontest.Daemon) {
	var made struct{ ID string }
	status, body, err := d.Do("POST", "/v1/containers", strings.NewReader("{}"))
	if err != nil || status != 201 || json.Unmarshal(body, &made) != nil {
		t.Fatalf("%d %s %v", status, body, err)
	}
	b := startBridge(t, d, "--container", made.ID)
	b.ask(
		t,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	b.tell(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	b.ask(
		t,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"bash","arguments":{"command":"echo kept >/workspace/kept"}}}`)
	listen := strings.TrimPrefix(d.URL, "http://")
	d.Stop(syscall.SIGTERM)
	flags := d.Flags
	d.Flags = append([]string{"--listen", listen}, flags...)
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	d.Flags = flags
	if got := b.ask(
		t,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"bash","arguments":{"command":"cat /workspace/kept"}}}`); !strings.Contains(got, `"id":3`) || !strings.Contains(got, `"text":"kept\n`) {
		t.Errorf("after the restart: %s", got)
	}
	if got := b.ask(t, `not JSON`); !strings.Contains(got, "-32700") {
		t.Errorf("what is no message: %s", got)
	}
}

// A bridge is a `berth mcp`.
type bridge struct {
	in  *bufio.Writer
	out *bufio.Reader
}

func startBridge(t *testing.T, d *daemontest.Daemon, args ...string) bridge {
	t.Helper()
	bin, _ := daemontest.Binary()
	// ended by the end of its input, which is later than the test's context
	cmd := exec.Command(bin, append([]string{"mcp"}, args...)...)
	cmd.Env, cmd.Stderr = environ(d), t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("berth mcp: %v", err)
		}
	})
	return bridge{bufio.NewWriter(in), bufio.NewReader(out)}
}

func (b bridge) tell(t *testing.T, line string) {
	t.Helper()
	_, err := b.in.WriteString(line + "\n")
	if err == nil {
		err = b.in.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (b bridge) ask(t *testing.T, line string) string {
	t.Helper()
	b.tell(t, line)
	got, err := b.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v %s", line, err, got)
	}
	return got
}

// install gives the directory in which a client's program and what it needs are.
func install(t *testing.T, name, command string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(name, "*.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", name, err)
	}
	return clients.Install(t, "mcp-"+name, command, files...)
}

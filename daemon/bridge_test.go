package daemon_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"berth/proto"
	"berth/test/daemontest"
	"berth/tools/bridge"
	"berth/tools/bridge/provider"
	"berth/tools/bridge/remote"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// callbackSecret is the secret that signs calls.
const callbackSecret = "0123456789abcdef-secret"

// A host provides tools in two ways: a server that receives calls as POST requests, and an MCP server.
type host struct {
	*server
	tools *httptest.Server
	made  atomic.Int64 // number of posted calls of add
	hold  chan struct{}
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{hold: make(chan struct{})}
	type pair struct{ A, B int }
	m := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	mcp.AddTool(m, &mcp.Tool{Name: "multiply"}, func(_ context.Context, _ *mcp.CallToolRequest, in pair) (
		*mcp.CallToolResult, map[string]int, error) {
		return nil, map[string]int{"product": in.A * in.B}, nil
	})
	mcp.AddTool(m, &mcp.Tool{Name: "fails"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult,
		any, error) {
		return nil, nil, fmt.Errorf("it does not want to")
	})
	m.AddTool(&mcp.Tool{Name: "odd", InputSchema: json.RawMessage(
		`{"type":"object","properties":{"a":{"$ref":"https://example.com/schema"}}}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{}, nil
		})
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return m }, nil))
	mux.HandleFunc("POST /call", func(w http.ResponseWriter, r *http.Request) { h.answer(t, w, r) })
	mux.HandleFunc("POST /away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/call", http.StatusTemporaryRedirect)
	})
	h.tools = httptest.NewServer(mux)
	t.Cleanup(func() { close(h.hold); h.tools.Close() })
	d, err := daemontest.New("--stop-on-exit", "--warm-max", "2", "--tools-callback", strings.TrimPrefix(h.tools.URL,
		"http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	h.server = &server{d}
	return h
}

// answer is the handler for posted calls.
func (h *host) answer(t *testing.T, w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	mac := hmac.New(sha256.New, []byte(callbackSecret))
	fmt.Fprintf(mac, "%s.%s", r.Header.Get(remote.HeaderTimestamp), body)
	if r.Header.Get(remote.HeaderSignature) != "sha256="+hex.EncodeToString(mac.Sum(nil)) ||
		r.Header.Get("X-Mine") != "yes" {
		t.Errorf("%v", r.Header)
	}
	var c provider.Call
	if err := json.Unmarshal(body, &c); err != nil || c.ID == "" || c.ExecID == "" || c.ContainerID == "" {
		t.Errorf("%s %v", body, err)
	}
	var in struct{ A, B int }
	_ = json.Unmarshal(c.Input, &in)
	switch c.Tool {
	case "add":
		h.made.Add(1)
		fmt.Fprintf(w, `{"result":{"sum":%d}}`, in.A+in.B)
	case "hold":
		select {
		case <-h.hold:
		case <-r.Context().Done():
		}
	case "huge":
		fmt.Fprintf(w, `{"result":"%s"}`, strings.Repeat("x", 5<<20))
	case "odd":
		fmt.Fprint(w, `{"result":{"sum":"none"}}`)
	default:
		fmt.Fprint(w, `{"error":{"type":"ValueError","message":"no"}}`)
	}
}

// grant returns the body of a request for a container whose calls are posted.
func (h *host) grant(class proto.RuntimeClass, path string) string {
	sum := `{"type":"object","properties":{"sum":{"type":"integer"}}}`
	return fmt.Sprintf(
		`{"runtime_class":%q,"limits":{"memory_bytes":536870912},"code_tools":{"allow":["add","hold","huge","odd","raise","missing",{"name":"pay","approval":"review"}],"timeout_seconds":20,"max_calls":60,
"provider":{"type":"http","url":%q,"secret":%q,"headers":{"X-Mine":"yes"},"tools":[{"name":"add","output_schema":%s},{"name":"hold"},{"name":"huge"},{"name":"odd","output_schema":%s},{"name":"raise"},{"name":"pay"}]}}}`,
		class, h.tools.URL+path, callbackSecret, sum, sum)
}

func (h *host) container(t *testing.T, body string) string {
	t.Helper()
	c := call[proto.Container](t, h.server, 201, "POST", "/v1/containers", body)
	t.Cleanup(func() { _, _, _ = h.Do("DELETE", "/v1/containers/"+c.ID, nil) })
	return c.ID
}

// toolsClient is a program that repeats calls to tools until they answer, each under the same name.
const toolsClient = `
import http.client, json, os, time, sys
def post(calls):
    while True:
        try:
            c = http.client.HTTPConnection("127.0.0.1", 3129, timeout=100)
            c.request("POST", "/v1/calls", json.dumps({"calls": calls}), {"Authorization": "Bearer " + os.environ["BERTH_TOOLS_TOKEN"]})
            lines = [json.loads(l) for l in c.getresponse()]
            if len(lines) == len(calls): return sorted(lines, key=lambda l: int(l["id"]))
        except (OSError, http.client.HTTPException): pass
        time.sleep(0.05)
n = 0
def call(tool, **input):
    global n; n += 1
    l = post([{"id": str(n), "tool": tool, "input": input}])[0]
    return l.get("result", l.get("error"))
`

// code runs such a program in the background.
func (h *host) code(t *testing.T, container, text string) proto.Exec {
	t.Helper()
	body, _ := json.Marshal(proto.Cmd{Argv: []string{"python3", "-c", toolsClient + text}, Background: true})
	return call[proto.Exec](t, h.server, 202, "POST", "/v1/containers/"+container+"/exec", string(body))
}

// says checks the output of an exec.
func (h *host) says(t *testing.T, container string, x proto.Exec, want string) {
	t.Helper()
	res := call[proto.ExecResult](t, h.server, 200, "GET", "/v1/containers/"+container+"/execs/"+x.ID+
		"/result?wait_seconds=60", "")
	if r := res.Result.Result; r == nil || strings.TrimSpace(r.Stdout) != want {
		t.Errorf("said %+v %+v, want %s", r, res.Exec.End, want)
	}
}

func TestToolBridge(t *testing.T) {
	h := newHost(t)
	t.Run("http", func(t *testing.T) { eachClass(t, h.testHTTP) })
	t.Run("mcp", h.testMCP)
	t.Run("killed", func(t *testing.T) { eachClass(t, h.testKilled) })
	t.Run("refused", h.testRefused)
}

// testHTTP checks that code in a real container can call a server's tools, many at once, and gets errors as known
// exceptions.
func (h *host) testHTTP(t *testing.T, class proto.RuntimeClass) {
	id := h.container(t, h.grant(class, "/call"))
	for text, want := range map[string]string{
		`print(sum(l["result"]["sum"] for l in post([{"id": str(i), "tool": "add", "input": {"a": i, "b": 1}} for i in range(50)])))`: "1275",
		`print(call("raise"))`:        `{'type': 'ValueError', 'message': 'no'}`,
		`print(call("huge")["type"])`: "RuntimeError",
		`print(call("odd")["message"])`: "the result of odd does not match its schema: result.sum: got string, " +
			"want integer",
		`print(call("missing")["type"])`: "NameError",
		`print(call("other")["type"])`:   "PermissionError",
		`print(len([i for i in range(70) if "sum" in call("add", a=i, b=1)]), call("add", a=1, b=1)["message"])`: "60 this command has made 60 calls, which is its limit",
	} {
		h.says(t, id, h.code(t, id, text), want)
	}
	away := h.container(t, h.grant(class, "/away"))
	h.says(t, away, h.code(t, away, `print(call("add", a=1, b=1)["message"])`), "the server that answers add "+
		"responded with status 307")
	plain := h.container(t, fmt.Sprintf(`{"runtime_class":%q,"limits":{"memory_bytes":536870912}}`, class))
	res := bash(t, h.server, plain,
		`env | grep -c BERTH_TOOLS; (exec 3<>/dev/tcp/127.0.0.1/3129) 2>/dev/null && echo there || echo nothing there`)
	if r := res.Result.Result; r == nil || r.Stdout != "0\nnothing there\n" {
		t.Errorf("a container without tools: %+v", r)
	}
}

func (h *host) testMCP(t *testing.T) {
	id := h.container(
		t, fmt.Sprintf(`{"code_tools":{"allow":["multiply","fails","odd"],"provider":{"type":"mcp","url":%q}}}`,
			h.tools.URL+"/mcp"))
	for text, want := range map[string]string{
		`print(call("multiply", A=6, B=7))`:           "{'product': 42}",
		`print(call("multiply", A="6", B=7)["type"])`: "ValueError",
		// its schema is a reference to another place, which is not followed
		`print(call("odd", a=1)["type"])`: "NameError",
		`print(call("fails"))`:            "{'type': 'RuntimeError', 'message': 'it does not want to'}",
	} {
		h.says(t, id, h.code(t, id, text), want)
	}
}

// testKilled checks that a call that waits for approval survives a killed daemon. It is approved under the next
// daemon and made once. A call that a server already had is not repeated.
func (h *host) testKilled(t *testing.T, class proto.RuntimeClass) {
	id := h.container(t, h.grant(class, "/call"))
	paying := h.code(t, id, `print(call("pay", to="you"))`)
	held := h.code(t, id, `print(call("hold")["message"])`)
	one := h.awaitCall(t, id, proto.CallParked)
	h.awaitCall(t, id, proto.CallRunning)
	h.Stop(syscall.SIGKILL)
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	if again := h.awaitCall(t, id, proto.CallParked); again.ID != one.ID || string(again.Input) != `{"to":"you"}` {
		t.Fatalf("%+v, %+v before", again, one)
	}
	path := "/v1/containers/" + id + "/tool_calls/" + one.ID
	call[bridge.ToolCall](t, h.server, 200, "POST", path+"/approve", "")
	call[any](t, h.server, 409, "POST", path+"/approve", "")
	h.says(t, id, paying, "{'type': 'ValueError', 'message': 'no'}")
	h.says(t, id, held, "the daemon was restarted while hold ran; whether it did anything is unknown, so it was not "+
		"called again")
	if done := call[bridge.ToolCall](t, h.server, 200, "GET", path, ""); done.State != proto.CallFailed ||
		done.Decision == nil {
		t.Errorf("%+v", done)
	}
	made := h.made.Load()
	h.says(t, id, h.code(t, id, `print(call("add", a=1, b=2)["sum"])`), "3")
	if h.made.Load() != made+1 {
		t.Errorf("%d calls of one", h.made.Load()-made)
	}
}

// awaitCall waits for a call in the given state.
func (h *host) awaitCall(t *testing.T, container string, state proto.ToolCallState) bridge.ToolCall {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		list := call[struct{ Data []bridge.ToolCall }](t, h.server, 200, "GET", "/v1/containers/"+container+
			"/tool_calls?state="+string(state), "")
		if len(list.Data) > 0 {
			return list.Data[0]
		}
		if time.Now().After(deadline) {
			t.Fatalf("no call is %s", state)
		}
	}
}

// testRefused checks that a server that the operator did not list is refused, for any form of the URL.
func (h *host) testRefused(t *testing.T) {
	for _, url := range []string{"http://127.0.0.1:1/", "http://169.254.169.254/", "http://user@" + strings.TrimPrefix(
		h.tools.URL, "http://") + "/", "file:///etc/passwd", "http://0x7f.1/", "unix:/run/x"} {
		body := fmt.Sprintf(`{"code_tools":{"allow":["a"],"provider":{"type":"mcp","url":%q}}}`, url)
		status, out, err := h.Do("POST", "/v1/containers", strings.NewReader(body))
		if err != nil || status != 400 && status != 403 || !strings.Contains(string(out), "code_tools.provider.url") {
			t.Errorf("%s: %d %v %s", url, status, err, out)
		}
	}
}

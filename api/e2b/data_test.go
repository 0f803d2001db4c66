package e2b_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"berth/api/e2b/access"
	"berth/api/e2b/connectrpc"
	"berth/proto"
)

const agent, interpreter = "49983", "49999"

// to returns the headers of a request to a port of a sandbox, with its token.
func (b box) to(port string) []string {
	return []string{"E2b-Sandbox-Id", b.SandboxID, "E2b-Sandbox-Port", port, "X-Access-Token", b.EnvdAccessToken,
		"X-API-Key", ""}
}

// rpc makes a unary call to the agent.
func (c client) rpc(t *testing.T, b box, method, body string) answer {
	t.Helper()
	return c.send(t, "POST", "/"+method, body, append(b.to(agent), "Content-Type", "application/json")...)
}

// A message is one of a stream, with the frame that ends it.
type message struct {
	Event struct {
		Start *struct{ PID int }
		Data  struct{ Stdout, Stderr, PTY []byte }
		End   *struct {
			ExitCode int
			Status   string
		}
	}
	Filesystem *struct {
		Name, Type string
		Entry      *struct{ Metadata map[string]string }
	}
	Error *connectrpc.Body
}

// A call is a stream of the agent.
type call struct {
	t    *testing.T
	body io.ReadCloser
	in   *bufio.Reader
}

func (c client) stream(t *testing.T, b box, method, body string, headers ...string) *call {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", c.server.URL+"/"+method,
		bytes.NewReader(connectrpc.AppendFrame(nil, 0, []byte(body))))
	if err != nil {
		t.Fatal(err)
	}
	headers = append(b.to(agent), headers...)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(res.Body)
		t.Fatalf("%s: %d %s", method, res.StatusCode, data)
	}
	return &call{t, res.Body, bufio.NewReader(res.Body)}
}

// next reads a message. ended says that it is the frame that ends the stream.
func (c *call) next() (m message, ended bool, err error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(c.in, head); err != nil {
		return m, false, err
	}
	data := make([]byte, int(head[3])<<8|int(head[4]))
	if _, err := io.ReadFull(c.in, data); err != nil {
		return m, false, err
	}
	return m, head[0] == 2, json.Unmarshal(data, &m)
}

// must is next for a message that must be there.
func (c *call) must() message {
	c.t.Helper()
	m, _, err := c.next()
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// rest reads to the end of the stream and returns the output, and what ended it.
func (c *call) rest() (stdout string, last message) {
	c.t.Helper()
	for {
		m, ended, err := c.next()
		if err != nil {
			c.t.Fatal(err)
		}
		stdout += string(m.Event.Data.Stdout) + string(m.Event.Data.PTY)
		if m.Event.End != nil {
			last = m
		}
		if ended {
			if m.Error != nil {
				last = m
			}
			return stdout, last
		}
	}
}

// start is a request for a process.
func start(argv ...string) string {
	body, _ := json.Marshal(map[string]any{"process": map[string]any{"cmd": argv[0], "args": argv[1:]}, "tag": "t"})
	return string(body)
}

func TestProcesses(t *testing.T) {
	c := newSite(t).client(t, "ann")
	b := c.create(t, `{"templateID":"base","envVars":{"X":"sandbox"}}`)
	for _, p := range []struct {
		argv   []string
		out    string
		status string
	}{
		{[]string{"sh", "-c", "echo $X; exit 3"}, "sandbox\n", "exit status 3"},
		{[]string{"sh", "-c", "kill -TERM $$"}, "", "signal: terminated"},
		{[]string{"true"}, "", "exit status 0"}, {[]string{"/no/such"}, "", "exit status 127"},
	} {
		s := c.stream(t, b, "process.Process/Start", start(p.argv...))
		if m := s.must(); m.Event.Start == nil {
			t.Errorf("%v begins with %+v", p.argv, m)
		}
		if out, last := s.rest(); out != p.out || last.Event.End == nil || last.Event.End.Status != p.status {
			t.Errorf("%v: %q and %+v, want %q and %s", p.argv, out, last.Event.End, p.out, p.status)
		}
	}
	s := c.stream(t, b, "process.Process/Start", start("sleep", "1000"), "Connect-Timeout-Ms", "100")
	if _, last := s.rest(); last.Error == nil || last.Error.Code != connectrpc.DeadlineExceeded {
		t.Errorf("a process over its time limit ends with %+v", last)
	}
	s = c.stream(t, b, "process.Process/Start", `{"process":{"cmd":"true","cwd":"/no/such"}}`)
	if m := s.must(); m.Error == nil || m.Error.Code != connectrpc.InvalidArgument ||
		m.Error.Message != "cwd '/no/such' does not exist" {
		t.Errorf("a directory that is not there: %+v", m.Error)
	}
}

// TestProcessesOutliveTheirClients checks that a client may go, and that another one gets all output of its process.
func TestProcessesOutliveTheirClients(t *testing.T) {
	c := newSite(t).client(t, "ann")
	b := c.create(t, `{"templateID":"base"}`)
	s := c.stream(t, b, "process.Process/Start", start("sh", "-c", "echo first; cat; echo last"))
	if s.must().Event.Start == nil || string(s.must().Event.Data.Stdout) != "first\n" {
		t.Fatal("the process does not start")
	}
	s.body.Close()
	list := c.rpc(t, b, "process.Process/List", "{}")
	if list.status != 200 || !strings.Contains(list.body, `"tag":"t"`) {
		t.Errorf("the list is %d %s", list.status, list.body)
	}
	again := c.stream(t, b, "process.Process/Connect", `{"process":{"tag":"t"}}`)
	in := base64.StdEncoding.EncodeToString([]byte("fed\n"))
	for _, r := range [][2]string{{"SendInput", `{"process":{"tag":"t"},"input":{"stdin":"` + in + `"}}`},
		{"CloseStdin", `{"process":{"tag":"t"}}`}} {
		want[any](t, c.rpc(t, b, "process.Process/"+r[0], r[1]), http.StatusOK)
	}
	if out, last := again.rest(); out != "first\nfed\nlast\n" || last.Event.End == nil {
		t.Errorf("the second client got %q and %+v", out, last)
	}
	none := want[connectrpc.Body](t, c.rpc(t, b, "process.Process/SendSignal",
		`{"process":{"pid":99999},"signal":"SIGNAL_SIGKILL"}`), http.StatusNotFound)
	if none.Code != connectrpc.NotFound || none.Message != "process with pid 99999 not found" {
		t.Errorf("a process that is not there: %+v", none)
	}
}

func TestStreamedInput(t *testing.T) {
	c := newSite(t).client(t, "ann")
	b := c.create(t, `{"templateID":"base"}`)
	s := c.stream(t, b, "process.Process/Start", start("head", "-n", "2"))
	s.must()
	var frames []byte
	for _, m := range []string{`{"start":{"process":{"tag":"t"}}}`, `{"keepalive":{}}`,
		`{"data":{"input":{"stdin":"YQo="}}}`, `{"data":{"input":{"stdin":"Ygo="}}}`} {
		frames = connectrpc.AppendFrame(frames, 0, []byte(m))
	}
	got := c.send(t, "POST", "/process.Process/StreamInput", string(frames), b.to(agent)...)
	if got.status != 200 || strings.Contains(got.body, "error") {
		t.Errorf("streamed input: %d %q", got.status, got.body)
	}
	if out, _ := s.rest(); out != "a\nb\n" {
		t.Errorf("the process wrote %q", out)
	}
}

// TestStreamsBreakOff checks that a stream ends without its last frame when the sandbox does, and what clients then
// hear of the sandbox.
func TestStreamsBreakOff(t *testing.T) {
	c := newSite(t).client(t, "ann")
	for what, end := range map[string][2]string{"kill": {"DELETE", ""}, "timeout": {"POST", "/timeout"}} {
		b := c.create(t, `{"templateID":"base"}`)
		s := c.stream(t, b, "process.Process/Start", start("sleep", "1000"))
		watch := c.stream(t, b, "filesystem.Filesystem/WatchDir", `{"path":"/"}`)
		s.must()
		watch.must()
		want[any](t, c.send(t, end[0], "/sandboxes/"+b.SandboxID+end[1], `{"timeout":0}`), http.StatusNoContent)
		for _, one := range []*call{s, watch} {
			if m, ended, err := one.next(); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: the stream goes on with %+v, %v, %v", what, m, ended, err)
			}
		}
		gone := want[box](t, c.send(t, "GET", "/health", "", b.to(agent)...), http.StatusBadGateway)
		if gone.Message != "The sandbox was not found" || gone.Code != 502 {
			t.Errorf("%s: /health says %+v", what, gone)
		}
	}
}

// TestKillDespiteAReader checks that a client that reads nothing does not hold up the end of a sandbox until the server
// gives that client up, which takes a minute.
func TestKillDespiteAReader(t *testing.T) {
	c := newSite(t).client(t, "ann")
	b := c.create(t, `{"templateID":"base"}`)
	c.stream(t, b, "process.Process/Start", start("truncate", "-s", "1G", "/workspace/large")).rest()
	conn, err := net.Dial("tcp", c.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req, err := http.NewRequest("GET", c.server.URL+"/files?path=/workspace/large", nil)
	if err != nil {
		t.Fatal(err)
	}
	headers := b.to(agent)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	if res, err := http.ReadResponse(bufio.NewReader(conn), req); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%+v, %v", res, err)
	}
	for tries := 0; !blocked(); tries++ {
		if tries == 3000 {
			t.Fatal("the whole file fits into the buffers of a connection")
		}
		time.Sleep(10 * time.Millisecond) // no event tells that buffers are full
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	kill, err := http.NewRequestWithContext(ctx, "DELETE", c.server.URL+"/sandboxes/"+b.SandboxID, nil)
	if err != nil {
		t.Fatal(err)
	}
	kill.Header.Set("X-API-Key", c.key)
	res, err := http.DefaultClient.Do(kill)
	if err != nil {
		t.Fatal(err)
	}
	if res.Body.Close(); res.StatusCode != http.StatusNoContent {
		t.Errorf("the kill: %s", res.Status)
	}
}

// blocked reports whether a request to a sandbox waits until its client reads.
func blocked() bool {
	all := make([]byte, 4<<20)
	for one := range strings.SplitSeq(string(all[:runtime.Stack(all, true)]), "\n\n") {
		if strings.Contains(one, "serveSandbox") && strings.Contains(one, "waitWrite") {
			return true
		}
	}
	return false
}

func TestRoutesToSandboxes(t *testing.T) {
	st := newSite(t)
	c, other := st.client(t, "ann"), st.client(t, "bob")
	b, his := c.create(t, `{"templateID":"base"}`), other.create(t, `{"templateID":"base"}`)
	open := want[box](t, c.send(t, "POST", "/sandboxes", `{"templateID":"base","timeout":60}`), http.StatusCreated)
	without := func(b box, port string) []string { b.EnvdAccessToken = ""; return b.to(port) }
	crossed := b
	crossed.EnvdAccessToken = his.EnvdAccessToken
	for _, r := range []struct {
		what    string
		path    string
		headers []string
		status  int
		says    string
	}{
		{"healthy", "/health", b.to(agent), 204, ""},
		{"healthy without a token", "/health", without(b, agent), 204, ""},
		{"one header", "/health", []string{"E2b-Sandbox-Id", b.SandboxID}, 400, "missing header"},
		{"the other header", "/health", []string{"E2b-Sandbox-Port", agent}, 400, "missing header"},
		{"no port", "/health", b.to("http"), 400, "Invalid sandbox port"},
		{"no sandbox", "/health", []string{"E2b-Sandbox-Id", "i0", "E2b-Sandbox-Port", agent}, 502, "was not found"},
		{"closed", "/", b.to("3128"), 502, "The sandbox is running but port is not open"},
		{"not public", "/", b.to("8080"), 403, "E2b-Traffic-Access-Token"},
		{"no token", "/files?path=/", without(b, agent), 401, "token"},
		{"another's token", "/files?path=/", crossed.to(agent), 401, "token"},
		{"by its token alone", "/files?path=/none", []string{"X-Access-Token", b.EnvdAccessToken}, 404, "does not exist"},
		{"not secured", "/files?path=/none", without(open, agent), 404, "does not exist"},
		{"not of the agent", "/init", b.to(agent), 404, ""},
	} {
		got := c.send(t, "GET", r.path, "", r.headers...)
		if got.status != r.status || !strings.Contains(got.body, r.says) {
			t.Errorf("%s: %d %s, want %d %q", r.what, got.status, got.body, r.status, r.says)
		}
	}
	keys := st.Keys.List()
	for _, k := range keys {
		if k.Owner == "ann" {
			if _, err := st.Keys.Revoke(t.Context(), k.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, b := range []box{b, open} {
		if got := c.send(t, "GET", "/files?path=/none", "", b.to(agent)...); got.status != 401 {
			t.Errorf("with a revoked key: %d %s", got.status, got.body)
		}
	}
	if got := c.send(t, "OPTIONS", "/files", "", "Access-Control-Request-Headers", "e2b-sandbox-id", "Origin",
		"https://x.example"); got.status != 204 || got.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("a browser's question: %d %v", got.status, got.header)
	}
}

func TestFilesOfSandboxes(t *testing.T) {
	c := newSite(t).client(t, "ann")
	b := c.create(t, `{"templateID":"base"}`)
	octets := append(b.to(agent), "Content-Type", "application/octet-stream")
	at := "/files?path=" + url.QueryEscape("/workspace/d/hello.txt")
	want[any](t, c.send(t, "POST", at, "hello world", octets...), http.StatusOK)
	for _, r := range []struct {
		headers []string
		status  int
		body    string
	}{
		{nil, 200, "hello world"}, {[]string{"Range", "bytes=6-"}, 206, "world"},
		{[]string{"Range", "bytes=0-4"}, 206, "hello"}, {[]string{"Range", "bytes=99-"}, 416, ""},
	} {
		got := c.send(t, "GET", at, "", append(b.to(agent), r.headers...)...)
		if got.status != r.status || r.body != "" && got.body != r.body {
			t.Errorf("%v: %d %q, want %d %q", r.headers, got.status, got.body, r.status, r.body)
		}
	}
	form := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/workspace/e/x.txt\"\r\n\r\nin a form\r\n" +
		"--b--\r\n"
	list := want[[]struct{ Path, Name, Type string }](t, c.send(t, "POST", "/files", form, append(b.to(agent),
		"Content-Type", "multipart/form-data; boundary=b")...), http.StatusOK)
	if len(list) != 1 || list[0].Path != "/workspace/e/x.txt" || list[0].Name != "x.txt" || list[0].Type != "file" {
		t.Errorf("the form stored %+v", list)
	}
	u := access.Signed{Path: "/workspace/e/x.txt", Operation: "read", Expires: "1"}
	for _, s := range []struct {
		expires string
		status  int
	}{{"", 200}, {"1", 401}} {
		u.Expires = s.expires
		q := url.Values{"path": {u.Path}, "signature": {u.Sign(b.EnvdAccessToken)}}
		if s.expires != "" {
			q.Set("signature_expiration", s.expires)
		}
		if got := c.send(t, "GET", "/files?"+q.Encode(), "", "X-API-Key", ""); got.status != s.status {
			t.Errorf("a signed URL until %q: %d %s", s.expires, got.status, got.body)
		}
	}
	for method, r := range map[string][3]string{
		"Stat": {`{"path":"/workspace/e/x.txt"}`, "200", `"permissions":"-rw-r--r--"`}, "MakeDir": {`{"path":"/workspace/e"}`,
			"409", "already_exists"}, "ListDir": {`{"path":"/workspace/e","depth":1}`, "200", `"name":"x.txt"`},
		"Move":   {`{"source":"/workspace/none","destination":"/workspace/y"}`, "404", "not_found"},
		"Remove": {`{"path":"/workspace/none"}`, "200", "{}"}, "Nothing": {`{}`, "501", "unimplemented"},
		"GetWatcherEvents": {`{"watcherId":"w1"}`, "404", "not_found"},
	} {
		got := c.rpc(t, b, "filesystem.Filesystem/"+method, r[0])
		if http.StatusText(got.status) == "" || !strings.HasPrefix(r[1], string(rune('0'+got.status/100))) ||
			!strings.Contains(got.body, r[2]) {
			t.Errorf("%s: %d %s, want %s %s", method, got.status, got.body, r[1], r[2])
		}
	}
}

// TestMetadataOfFiles checks that uploads give a file its metadata, and that the next upload replaces it.
func TestMetadataOfFiles(t *testing.T) {
	c := newSite(t).client(t, "ann")
	b := c.create(t, `{"templateID":"base"}`)
	upload := append(b.to(agent), "Content-Type", "application/octet-stream")
	watch := c.stream(t, b, "filesystem.Filesystem/WatchDir", `{"path":"/workspace","includeEntry":true}`)
	watch.must()
	const at, meta = "/files?path=/workspace/m.txt", `"metadata":{"author":"me","purpose":"test"}`
	got := c.send(t, "POST", at, "x", append(upload, "X-Metadata-Author", "me", "X-Metadata-Purpose", "test")...)
	if got.status != 200 || !strings.Contains(got.body, meta) {
		t.Errorf("the upload: %d %s", got.status, got.body)
	}
	for method, path := range map[string]string{"Stat": "/workspace/m.txt", "ListDir": "/workspace"} {
		if got := c.rpc(t, b, "filesystem.Filesystem/"+method, `{"path":"`+path+`"}`); !strings.Contains(got.body, meta) {
			t.Errorf("%s: %s", method, got.body)
		}
	}
	for seen := false; !seen; {
		e := watch.must().Filesystem.Entry
		seen = e != nil && e.Metadata["author"] == "me" && e.Metadata["purpose"] == "test"
	}
	want[any](t, c.send(t, "POST", at, "y", append(upload, "X-Metadata-Other", "1")...), http.StatusOK)
	if got := c.rpc(t, b, "filesystem.Filesystem/Stat", `{"path":"/workspace/m.txt"}`); !strings.Contains(got.body,
		`"metadata":{"other":"1"}`) {
		t.Errorf("after a second upload: %s", got.body)
	}
	for name, value := range map[string]string{"A": "caf\u00e9", "B": strings.Repeat("x", 4096), strings.Repeat("k", 247): "x"} {
		if got := c.send(t, "POST", at, "z", append(upload, "X-Metadata-"+name, value)...); got.status != 400 {
			t.Errorf("metadata %.10s: %d %s", name, got.status, got.body)
		}
	}
	if got := c.send(t, "GET", at, "", b.to(agent)...); got.body != "y" {
		t.Errorf("a refused upload left %q", got.body)
	}
}

func TestWatchesOfSandboxes(t *testing.T) {
	c := newSite(t).client(t, "ann")
	b := c.create(t, `{"templateID":"base"}`)
	octets := append(b.to(agent), "Content-Type", "application/octet-stream")
	watch := c.stream(t, b, "filesystem.Filesystem/WatchDir", `{"path":"/workspace"}`)
	watch.must()
	polled := want[struct{ WatcherID string }](t, c.rpc(t, b, "filesystem.Filesystem/CreateWatcher",
		`{"path":"/workspace"}`), http.StatusOK)
	want[any](t, c.send(t, "POST", "/files?path=/workspace/new.txt", "x", octets...), http.StatusOK)
	seen := ""
	for !strings.Contains(seen, "WRITE") {
		m := watch.must()
		if m.Filesystem == nil || m.Filesystem.Name != "new.txt" {
			t.Fatalf("the watch tells of %+v", m)
		}
		seen += m.Filesystem.Type + " "
	}
	if !strings.HasPrefix(seen, "EVENT_TYPE_CREATE ") {
		t.Errorf("the watch tells of %s", seen)
	}
	id := `{"watcherId":"` + polled.WatcherID + `"}`
	for all := ""; !strings.Contains(all, "EVENT_TYPE_WRITE"); { // the other watch had it: this one will, too
		all += c.rpc(t, b, "filesystem.Filesystem/GetWatcherEvents", id).body
	}
	want[any](t, c.rpc(t, b, "filesystem.Filesystem/RemoveWatcher", id), http.StatusOK)
	want[any](t, c.rpc(t, b, "filesystem.Filesystem/RemoveWatcher", id), http.StatusNotFound)
	if !proto.ValidID(proto.ContainerPrefix, proto.IDOfHost(b.SandboxID)) {
		t.Errorf("%s is no sandbox", b.SandboxID)
	}
}

// TestHostsOfSandboxes checks requests that name their sandbox by their host, in any case of letters.
func TestHostsOfSandboxes(t *testing.T) {
	c := newSite(t).client(t, "ann")
	b := c.create(t, `{"templateID":"base"}`)
	for host, status := range map[string]int{
		agent + "-" + b.SandboxID + ".example.org":                         204,
		agent + "-" + strings.ToUpper(b.SandboxID) + ".EXAMPLE.org":        204,
		agent + "-" + b.SandboxID + "-" + b.ClientID + ".example.org:8443": 204,
		interpreter + "-" + b.SandboxID + ".x":                             200,
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", c.server.URL+"/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("%s: %d, want %d", host, res.StatusCode, status)
		}
	}
	want[any](t, c.send(t, "DELETE", "/sandboxes/"+b.SandboxID, ""), http.StatusNoContent)
	req, err := http.NewRequestWithContext(t.Context(), "GET", c.server.URL+"/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = agent + "-" + b.SandboxID + ".example.org"
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusBadGateway {
		t.Errorf("after it was killed: %d", res.StatusCode)
	}
}

// TestControlPathsStay checks that the headers of a sandbox do not take a request away from the control plane: old
// clients send them there, too.
func TestControlPathsStay(t *testing.T) {
	c := newSite(t).client(t, "ann")
	b := c.create(t, `{"templateID":"base"}`)
	got := c.send(t, "GET", "/sandboxes/"+b.SandboxID, "", "E2b-Sandbox-Id", b.SandboxID, "E2b-Sandbox-Port", agent)
	if info := want[box](t, got, http.StatusOK); info.SandboxID != b.SandboxID {
		t.Errorf("it is %+v", info)
	}
}

package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"berth/files"
	"berth/proto"
	"berth/test/sessiontest"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestProgressCarriesLiveOutput(t *testing.T) {
	s := newSite(t, nil)
	var mu sync.Mutex // guards what follows
	var heard []*sdk.ProgressNotificationParams
	var first chan struct{} // closed when something is heard
	cs, err := s.connect(t, sessiontest.Secret, "", &sdk.ClientOptions{ProgressNotificationHandler: func(
		_ context.Context, r *sdk.ProgressNotificationClientRequest) {
		mu.Lock()
		defer mu.Unlock()
		if heard = append(heard, r.Params); len(heard) == 1 {
			close(first)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string]map[string]any{
		"bash":     {"command": "echo one; read x </workspace/go; echo two"},
		"run_code": {"code": "print('one', flush=True)\nopen('/workspace/go').readline()\nprint('two')"},
	} {
		use(t, cs, "bash", map[string]any{"command": "rm -f /workspace/go; mkfifo /workspace/go"})
		told := make(chan struct{})
		mu.Lock()
		heard, first = nil, told
		mu.Unlock()
		go func() { // what has been told lets it go on
			<-told
			_, _ = cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "run_code", Arguments: map[string]any{
				"code": "open('/workspace/go', 'w').write('go\\n')"}})
		}()
		p := &sdk.CallToolParams{Name: name, Arguments: args}
		p.SetProgressToken("token-" + name)
		if _, err := cs.CallTool(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "all is told", func() bool { mu.Lock(); defer mu.Unlock(); return len(heard) >= 2 })
		mu.Lock()
		text, last := "", 0.0
		for _, h := range heard {
			if h.ProgressToken != "token-"+name || h.Progress <= last {
				t.Errorf("%+v after %v", h, last)
			}
			text, last = text+h.Message, h.Progress
		}
		mu.Unlock()
		if text != "one\ntwo\n" {
			t.Errorf("%s: told %q", name, text)
		}
	}
}

func TestCancellationKills(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	for name, args := range map[string]map[string]any{
		"bash":     {"command": "echo $BASHPID >/workspace/pid; while :; do sleep 1; done"},
		"run_code": {"code": "import os, time\nopen('/workspace/pid', 'w').write(str(os.getpid()))\ntime.sleep(1000)"},
	} {
		res, _ := use(t, cs, "bash", map[string]any{"command": "rm -f /workspace/pid"})
		c, err := s.Sessions.Get(sessiontest.Owner, containerOf(t, res))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: args})
			ended <- err
		}()
		waitFor(t, "it runs", func() bool {
			_, err := c.Stat(t.Context(), proto.UserDefault,
				"/workspace/pid")
			return err == nil
		})
		cancel()
		if err := <-ended; err == nil {
			t.Errorf("%s: a call that was canceled succeeded", name)
		}
		waitFor(t, "nothing runs any more", func() bool { return s.Sessions.Counts().RunningExecs == 0 })
	}
}

// The answer of a call whose connection broke waits for its client.
func TestBrokenConnectionCancelsNothing(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	res, _ := use(t, cs, "bash", map[string]any{"command": "mkfifo /workspace/go"})
	c, err := s.Sessions.Get(sessiontest.Owner, containerOf(t, res))
	if err != nil {
		t.Fatal(err)
	}
	ctx, breakOff := context.WithCancel(t.Context())
	call := `{"jsonrpc":"2.0","id":"broken","method":"tools/call","params":{"name":"bash","arguments":{"command":"read x </workspace/go; echo came $x"}}}`
	id := firstEventID(t, s.stream(t, ctx, "POST", cs.ID(), call))
	waitFor(t, "it runs", func() bool { return s.Sessions.Counts().RunningExecs == 1 })
	breakOff()
	sessiontest.Bash(t, c, "echo through >/workspace/go")
	body, err := io.ReadAll(s.stream(t, t.Context(), "GET", cs.ID(), "", "Last-Event-ID", id).Body)
	if err != nil || !strings.Contains(string(body), "came through") {
		t.Errorf("%v %s", err, body)
	}
}

// stream sends a request whose answer is read as it comes.
func (s *site) stream(t *testing.T, ctx context.Context, method, session, body string,
	header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, s.URL+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	header = append([]string{"X-Api-Key", sessiontest.Secret, sessionHeader, session, "Content-Type", "application/json",
		"Accept", "application/json, text/event-stream", "Mcp-Protocol-Version", "2025-11-25"}, header...)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// firstEventID is the ID that a client is to come back to.
func firstEventID(t *testing.T, res *http.Response) string {
	t.Helper()
	for sc := bufio.NewScanner(res.Body); sc.Scan(); {
		if strings.HasPrefix(sc.Text(), "event:") {
			t.Errorf("an event that clients do not know: %s", sc.Text())
		}
		if id, ok := strings.CutPrefix(sc.Text(), "id: "); ok {
			return id
		}
	}
	t.Fatal("no event has an ID")
	return ""
}

func TestEndOfTheKeyEndsItsCalls(t *testing.T) {
	s := newSite(t, nil)
	admin := proto.Caller{Owner: sessiontest.Owner, Admin: true}
	key, err := s.Keys.Create(admin, proto.CreateKey{Owner: sessiontest.Owner})
	if err != nil {
		t.Fatal(err)
	}
	cs, err := s.connect(t, key.Secret, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "bash", Arguments: map[string]any{
			"command": "sleep 1000"}})
	}()
	waitFor(t, "it runs", func() bool { return s.Sessions.Counts().RunningExecs == 1 })
	if _, err := s.Keys.Revoke(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "it is ended", func() bool { return s.Sessions.Counts().RunningExecs == 0 })
}

func TestEndOfTheSessionEndsItsCalls(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	go func() {
		_, _ = cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "bash", Arguments: map[string]any{
			"command": "sleep 1000"}})
	}()
	waitFor(t, "it runs", func() bool { return s.Sessions.Counts().RunningExecs == 1 })
	req, _ := http.NewRequestWithContext(t.Context(), "DELETE", s.URL+"/mcp", nil)
	if status, body := s.send(t, req, sessiontest.Secret, cs.ID()); status != http.StatusNoContent {
		t.Errorf("%d %s", status, body)
	}
	if c := s.Sessions.Counts(); c.RunningExecs != 0 || len(c.ByState) != 0 {
		t.Errorf("left: %+v", c)
	}
}

func TestBadInput(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	for _, c := range []struct {
		tool, field string
		args        map[string]any
	}{
		{"bash", "command", map[string]any{}},
		{"bash", "command", map[string]any{"command": 7}},
		{"bash", "cmd", map[string]any{"cmd": "ls"}},
		{"bash", "restart", map[string]any{"command": "ls", "restart": true}},
		{"bash", "timeout_seconds", map[string]any{"command": "ls", "timeout_seconds": -1}},
		{"bash", "container_nope", map[string]any{"command": "ls", "container": "container_nope"}},
		{"run_code", "code", map[string]any{}},
		{"run_code", "language", map[string]any{"code": "1", "language": "cobol"}},
		{"run_code", "name", map[string]any{"code": "1", "context": "a b"}},
		{"run_code", "timeout_seconds", map[string]any{"code": "1", "context": "a", "timeout_seconds": 1e9}},
		{"str_replace_based_edit_tool", "path", map[string]any{"command": "view"}},
		{"str_replace_based_edit_tool", "command", map[string]any{"path": "/a"}},
		{"upload_file", "path", map[string]any{"text": "a"}},
		{"upload_file", "file_id", map[string]any{"path": "a", "text": "a", "base64": "YQ=="}},
		{"upload_file", "base64", map[string]any{"path": "a", "base64": "%"}},
		{"upload_file", "file_nope", map[string]any{"path": "a", "file_id": "file_nope"}},
		{"download_file", "path", map[string]any{}},
		{"grep_files", "pattern", map[string]any{}},
		{"grep_files", "pattern", map[string]any{"pattern": "("}},
		{"save_snapshot", "name", map[string]any{"name": "a b"}},
		{"restore_snapshot", "snapshot", map[string]any{}},
		{"restore_snapshot", "nosuch", map[string]any{"snapshot": "nosuch"}},
		{"find_files", "type", map[string]any{"type": "door"}},
		{"find_files", "modified_after", map[string]any{"modified_after": "yesterday"}},
		{"find_files", "after", map[string]any{"after": "!"}},
		{"find_files", "/workspace/missing", map[string]any{"path": "missing"}},
	} {
		res, text := use(t, cs, c.tool, c.args)
		e, _ := res.Meta[metaError].(map[string]any)
		if !res.IsError || !strings.HasPrefix(text, "Error: ") || e["item"] != c.field {
			t.Errorf("%s %v: %v %q", c.tool, c.args, e, text)
		}
	}
	if _, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "nope"}); err == nil ||
		!strings.Contains(err.Error(), "nope") {
		t.Errorf("a tool that is not there: %v", err)
	}
	if status, body := s.post(t, sessiontest.Secret, "", "{"+strings.Repeat(" ", maxMessage)+
		"}"); status != http.StatusRequestEntityTooLarge || !strings.Contains(body, "jsonrpc") {
		t.Errorf("a message that is too large: %d %s", status, body)
	}
}

// Clients in strict mode send null, or nothing, for what they leave out, and models send other types than they should.
func TestInputsAsModelsWriteThem(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	for _, c := range []struct {
		tool, args, want string
	}{
		{"bash", `{"command":"echo hi","restart":null,"timeout_seconds":null,"container":null}`, "hi\n"},
		{"bash", `{"command":"echo hi","restart":"false","timeout_seconds":"5","container":""}`, "hi\n"},
		{"bash", `{"command":"","restart":"true"}`, "restarted"},
		{"run_code", `{"code":"6*7","language":null,"context":null,"files":null,"timeout_seconds":null,"container":null}`,
			"42"},
		{"run_code", `{"code":"6*7","language":"","context":"","files":[],"timeout_seconds":"10"}`, "42"},
		{"str_replace_based_edit_tool", `{"command":"create","path":"/workspace/a","file_text":"1\n2\n3\n","old_str":null,"new_str":null,"insert_line":null,"insert_text":null,"view_range":null,"container":null}`,
			"created"},
		{"str_replace_based_edit_tool", `{"command":"view","path":"/workspace/a","view_range":["2","3"]}`, "     2\t2\n"},
		{"str_replace_based_edit_tool", `{"command":"view","path":"/workspace/a","view_range":"[2, -1]"}`, "     3\t3\n"},
		{"str_replace_based_edit_tool", `{"command":"view","path":"/workspace/a","view_range":[]}`, "     1\t1\n"},
		{"str_replace_based_edit_tool", `{"command":"insert","path":"/workspace/a","insert_line":"1","insert_text":"x\n"}`,
			"     2\tx\n"},
		{"upload_file", `{"path":"b","text":"x","file_id":null,"base64":null,"container":null}`, "1 bytes"},
		{"upload_file", `{"path":"b","text":"","file_id":"","base64":"eHk"}`, "2 bytes"},
		{"upload_file", `{"path":"b","text":"","base64":""}`, "0 bytes"},
		{"download_file", `{"path":"b","container":null}`, ""},
		{"code_executor", `{"language":"python","code":"print(6*7)"}`, "42"},
	} {
		res, text := use(t, cs, c.tool, argsOf(t, c.args))
		if res.IsError || !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %q", c.tool, c.args, text)
		}
	}
	for _, c := range []struct{ tool, args, want string }{
		{"str_replace_based_edit_tool", `{"command":"view","path":"/a","view_range":"all"}`,
			`view_range must be a list of two integers, not the string "all"`},
		{"str_replace_based_edit_tool", `{"command":"view","path":"/workspace/a","view_range":[1,2,3]}`,
			"It should be a list of two integers"},
		{"bash", `{"command":["ls"]}`, `command must be a string, not the list ["ls"]`},
		{"bash", `{"command":null}`, "command is missing"},
		{"bash", `{"command":"ls","timeout_seconds":"soon"}`, "timeout_seconds must be a number"},
		{"bash", `{"command":"ls","cmd":"x"}`, `argument "cmd" is unknown; the tool has command, container`},
		{"code_executor", `{"language":"python","code":null}`, "code is missing"},
		{"upload_file", `{"path":"b","base64":"%"}`, "base64 is malformed at byte 0"},
	} {
		if res, text := use(t, cs, c.tool, argsOf(t, c.args)); !res.IsError || !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %q", c.tool, c.args, text)
		}
	}
}

func argsOf(t *testing.T, text string) (args map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &args); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return args
}

// Schemas are what clients check calls and answers with.
func TestSchemas(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		if tool.Title == "" || tool.Description == "" || tool.Annotations == nil {
			t.Errorf("%s: nothing is said of it", tool.Name)
		}
		resolve(t, tool.InputSchema)
		if tool.OutputSchema != nil {
			resolve(t, tool.OutputSchema)
		}
	}
	if !slices.IsSorted(names) || len(names) != len(commonTools) {
		t.Errorf("%v", names)
	}
	res, _ := use(t, cs, "run_code", map[string]any{"code": "print(1)\n1/0"})
	out := list.Tools[slices.Index(names, "run_code")].OutputSchema
	if err := resolve(t, out).Validate(res.StructuredContent); err != nil || !res.IsError {
		t.Errorf("what run_code answers is not what it says: %v", err)
	}
}

func resolve(t *testing.T, s any) *jsonschema.Resolved {
	t.Helper()
	var schema jsonschema.Schema
	if err := json.Unmarshal(encode(s), &schema); err != nil {
		t.Fatal(err)
	}
	out, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCodeExecutor(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	res, text := use(t, cs, "code_executor", map[string]any{"language": "python", "code": "print('hi')"})
	if res.IsError || !strings.HasPrefix(text, "## Code Execution Result\n") || !strings.Contains(text, "hi\n") {
		t.Errorf("%v %q", res.IsError, text)
	}
	if res, text = use(t, cs, "code_executor", map[string]any{"language": "python",
		"code": "raise SystemExit(3)"}); !res.IsError || !strings.Contains(text, "3") {
		t.Errorf("%v %q", res.IsError, text)
	}
	if c := s.Sessions.Counts(); len(c.ByState) != 0 {
		t.Errorf("left: %+v", c)
	}
	for field, args := range map[string]map[string]any{"language": {"code": "1"}, "code": {"language": "node"}} {
		if res, text := use(t, cs, "code_executor", args); !res.IsError || !strings.Contains(text, field) {
			t.Errorf("%v: %q", args, text)
		}
	}
}

func TestFilesAndResources(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	stored, err := s.Files.Put(t.Context(), files.Upload{Owner: sessiontest.Owner, Filename: "in.csv"},
		strings.NewReader("a,b\n"))
	if err != nil {
		t.Fatal(err)
	}
	use(t, cs, "upload_file", map[string]any{"path": "in.csv", "file_id": stored.ID})
	use(t, cs, "upload_file", map[string]any{"path": "/workspace/sub dir/b", "base64": "AAH/"})
	res, _ := use(t, cs, "bash", map[string]any{"command": "cat /workspace/in.csv; echo made >$OUTPUT_DIR/made.txt"})
	link, ok := res.Content[len(res.Content)-1].(*sdk.ResourceLink)
	if !ok || link.Name != "made.txt" {
		t.Fatalf("%+v", res.Content)
	}
	at := containerURI + containerOf(t, res)
	manifest := at + "/jobs/" + defaultJob(t, s, res) + "/manifest.json"
	for uri, want := range map[string]string{link.URI: "made\n", fileURI + stored.ID: "a,b\n",
		at + "/workspace/in.csv": "a,b\n", at + "/workspace/sub%20dir/b": "\x00\x01\xff"} {
		if got, err := readResource(t, cs, uri); err != nil || got != want {
			t.Errorf("%s: %q %v", uri, got, err)
		}
	}
	if got, err := readResource(t, cs, manifest); err != nil || !strings.Contains(got, `"files"`) {
		t.Errorf("%s: %q %v", manifest, got, err)
	}
	for _, uri := range []string{fileURI + "file_nope", at + "/workspace/nope", containerURI +
		"container_nope/workspace/a", at + "/workspace/%2e%2e/etc/nope"} {
		if got, err := readResource(t, cs, uri); err == nil {
			t.Errorf("%s: %q", uri, got)
		}
	}
	use(t, cs, "bash", map[string]any{"command": "head -c 5M /dev/zero >/workspace/big"})
	if _, err := readResource(t, cs, at+"/workspace/big"); err == nil || !strings.Contains(err.Error(), "4194304") {
		t.Errorf("a file that is too large: %v", err)
	}
	if list, err := cs.ListResources(t.Context(), nil); err != nil || len(list.Resources) != 2 ||
		list.Resources[0].Name != "made.txt" {
		t.Errorf("%+v %v", list, err)
	}
	res, _ = use(t, cs, "download_file", map[string]any{"path": "in.csv"})
	along, ok := res.Content[1].(*sdk.EmbeddedResource)
	if !ok || along.Resource.Text != "a,b\n" {
		t.Errorf("%+v", res.Content)
	}
}

func defaultJob(t *testing.T, s *site, res *sdk.CallToolResult) string {
	t.Helper()
	c, err := s.Sessions.Get(sessiontest.Owner, containerOf(t, res))
	if err != nil {
		t.Fatal(err)
	}
	return c.DefaultJob()
}

func readResource(t *testing.T, cs *sdk.ClientSession, uri string) (string, error) {
	t.Helper()
	res, err := cs.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: uri})
	if err != nil {
		return "", err
	}
	return res.Contents[0].Text + string(res.Contents[0].Blob), nil
}

// logbook keeps what is audited.
type logbook struct {
	mu      sync.Mutex
	entries []proto.AuditEntry
}

func (l *logbook) Ready() error { return nil }

func (l *logbook) Append(e proto.AuditEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e)
}

func TestCallsAreAudited(t *testing.T) {
	book := &logbook{}
	s := newSite(t, func(c *Config) { c.Audit = book })
	cs := s.session(t)
	res, _ := use(t, cs, "bash", map[string]any{"command": "true"})
	use(t, cs, "bash", map[string]any{})
	use(t, cs, "upload_file", map[string]any{"path": "a 10:30.csv", "text": "x"})
	down, _ := use(t, cs, "download_file", map[string]any{"path": "a 10:30.csv"})
	if link, ok := down.Content[0].(*sdk.ResourceLink); !ok || link.Name != "a 10_30.csv" {
		t.Errorf("%+v", down.Content)
	}
	_, _ = readResource(t, cs, fileURI+"file_none")
	_, _ = readResource(t, cs, containerURI+containerOf(t, res)+"/workspace/%2e%2e/etc/passwd")
	book.mu.Lock()
	defer book.mu.Unlock()
	if len(book.entries) != 6 {
		t.Fatalf("%+v", book.entries)
	}
	for i, want := range []string{"upload_file /workspace/a 10:30.csv", "download_file /workspace/a 10:30.csv file_",
		"file_none", "/workspace/etc/passwd"} {
		if e := book.entries[2+i]; !strings.HasPrefix(e.Item, want) || (e.Outcome == proto.AuditOK) != (i < 2) {
			t.Errorf("%+v", e)
		}
	}
	good, bad := book.entries[0], book.entries[1]
	if good.Act != "tool.use" || good.Item != "bash" || good.ContainerID != containerOf(t, res) ||
		good.Outcome != proto.AuditOK || good.Owner != sessiontest.Owner || good.RequestID == "" {
		t.Errorf("%+v", good)
	}
	if bad.Outcome != string(proto.InvalidArgument) || bad.RequestID == good.RequestID {
		t.Errorf("%+v", bad)
	}
}

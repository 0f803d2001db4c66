package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api"
	"berth/proto"
	"berth/test/sessiontest"
	"berth/tools/toolstore"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// A client of the protocol without sessions and one with a session use the same endpoint, and the same container.
func TestBothGenerationsOfClients(t *testing.T) {
	s := newSite(t, nil)
	cs := s.single(t, "", nil)
	if v := cs.InitializeResult().ProtocolVersion; v != firstSingle || cs.ID() != "" {
		t.Fatalf("version %q, session %q", v, cs.ID())
	}
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		in := string(encode(tool.InputSchema))
		if strings.Contains(in, `"container":{`) && !strings.Contains(in, `"required":["container"`) {
			t.Errorf("%s does not require its container: %s", tool.Name, in)
		}
	}
	res, text := use(t, cs, "bash", map[string]any{"command": "true"})
	if !res.IsError || !strings.Contains(text, "container is missing") || len(s.Sessions.Counts().ByState) != 0 {
		t.Errorf("without a container: %q", text)
	}
	res, text = use(t, cs, "bash", map[string]any{"container": "work",
		"command": "cd /tmp; X=7; echo kept >/workspace/kept"})
	id := containerOf(t, res)
	if !strings.Contains(text, "work is new") {
		t.Errorf("the first call: %q", text)
	}
	// another client, by name, by ID and by URL: the state is the container's
	for _, c := range []struct{ query, container string }{{"", "work"}, {"", id}, {"?container=work", ""}} {
		other := s.single(t, c.query, nil)
		args := map[string]any{"command": "pwd; echo $X"}
		if c.container != "" {
			args["container"] = c.container
		}
		if res, text := use(t, other, "bash", args); text != "/tmp\n7\n" || containerOf(t, res) != id {
			t.Errorf("%+v: %q", c, text)
		}
	}
	old := s.session(t)
	if res, text := use(t, old, "run_code", map[string]any{"container": "work",
		"code": "open('/workspace/kept').read()"}); text != "'kept\\n'" || containerOf(t, res) != id {
		t.Errorf("from a session: %q", text)
	}
	if got, err := readResource(t, cs, containerURI+id+"/workspace/kept"); err != nil || got != "kept\n" {
		t.Errorf("%q %v", got, err)
	}
	for _, c := range []*sdk.ClientSession{cs, old} {
		if _, text := use(t, c, "list_containers", nil); !strings.Contains(text, id) || !strings.HasSuffix(text,
			" work\n") {
			t.Errorf("%q", text)
		}
	}
	if res, text := use(t, cs, "bash", map[string]any{"container": proto.NewID(proto.ContainerPrefix),
		"command": "true"}); !res.IsError || !strings.Contains(text, "does not exist") {
		t.Errorf("an unknown ID: %q", text)
	}
	if res, text := use(t, cs, "bash", map[string]any{"container": "no name", "command": "true"}); !res.IsError ||
		!strings.Contains(text, "name") {
		t.Errorf("a malformed name: %q", text)
	}
	if res, text := use(t, cs, "delete_container", map[string]any{"container": "work"}); res.IsError {
		t.Errorf("%q", text)
	}
	if c := s.Sessions.Counts(); len(c.ByState) != 0 {
		t.Errorf("left: %+v", c)
	}
}

// Containers are their owner's: a name means another one for each, and an ID of another owner means none.
func TestSingleRequestsAreTheirOwners(t *testing.T) {
	s := newSite(t, nil)
	foreign, err := s.Sessions.Create(t.Context(), "somebody-else", proto.CreateContainer{Name: "work"})
	if err != nil {
		t.Fatal(err)
	}
	cs := s.single(t, "", nil)
	if res, text := use(t, cs, "bash", map[string]any{"container": foreign.ID(), "command": "true"}); !res.IsError {
		t.Errorf("a tool ran in another owner's container: %s", text)
	}
	if res, text := use(t, cs, "delete_container", map[string]any{"container": foreign.ID()}); !res.IsError {
		t.Errorf("another owner's container was deleted: %s", text)
	}
	if _, text := use(t, cs, "list_containers", nil); text != "(none)\n" {
		t.Errorf("another owner's containers are listed: %s", text)
	}
	res, _ := use(t, cs, "bash", map[string]any{"container": "work", "command": "true"})
	if containerOf(t, res) == foreign.ID() {
		t.Error("a name meant another owner's container")
	}
	if _, err := cs.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: containerURI + foreign.ID() +
		"/workspace/x"}); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("%v", err)
	}
}

// message is a request of the protocol without sessions.
func message(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":%q,"params":{%s"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		method, params)
}

// What a request says of itself is checked against its headers, and each error is the protocol's.
func TestSingleRequestsAreChecked(t *testing.T) {
	s := newSite(t, nil)
	list, discover := message("tools/list", ""), message("server/discover", "")
	call := message("tools/call", `"name":"list_containers",`)
	const mismatch, ok = `"id":5,"error":{"code":-32020,`, `"id":5,"result":{`
	for i, c := range []struct {
		body                  string
		version, method, name string
		status                int
		want                  string
	}{
		{list, "2026-07-28", "tools/list", "", 200, ok},
		{discover, "2026-07-28", "server/discover", "", 200, `"supportedVersions":["2026-07-28","2025-11-25"`},
		{discover, "2026-07-28", "server/discover", "", 200, `"resultType":"complete"`},
		{call, "2026-07-28", "tools/call", "list_containers", 200, `"resultType":"complete"`},
		{message("resources/list", ""), "2026-07-28", "resources/list", "", 200, `"resultType":"complete"`},
		{call, "2026-07-28", "tools/call", "=?base64?bGlzdF9jb250YWluZXJz?=", 200, ok},
		{call, "2026-07-28", "tools/call", "=?base64?bGlzdA==?=", 400, mismatch},
		{call, "2026-07-28", "tools/call", "=?base64?%?=", 400, mismatch},
		{call, "2026-07-28", "tools/call", "bash", 400, mismatch},
		{call, "2026-07-28", "tools/call", "list\xc3\xa4", 400, mismatch},
		{call, "2026-07-28", "tools/call", "", 400, mismatch},
		{list, "2026-07-28", "tools/call", "", 400, mismatch},
		{list, "2026-07-28", "", "", 400, mismatch},
		{list, "", "tools/list", "", 400, mismatch},
		{list, "2025-11-25", "tools/list", "", 400, mismatch},
		{strings.ReplaceAll(list, "2026-07-28", "1900-01-01"), "1900-01-01", "tools/list", "", 400,
			`"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"1900-01-01"`},
		{strings.ReplaceAll(discover, "2026-07-28", "2099-01-01"), "2099-01-01", "server/discover", "", 400,
			`"id":5,"error":{"code":-32022,`},
		{message("nosuch", ""), "2026-07-28", "nosuch", "", 404, `"id":5,"error":{"code":-32601,`},
		{message("prompts/list", ""), "2026-07-28", "prompts/list", "", 404, `"id":5,"error":{"code":-32601,`},
		{message("ping", ""), "2026-07-28", "ping", "", 404, `"id":5,"error":{"code":-32601,`},
		{message("initialize", ""), "2026-07-28", "initialize", "", 404, `"id":5,"error":{"code":-32601,`},
		{`{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{}}`, "2026-07-28", "tools/list", "", 400,
			`"id":5,"error":{"code":-32602,`},
		{strings.Replace(list, `,"io.modelcontextprotocol/clientCapabilities":{}`, "", 1), "2026-07-28", "tools/list",
			"", 400, `"id":5,"error":{"code":-32602,`},
		{message("tools/call", `"name":"nosuch",`), "2026-07-28", "tools/call", "nosuch", 400,
			`"id":5,"error":{"code":-32602,`},
		{message("resources/read", `"uri":"berth://files/file_no",`), "2026-07-28", "resources/read",
			"berth://files/file_no", 400, `"id":5,"error":{"code":-32602,`},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, "2026-07-28",
			"notifications/cancelled", "", 202, ""},
	} {
		header := []string{}
		for name, value := range map[string]string{versionHeader: c.version, methodHeader: c.method,
			nameHeader: c.name} {
			if value != "" {
				header = append(header, name, value)
			}
		}
		// the ID of a session that is none is ignored
		status, body := s.post(t, sessiontest.Secret, map[bool]string{true: "NEVER"}[i == 0], c.body, header...)
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%d: %.200s %q %q %q: %d %.500s", i, c.body, c.version, c.method, c.name, status, body)
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/mcp", strings.NewReader(list))
	req.Header[methodHeader] = []string{"tools/list", "tools/call"}
	if status, body := s.send(t, req, sessiontest.Secret, "", versionHeader, firstSingle); status != 400 ||
		!strings.Contains(body, mismatch) {
		t.Errorf("a header twice: %d %.500s", status, body)
	}
	if status, body := s.post(t, sessiontest.Secret, "", list, versionHeader, firstSingle, methodHeader, "tools/list",
		"Berth-Container", "container_nope"); status != 400 || !strings.Contains(body, `"code":-32602,`) {
		t.Errorf("a container that does not exist: %d %s", status, body)
	}
}

// The end of the connection ends the call, since nothing can come back for its answer.
func TestEndOfTheConnectionEndsASingleCall(t *testing.T) {
	s := newSite(t, nil)
	cs := s.single(t, "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: "bash", Arguments: map[string]any{"container": "work",
			"command": "while :; do sleep 1; done"}})
		ended <- err
	}()
	waitFor(t, "it runs", func() bool { return s.Sessions.Counts().RunningExecs == 1 })
	cancel()
	if err := <-ended; err == nil {
		t.Error("a call that was canceled succeeded")
	}
	waitFor(t, "nothing runs any more", func() bool { return s.Sessions.Counts().RunningExecs == 0 })
}

// Clients of both generations are told about changes of their list of tools, and only they.
func TestChangesOfTheToolList(t *testing.T) {
	s := withTools(t)
	other, err := s.Keys.Create(proto.Caller{Owner: sessiontest.Owner, Admin: true}, proto.CreateKey{
		Owner: "somebody-else"})
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]chan bool{}
	for _, c := range []struct{ name, version, key string }{{"session", "2025-11-25", sessiontest.Secret},
		{"single", "", sessiontest.Secret}, {"foreign session", "2025-11-25", other.Secret},
		{"foreign single", "", other.Secret}} {
		heard := make(chan bool, 100)
		told[c.name] = heard
		if _, err := s.connectAs(t, c.version, c.key, "", &sdk.ClientOptions{
			ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { heard <- true }}); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(name, what string) {
		t.Helper()
		select {
		case <-told[name]:
		case <-time.After(30 * time.Second):
			t.Fatalf("%s was not told that a tool was %s", name, what)
		}
	}
	s.store(t, toolstore.NewTool{Name: "one", Configuration: toolstore.Configuration{Code: "def run(input): return 1"}})
	hear("session", "stored")
	hear("single", "stored")
	text := "Changed."
	if _, err := s.edge.Tools.Change(t.Context(), sessiontest.Owner, "one", toolstore.ChangeTool{
		Description: &text}); err != nil {
		t.Fatal(err)
	}
	hear("session", "changed")
	hear("single", "changed")
	if _, err := s.edge.Tools.Delete(t.Context(), sessiontest.Owner, "one"); err != nil {
		t.Fatal(err)
	}
	hear("session", "deleted")
	hear("single", "deleted")
	if len(told["foreign session"])+len(told["foreign single"]) != 0 {
		t.Error("clients of another owner were told")
	}
}

// A subscription ends well when the daemon shuts down, and shows before that that it is open.
func TestSubscriptionEndsWithTheDaemon(t *testing.T) {
	s := withTools(t)
	s.edge.quiet = 10 * time.Millisecond
	server, err := api.New(api.Config{Auth: s.Keys, Edges: []api.Edge{s.edge.Edge()}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()
	s.URL = "http://" + l.Addr().String()
	res := s.stream(t, t.Context(), "POST", "", message(listenMethod, `"notifications":{"toolsListChanged":true},`),
		versionHeader, firstSingle, methodHeader, listenMethod)
	commented, last := false, ""
	for sc := bufio.NewScanner(res.Body); sc.Scan(); {
		if sc.Text() == ":" && !commented {
			commented = true
			stop()
		}
		if strings.HasPrefix(sc.Text(), "data: ") {
			last = sc.Text()
		}
	}
	if !commented || !strings.Contains(last, `"id":5`) || !strings.Contains(last, `"resultType":"complete"`) {
		t.Errorf("%v, and the end is %q", commented, last)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// A subscription says first what it is for, each message of it has its ID, and its number for an owner is bounded.
func TestSubscriptions(t *testing.T) {
	s := withTools(t)
	listen := func(kinds string) *http.Response {
		return s.stream(t, t.Context(), "POST", "", message(listenMethod, `"notifications":{`+kinds+`},`), versionHeader,
			firstSingle, methodHeader, listenMethod)
	}
	events := func(res *http.Response) (next func() string) {
		sc := bufio.NewScanner(res.Body)
		return func() string {
			for sc.Scan() {
				if data, ok := strings.CutPrefix(sc.Text(), "data: "); ok {
					var m struct {
						Params, Result struct {
							Meta map[string]json.RawMessage `json:"_meta"`
						}
					}
					_ = json.Unmarshal([]byte(data), &m)
					if id := string(append(m.Params.Meta[sdk.MetaKeySubscriptionID],
						m.Result.Meta[sdk.MetaKeySubscriptionID]...)); id != "5" {
						t.Errorf("the ID is %q: %s", id, data)
					}
					return data
				}
			}
			return ""
		}
	}
	next := events(listen(`"toolsListChanged":true,"promptsListChanged":true`))
	if got := next(); !strings.Contains(got, acknowledged) || !strings.Contains(got, `"toolsListChanged":true`) ||
		strings.Contains(got, "promptsListChanged") {
		t.Errorf("first: %s", got)
	}
	s.store(t, toolstore.NewTool{Name: "one", Configuration: toolstore.Configuration{Code: "def run(input): return 1"}})
	if got := next(); !strings.Contains(got, toolsNotified) {
		t.Errorf("second: %s", got)
	}
	// a subscription to nothing ends at once
	next = events(listen(`"promptsListChanged":true`))
	if got := []string{next(), next(), next()}; !strings.Contains(got[0], acknowledged) ||
		!strings.Contains(got[1], `"result"`) || got[2] != "" {
		t.Errorf("%q", got)
	}
	s.edge.mu.Lock()
	if got := s.edge.listens[sessiontest.Owner]; got != 1 {
		t.Errorf("%d subscriptions are counted", got)
	}
	s.edge.listens[sessiontest.Owner] = maxSessions
	s.edge.mu.Unlock()
	if status, body := s.post(t, sessiontest.Secret, "", message(listenMethod, `"notifications":{},`), versionHeader,
		firstSingle, methodHeader, listenMethod); !strings.Contains(body, "limit of 256 subscriptions") {
		t.Errorf("%d %s", status, body)
	}
	s.edge.mu.Lock()
	s.edge.listens[sessiontest.Owner] = 1
	s.edge.mu.Unlock()
	cs := s.session(t)
	if status, body := s.post(t, sessiontest.Secret, cs.ID(), `{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen",`+
		`"params":{"notifications":{"toolsListChanged":true}}}`); !strings.Contains(body, "stream that GET opens") {
		t.Errorf("in a session: %d %s", status, body)
	}
	if !slices.IsSortedFunc(commonTools, func(a, b tool) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the common tools are not in order")
	}
}

package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api"
	"berth/api/anthropic"
	"berth/api/approvals"
	"berth/api/e2b"
	"berth/api/librechat"
	"berth/api/mcp"
	"berth/api/native"
	"berth/code"
	"berth/console"
	"berth/egress"
	"berth/proto"
	"berth/session"
	"berth/state/logins"
	"berth/state/vault"
	"berth/test/sessiontest"
	"berth/tools/bridge"
	"berth/tools/bridge/provider"
	"berth/tools/toolstore"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
)

// A house is every edge over the real core, with as many tenants as a test makes keys.
type house struct {
	*sessiontest.Stack
	server *httptest.Server
	edges  []api.Edge
	log    *bytes.Buffer
}

func newHouse(t *testing.T, core session.Config) *house {
	t.Helper()
	h := &house{Stack: sessiontest.New(t, core), log: &bytes.Buffer{}}
	log := slog.New(slog.NewTextHandler(h.log, nil))
	runner := code.Open(code.Config{Sessions: h.Sessions})
	t.Cleanup(func() { runner.Close() })
	secrets, err := vault.Open(filepath.Join(h.Dir, "secret-key"), h.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	tools, err := toolstore.Open(toolstore.Config{Ledger: h.Ledger, Sessions: h.Sessions, Code: runner, Vault: secrets})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tools.Close() })
	clients := mcp.Open(mcp.Config{Sessions: h.Sessions, Code: runner, Jobs: h.Jobs, Files: h.Files,
		Life: h.Keys.Life, Log: log})
	t.Cleanup(func() { clients.Close() })
	operations := api.Ops(api.OpsConfig{Metrics: prometheus.NewRegistry(),
		Ready: func(context.Context) error { return nil }})
	hosted := anthropic.New(anthropic.Config{Files: h.Files, MaxFileBytes: h.Files.MaxFileBytes()})
	decided := approvals.New(approvals.Config{Desk: h.Desk, Bridge: h.Bridge, Tools: tools})
	browsers, err := logins.Open(logins.Config{Ledger: h.Ledger, Keys: h.Keys})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { browsers.Close() })
	page, err := console.New(console.Config{Logins: browsers})
	if err != nil {
		t.Fatal(err)
	}
	h.edges = []api.Edge{
		decided, page,
		clients.Edge(), operations, hosted,
		e2b.New(e2b.Config{Sessions: h.Sessions, Code: runner, Images: h.Images, Keys: h.Keys}).Control(),
		librechat.New(librechat.Config{Sessions: h.Sessions, Files: h.Files, Bridge: h.Bridge}).Edge(),
		native.New(native.Config{
			Sessions: h.Sessions, Code: runner, Tools: tools, Bridge: h.Bridge, Jobs: h.Jobs, Files: h.Files,
			Images: h.Images, Keys: h.Keys, Quotas: h.Keys, Log: log,
			Sweep: func(context.Context) (map[string]map[string]int, error) { return nil, nil },
		}, operations, hosted, decided),
	}
	server, err := api.New(api.Config{Auth: h.Keys, Logins: browsers, Log: log, Edges: h.edges})
	if err != nil {
		t.Fatal(err)
	}
	h.server = httptest.NewServer(server)
	t.Cleanup(h.server.Close)
	return h
}

// A guest is a client with a key of its own.
type guest struct {
	h      *house
	id     string
	secret string
}

func (h *house) guest(t *testing.T, req proto.CreateKey) guest {
	t.Helper()
	k, err := h.Keys.Create(proto.Caller{Owner: "ann"}, req)
	if err != nil {
		t.Fatal(err)
	}
	return guest{h, k.ID, k.Secret}
}

// send makes a request. A string is a JSON body.
func (g guest) send(t *testing.T, method, path string, body any) (*http.Response, string) {
	t.Helper()
	var r io.Reader
	kind := "application/json"
	switch b := body.(type) {
	case string:
		r = strings.NewReader(b)
	case form:
		r, kind = strings.NewReader(b.text), b.kind
	}
	req, err := http.NewRequest(method, g.h.server.URL+path, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", g.secret)
	req.Header.Set("anthropic-version", "2023-06-01")
	req.Header.Set("Content-Type", kind)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(data)
}

// do makes a request that has to succeed, and decodes its answer.
func do[T any](t *testing.T, g guest, method, path string, body any) (v T) {
	t.Helper()
	res, text := g.send(t, method, path, body)
	if res.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
	return v
}

// A form is a multipart body with one file.
type form struct{ text, kind string }

func fileForm(t *testing.T, size int) form {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile("file", "a.txt")
	if err == nil {
		_, err = part.Write(bytes.Repeat([]byte("x"), size))
	}
	if err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	return form{b.String(), w.FormDataContentType()}
}

// belongings are one of each thing that has an ID.
type belongings struct{ container, workspace, exec, job, shell, file, key, tool, run, call, snapshot, ask string }

func (g guest) settle(t *testing.T) (b belongings) {
	t.Helper()
	b.key = g.id
	b.workspace = do[proto.Container](t, g, "POST", "/v1/containers", "").WorkspaceID
	b.container = do[struct{ Data []proto.Container }](t, g, "GET", "/v1/containers", nil).Data[0].ID
	x := do[proto.ExecResult](t, g, "POST", "/v1/containers/"+b.container+"/exec",
		`{"command": "echo kept > kept.txt", "shell": "main"}`)
	b.exec, b.job, b.shell = x.Exec.ID, x.Exec.JobID, "main"
	b.file = do[struct{ ID string }](t, g, "POST", "/v1/files", fileForm(t, 3)).ID
	b.tool = do[toolstore.Tool](t, g, "POST", "/v1/tools",
		`{"name": "pay", "tool_type": "code_runner", "approval_action": "review", "configuration": {"type": "CodeRunner", "runtime": "python", "code": "def run(input): return 1"}}`).ID
	b.run = do[toolstore.Run](t, g, "POST", "/v1/tools/pay/run", `{}`).ID
	b.call = g.parkCall(t, b.container)
	b.ask = g.parkConnection(t, b.container)
	b.snapshot = do[proto.Snapshot](t, g, "POST", "/v1/containers/"+b.container+"/snapshots", `{}`).ID
	return b
}

// parkConnection has a connection of the guest's container wait for a decision.
func (g guest) parkConnection(t *testing.T, container string) (id string) {
	t.Helper()
	target := egress.Target{Name: "asked.example", Port: 443}
	ctx, cancel := context.WithCancel(context.Background())
	_, _ = g.h.Desk.For(g.h.Sessions.Any(container))(ctx, target, func(ask string) { id = ask; cancel() })
	return id
}

// parkCall has code in the guest's container make a call that waits for approval.
func (g guest) parkCall(t *testing.T, container string) string {
	t.Helper()
	owner := do[proto.Key](t, g, "GET", "/v1/keys/self", nil).Owner
	if _, err := g.h.Bridge.Provide(owner, container, "test",
		[]provider.Tool{{Name: "pay", Approval: proto.ApprovalReview}}, time.Minute); err != nil {
		t.Fatal(err)
	}
	const ask = `body='{"calls":[{"id":"1","tool":"pay","input":{}}]}'; exec 3<>/dev/tcp/127.0.0.1/3129; printf 'POST /v1/calls HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s' "$BERTH_TOOLS_TOKEN" ${#body} "$body" >&3; cat <&3`
	body, _ := json.Marshal(proto.Cmd{Command: ask, Background: true})
	do[proto.Exec](t, g, "POST", "/v1/containers/"+container+"/exec", string(body))
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if list := do[struct{ Data []bridge.ToolCall }](t, g, "GET", "/v1/containers/"+container+
			"/tool_calls?state=parked", nil).Data; len(list) > 0 {
			return list[0].ID
		}
	}
	t.Fatal("no call is parked")
	return ""
}

// in puts belongings into a route's path.
func (b belongings) in(path string) string {
	id, name := b.container, b.shell
	switch {
	case strings.HasPrefix(path, "/v1/tools/"):
		name = b.tool
	case strings.HasPrefix(path, "/v1/tool_runs/"):
		id = b.run
	case strings.HasPrefix(path, "/v1/workspaces/"):
		id = b.workspace
	case strings.HasPrefix(path, "/v1/snapshots/"):
		id = b.snapshot
	case strings.HasPrefix(path, "/v1/approvals/"):
		id = b.ask
	case strings.HasPrefix(path, "/v1/keys/"):
		id = b.key
	}
	return strings.NewReplacer("{id}", id, "{exec}", b.exec, "{job}", b.job, "{name}", name, "{file_id}", b.file,
		"{call}", b.call, "{port}", "8000").Replace(path)
}

// An operation is what the OpenAPI document says of one route.
type operation struct {
	ID          string `json:"operationId"`
	Description string
	Parameters  []struct {
		Name, In string
		Required bool
	}
	RequestBody *struct{ Content map[string]any }

	method, path string
}

// named are the operations whose path names something.
func (h *house) named(t *testing.T) (all []operation) {
	t.Helper()
	doc := do[struct {
		Paths map[string]map[string]operation
	}](t, guest{h: h}, "GET", "/openapi.json", nil)
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if strings.Contains(path, "{") {
				op.method, op.path = strings.ToUpper(method), path
				all = append(all, op)
			}
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// bodies are right ones, so that nothing but the ID is wrong with a request. A new operation that takes JSON needs
// one here.
var bodies = map[string]string{
	"signPort": `{}`, "extendContainer": `{"seconds": 60}`, "changeContainer": `{"idle_timeout_seconds": 600}`,
	"run": `{"command": "true"}`, "signalExec": `{"signal": "SIGTERM"}`,
	"resizeExec": `{"rows": 1, "cols": 1}`,
	"useTool":    `{"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "true"}}`,
	"moveFile":   `{"from": "a", "to": "b"}`, "makeDirectory": `{"path": "d"}`,
	"addInputs":   `{"files": ["file_0000000000000000000000"]}`,
	"publishFile": `{"path": "kept.txt"}`, "changeKey": `{"name": "mine now"}`,
	"createContext": `{"name": "main"}`, "runCell": `{"code": "1"}`,
	"changeTool": `{"description": "mine now"}`, "runTool": `{"input": {}}`, "refuseToolRun": `{}`,
	"refuseToolCall": `{}`, "approve": `{"for":"life"}`, "refuse": `{}`, "createSnapshot": `{}`, "forkContainer": `{}`, "commitSnapshot": `{}`,
	"restoreContainer": `{"snapshot": "snapshot_0000000000000000000000"}`,
}

// request is the operation's on belongings: the path with its required query, and a body.
func (op operation) request(t *testing.T, b belongings) (path string, body any) {
	t.Helper()
	path = b.in(op.path)
	sep := "?"
	for _, p := range op.Parameters {
		if p.In == "query" && p.Required {
			path += sep + p.Name + "=kept.txt"
			sep = "&"
		}
	}
	if op.RequestBody == nil {
		return path, nil
	}
	if _, isJSON := op.RequestBody.Content["application/json"]; isJSON {
		if bodies[op.ID] == "" {
			t.Fatalf("the operation %s has no entry in bodies", op.ID)
		}
		return path, bodies[op.ID]
	}
	return path, "bytes"
}

// Every route that names something says of another tenant's what it says of what never was, whatever the method, and
// whether or not the other is an admin. Routes come from the OpenAPI document, so a new one that forgets to ask whose
// it is fails here.
func TestOtherTenantsIDsDoNotExist(t *testing.T) {
	h := newHouse(t, session.Config{})
	ann, bob := h.guest(t, proto.CreateKey{Owner: "ann"}), h.guest(t, proto.CreateKey{Owner: "bob"})
	admin := h.guest(t, proto.CreateKey{Owner: "bob", Admin: true})
	hers, his := ann.settle(t), bob.settle(t)
	mixed := hers
	mixed.container, mixed.workspace = his.container, his.workspace // her exec, in his container
	never := belongings{
		"container_0000000000000000000000", "workspace_0000000000000000000000", "exec_0000000000000000000000",
		"job_0000000000000000000000", "never",
		"file_0000000000000000000000", "key_0000000000000000000000", "tool_0000000000000000000000",
		"run_0000000000000000000000", "call_0000000000000000000000", "snapshot_0000000000000000000000",
		"net_0000000000000000000000",
	}
	ops := h.named(t)
	if len(ops) < 35 {
		t.Fatalf("only %d operations; where are the others?", len(ops))
	}
	for _, op := range ops {
		path, body := op.request(t, hers)
		nowhere, _ := op.request(t, never)
		forAdmins := strings.HasPrefix(op.Description, "Needs an admin's")
		res, text := bob.send(t, op.method, path, body)
		want := http.StatusNotFound
		if forAdmins {
			want = http.StatusForbidden
		}
		if res.StatusCode != want {
			t.Errorf("%s: %s %s answers bob %d: %s", op.ID, op.method, path, res.StatusCode, text)
			continue
		}
		if got, other := plain(text, hers), plain(second(bob.send(t, op.method, nowhere, body)), never); got != other {
			t.Errorf("%s: bob can tell hers from what never was:\n%s\n%s", op.ID, got, other)
		}
		if !forAdmins { // all keys are an admin's
			if res, text := admin.send(t, op.method, path, body); res.StatusCode != http.StatusNotFound {
				t.Errorf("%s: an admin of another tenant is answered %d: %s", op.ID, res.StatusCode, text)
			}
		}
		// shells and contexts have names and no IDs, ports have numbers
		if strings.Count(op.path, "{") > 1 && op.ID != "closeShell" && op.ID != "runCell" &&
			!strings.HasSuffix(op.ID, "Port") {
			path, body := op.request(t, mixed)
			if res, text := bob.send(t, op.method, path, body); res.StatusCode != http.StatusNotFound {
				t.Errorf("%s: %s %s, hers in his container: %d %s", op.ID, op.method, path, res.StatusCode, text)
			}
		}
	}
	ann.unharmed(t, hers)
}

func second[A, B any](_ A, b B) B { return b }

// nameless is an error's text without the request's ID.
func nameless(text string) string {
	var v map[string]any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	delete(v, "request_id")
	data, _ := json.Marshal(v)
	return string(data)
}

// plain is an error's text without what must differ: the ID that was asked for, and the request's own.
func plain(text string, b belongings) string {
	text = nameless(text)
	return strings.NewReplacer(b.container, "ID", b.workspace, "ID", b.exec, "EXEC", b.job, "JOB", b.file, "FILE",
		b.key, "KEY", b.tool, "TOOL", b.run, "RUN", b.call, "CALL", b.snapshot, "SNAPSHOT", b.ask,
		"ASK").Replace(text)
}

// unharmed fails the test if something of the guest's is gone or changed.
func (g guest) unharmed(t *testing.T, b belongings) {
	t.Helper()
	if c := do[proto.Container](t, g, "GET", "/v1/containers/"+b.container, nil); c.State != proto.StateRunning ||
		c.WorkspaceID != b.workspace {
		t.Errorf("her container is %+v", c)
	}
	x := do[proto.ExecResult](t, g, "POST", "/v1/containers/"+b.container+"/exec", `{"command": "ls; cat kept.txt"}`)
	if r := x.Result.Result; r == nil || strings.Contains(r.Stdout, "b\nd\n") ||
		!strings.HasSuffix(r.Stdout, "kept\n") {
		t.Errorf("her files: %+v", x.Result)
	}
	if a := do[proto.Approval](t, g, "GET", "/v1/approvals/"+b.ask, nil); a.State != proto.ApprovalParked {
		t.Errorf("her approval is %+v", a)
	}
	if snap := do[proto.Snapshot](t, g, "GET", "/v1/snapshots/"+b.snapshot, nil); snap.ContainerID != b.container {
		t.Errorf("her snapshot is %+v", snap)
	}
	if tool := do[toolstore.Tool](t, g, "GET", "/v1/tools/pay", nil); tool.ID != b.tool || tool.Version != 1 ||
		tool.Description != "" {
		t.Errorf("her tool is %+v", tool)
	}
	if run := do[toolstore.Run](t, g, "GET", "/v1/tool_runs/"+b.run, nil); run.State != proto.RunParked {
		t.Errorf("her run is %+v", run)
	}
	if res, text := g.send(t, "GET", "/v1/files/"+b.file+"/content", nil); text != "xxx" {
		t.Errorf("her stored file: %d %s", res.StatusCode, text)
	}
	if k := do[proto.KeyStatus](t, g, "GET", "/v1/keys/self", nil); k.ID != b.key || k.Name != "" {
		t.Errorf("her key is %+v", k)
	}
}

// What a body or a query names is another tenant's just as much.
func TestOtherTenantsIDsInBodies(t *testing.T) {
	h := newHouse(t, session.Config{})
	ann, bob := h.guest(t, proto.CreateKey{Owner: "ann"}), h.guest(t, proto.CreateKey{Owner: "bob"})
	hers, his := ann.settle(t), bob.settle(t)
	// a workspace that anybody of hers could take
	do[any](t, ann, "DELETE", "/v1/containers/"+hers.container+"?keep_workspace=true", nil)
	at := "/v1/containers/" + his.container
	for _, r := range []struct{ path, body string }{
		{"/v1/containers", `{"workspace_id": "` + hers.workspace + `"}`},
		{"/v1/containers", `{"files": ["` + hers.file + `"]}`},
		{"/v1/exec", `{"command": "true", "create": {"workspace_id": "` + hers.workspace + `"}}`},
		{"/v1/exec", `{"command": "true", "files": ["` + hers.file + `"]}`},
		{at + "/exec", `{"command": "true", "files": ["` + hers.file + `"]}`},
		{at + "/inputs", `{"files": ["` + hers.file + `"]}`},
	} {
		if res, text := bob.send(t, "POST", r.path, r.body); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s %s: %d %s", r.path, r.body, res.StatusCode, text)
		}
	}
	for _, path := range []string{"/v1/containers", "/v1/containers?state=expired",
		"/v1/containers?after=container_zzzzzzzzzzzzzzzzzzzzzz", "/v1/workspaces", "/v1/files",
		"/v1/files?ids[]=" + hers.file, "/v1/files?scope_id=" + hers.container} {
		res, text := bob.send(t, "GET", path, nil)
		for _, id := range []string{hers.container, hers.workspace, hers.file} {
			if res.StatusCode != http.StatusOK || strings.Contains(strings.TrimPrefix(text, path), id) {
				t.Errorf("%s: %d tells of %s: %s", path, res.StatusCode, id, text)
			}
		}
	}
	if n := do[struct{ Data []proto.Container }](t, bob, "GET", "/v1/containers", nil); len(n.Data) != 1 {
		t.Errorf("bob has %d containers: a refused request left something", len(n.Data))
	}
	// the second one is his, and opens
	for _, path := range []string{"/v1/containers/" + hers.container + "/live", at + "/live"} {
		conn, res, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(h.server.URL, "http")+path,
			http.Header{"X-Api-Key": {bob.secret}})
		if path != at+"/live" {
			if err == nil || res.StatusCode != http.StatusNotFound {
				t.Errorf("a websocket to hers: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
}

// Keys of one owner share what they make.
func TestKeysOfOneOwner(t *testing.T) {
	h := newHouse(t, session.Config{})
	one, two := h.guest(t, proto.CreateKey{Owner: "ann"}), h.guest(t, proto.CreateKey{Owner: "ann"})
	hers := one.settle(t)
	hers.key = two.id
	two.unharmed(t, hers)
}

// What changes the daemon for everybody is an admin's.
func TestAdminRoutes(t *testing.T) {
	h := newHouse(t, session.Config{})
	user, admin := h.guest(t, proto.CreateKey{Owner: "ann"}), h.guest(t, proto.CreateKey{Owner: "bob", Admin: true})
	for _, r := range []struct{ method, path string }{
		{"POST", "/v1/keys"}, {"GET", "/v1/keys"}, {"GET", "/v1/keys/" + user.id}, {"PATCH", "/v1/keys/" + user.id},
		{"DELETE", "/v1/keys/" + user.id},
		{"POST", "/v1/images/import?name=base"}, {"POST", "/v1/images/pull"}, {"DELETE", "/v1/images?ref=base"},
		{"POST", "/v1/sweep"},
	} {
		if res, text := user.send(t, r.method, r.path, "{}"); res.StatusCode != http.StatusForbidden ||
			!strings.Contains(text, "permission_denied") {
			t.Errorf("%s %s: a user is answered %d %s", r.method, r.path, res.StatusCode, text)
		}
		if r.method == "DELETE" {
			continue
		}
		if res, text := admin.send(t, r.method, r.path, "{}"); res.StatusCode == http.StatusForbidden {
			t.Errorf("%s %s: an admin is answered %d %s", r.method, r.path, res.StatusCode, text)
		}
	}
	if k := do[proto.KeyStatus](t, user, "GET", "/v1/keys/self", nil); k.ID != user.id || k.Admin {
		t.Errorf("%+v", k)
	}
}

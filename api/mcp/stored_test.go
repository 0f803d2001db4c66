package mcp

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/state/vault"
	"berth/test/sessiontest"
	"berth/tools/toolstore"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// withTools is a site with a tool store.
func withTools(t *testing.T) *site {
	t.Helper()
	stack := sessiontest.New(t, session.Config{})
	secrets, err := vault.Open(filepath.Join(stack.Dir, "secret-key"), stack.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	return newSiteOver(t, stack, func(c *Config) {
		tools, err := toolstore.Open(toolstore.Config{Ledger: stack.Ledger, Sessions: stack.Sessions, Code: c.Code,
			Vault: secrets})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tools.Close() })
		c.Tools = tools
	})
}

// store stores a tool of the site's owner.
func (s *site) store(t *testing.T, req toolstore.NewTool) {
	t.Helper()
	req.ToolType, req.Configuration.Type, req.Configuration.Runtime = "code_runner", "CodeRunner", "python"
	if _, err := s.edge.Tools.Create(t.Context(), sessiontest.Owner, req); err != nil {
		t.Fatal(err)
	}
}

// A stored tool is called by its own name, checked by its own schemas, and is there for its owner alone.
func TestStoredTools(t *testing.T) {
	s := withTools(t)
	s.store(t, toolstore.NewTool{Name: "double", Description: "Doubles.", Configuration: toolstore.Configuration{
		Code: "import os\ndef run(input):\n    print('at work')\n    " +
			"open(os.path.join(os.environ['OUTPUT_DIR'], 'a.txt'), 'w').write('made')\n    return {'twice': " +
			"input['n'] * 2}",
		InputSchema: []toolstore.Field{{Name: "n", FieldType: "INTEGER", Required: true, Description: "A number."},
			{Name: "tags", FieldType: "ARRAY", ItemsType: "STRING"}},
		OutputSchema: []toolstore.Field{{Name: "twice", FieldType: "INTEGER", Required: true}},
	}})
	s.store(t, toolstore.NewTool{Name: "bash", Configuration: toolstore.Configuration{
		Code: "def run(input): return 'not the shell'"}})
	s.store(t, toolstore.NewTool{Name: "nothing", Configuration: toolstore.Configuration{
		Code: "def run(input): return None"}})
	cs := s.session(t)
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list.Tools, func(row *sdk.Tool) bool { return row.Name == "double" })
	if i < 0 || len(list.Tools) != len(commonTools)+2 {
		t.Fatalf("%d tools, double at %d", len(list.Tools), i)
	}
	shape, _ := json.Marshal(list.Tools[i].InputSchema)
	if want := `{"properties":{"n":{"description":"A number.","type":"integer"},"tags":{"items":{"type":"string"},"type":"array"}},"required":["n"],"type":"object"}`; string(shape) != want {
		t.Errorf("schema %s", shape)
	}
	res, said := use(t, cs, "double", map[string]any{"n": 21})
	out, _ := json.Marshal(res.StructuredContent)
	if res.IsError || string(out) != `{"twice":42}` || !strings.Contains(said, "at work") || len(res.Content) != 3 {
		t.Errorf("%+v %s %q", res, out, said)
	}
	// Official clients read null as nothing at all; the schemas of others refuse it.
	if status, body := s.post(t, sessiontest.Secret, cs.ID(),
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"nothing","arguments":{}}}`); status != 200 ||
		strings.Contains(body, "structuredContent") || !strings.Contains(body, `"text":"null"`) {
		t.Errorf("a tool that gives back nothing: %d %s", status, body)
	}
	res, said = use(t, cs, "double", map[string]any{"n": "many"})
	if !res.IsError || !strings.Contains(said, "input.n") {
		t.Errorf("wrong input: %+v %q", res, said)
	}
}

// A call of a tool under review waits for a person, and is withdrawn by a client that waits no more.
func TestStoredToolsWait(t *testing.T) {
	s := withTools(t)
	s.store(t, toolstore.NewTool{Name: "pay", ApprovalAction: toolstore.ApprovalReview,
		Configuration: toolstore.Configuration{Code: "def run(input): return {'paid': True}"}})
	cs := s.session(t)
	parked := func() toolstore.Run {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if list, _, err := s.edge.Tools.Runs(sessiontest.Owner, toolstore.Filter{
				State: proto.RunParked}); err == nil && len(list) == 1 {
				return list[0]
			}
		}
		t.Fatal("no run waits")
		return toolstore.Run{}
	}
	answer := make(chan string, 1)
	ask := func(ctx context.Context) {
		res, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: "pay"})
		if err != nil {
			answer <- err.Error()
			return
		}
		answer <- res.Content[0].(*sdk.TextContent).Text
	}
	go ask(t.Context())
	if _, err := s.edge.Tools.Approve(t.Context(), sessiontest.Owner, parked().ID); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != `{"paid":true}` {
		t.Errorf("approved: %s", got)
	}
	go ask(t.Context())
	if _, err := s.edge.Tools.Refuse(t.Context(), sessiontest.Owner, parked().ID, toolstore.Refusal{
		Reason: "too dear"}); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; !strings.Contains(got, "too dear") {
		t.Errorf("refused: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go ask(ctx)
	run := parked()
	cancel()
	<-answer
	over, err := s.edge.Tools.Await(t.Context(), sessiontest.Owner, run.ID)
	if err != nil || over.State != proto.RunRefused {
		t.Errorf("withdrawn: %+v %v", over, err)
	}
}

// A client says in the URL or in headers how the containers of its session are confined: the session's own, and those
// that single calls get.
func TestConfinementOfASession(t *testing.T) {
	s := withTools(t)
	s.store(t, toolstore.NewTool{Name: "one", Configuration: toolstore.Configuration{
		Code: "def run(input): return 1"}})
	s.store(t, toolstore.NewTool{Name: "small", Configuration: toolstore.Configuration{
		Code:        "def run(input): return 1",
		Confinement: proto.Confinement{RuntimeClass: proto.ClassRunc, Limits: proto.Limits{PIDs: 48}}}})
	want := proto.Limits{CPUs: 0.5, MemoryBytes: 256 << 20, PIDs: 64, DiskBytes: 64 << 20, OpenFiles: 512}
	for _, c := range []struct {
		query  string
		header []string
	}{
		{query: "?runtime_class=gvisor&cpus=0.5&memory_bytes=268435456&pids=64&disk_bytes=67108864&open_files=512"},
		{header: []string{"Berth-Runtime-Class", "gvisor", "Berth-Cpus", "0.5", "Berth-Memory-Bytes", "268435456",
			"Berth-Pids", "64", "Berth-Disk-Bytes", "67108864", "Berth-Open-Files", "512"}},
	} {
		cs, err := s.connect(t, sessiontest.Secret, c.query, nil, c.header...)
		if err != nil {
			t.Fatal(err)
		}
		for tool, in := range map[string]map[string]any{"bash": {"command": "true"},
			"code_executor": {"language": "python", "code": "1"}, "one": {}} {
			use(t, cs, tool, in)
			if got := s.LastStarted(t); got.RuntimeClass != proto.ClassGVisor || got.Limits != want {
				t.Errorf("%s %s: started as %+v", c.query, tool, got)
			}
		}
		use(t, cs, "small", map[string]any{})
		if got := s.LastStarted(t); got.RuntimeClass != proto.ClassRunc || got.Limits.PIDs != 48 {
			t.Errorf("%s: the confinement of a tool itself: %+v", c.query, got)
		}
		cs.Close()
	}
	made := s.Create(t, proto.CreateContainer{})
	for query, want := range map[string]string{"?runtime_class=vm": "runtime_class", "?cpus=x": "cpus", "?pids=0.5": "pids",
		"?memory_bytes=1": "memory_bytes", "?pids=0": "limits.pids must be from 16", "?cpus=0": "limits.cpus must be from 0.01",
		"?runtime_class=runc&container=" + made.ID(): "runtime_class",
		"?pids=64&container=" + made.ID():            "limits"} {
		if _, err := s.connect(t, sessiontest.Secret, query, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", query, err)
		}
	}
}

package toolstore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/code"
	"berth/proto"
	"berth/session"
	"berth/state/vault"
	"berth/test/sessiontest"
	"berth/tools/toolstore"
)

const owner = sessiontest.Owner

// A bench is a stack with a tool store over it.
type bench struct {
	st *sessiontest.Stack
	*toolstore.Store
	run *code.Runner
	cfg toolstore.Config
}

func newBench(t *testing.T, cfg toolstore.Config) *bench {
	t.Helper()
	b := &bench{st: sessiontest.New(t, session.Config{}), cfg: cfg}
	b.open(t)
	t.Cleanup(b.close)
	return b
}

func (b *bench) open(t *testing.T) {
	t.Helper()
	b.run = code.Open(code.Config{Sessions: b.st.Sessions})
	cfg := b.cfg
	cfg.Ledger, cfg.Sessions, cfg.Code = b.st.Ledger, b.st.Sessions, b.run
	var err error
	if cfg.Vault, err = vault.Open(filepath.Join(b.st.Dir, "secret-key"), b.st.Ledger); err != nil {
		t.Fatal(err)
	}
	if b.Store, err = toolstore.Open(cfg); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) close() {
	_ = b.Store.Close()
	_ = b.run.Close()
}

// reopen restarts the daemon.
func (b *bench) reopen(t *testing.T) {
	t.Helper()
	b.close()
	b.st.Reopen(t)
	b.open(t)
}

// tool returns a tool with this code; adjust may change it.
func tool(name, text string, adjust ...func(*toolstore.NewTool)) toolstore.NewTool {
	req := toolstore.NewTool{Name: name, ToolType: "code_runner", Configuration: toolstore.Configuration{
		Type: "CodeRunner", Runtime: "python", Code: text}}
	for _, fn := range adjust {
		fn(&req)
	}
	return req
}

func input(fields ...toolstore.Field) func(*toolstore.NewTool) {
	return func(r *toolstore.NewTool) { r.Configuration.InputSchema = fields }
}

func output(fields ...toolstore.Field) func(*toolstore.NewTool) {
	return func(r *toolstore.NewTool) { r.Configuration.OutputSchema = append([]toolstore.Field{}, fields...) }
}

func env(vars map[string]string) func(*toolstore.NewTool) {
	return func(r *toolstore.NewTool) { r.Configuration.EnvVariables = vars }
}

func review(r *toolstore.NewTool) { r.ApprovalAction = toolstore.ApprovalReview }

func timeout(seconds float64) func(*toolstore.NewTool) {
	return func(r *toolstore.NewTool) { r.Configuration.TimeoutSeconds = seconds }
}

func (b *bench) make(t *testing.T, req toolstore.NewTool) toolstore.Tool {
	t.Helper()
	made, err := b.Create(context.Background(), owner, req)
	if err != nil {
		t.Fatalf("%s: %v", req.Name, err)
	}
	return made
}

// do runs a tool, which must not return an error.
func (b *bench) do(t *testing.T, name, in string) toolstore.Run {
	t.Helper()
	run, _, err := b.Run(context.Background(), owner, name, toolstore.RunRequest{Input: json.RawMessage(in)})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return run
}

// text returns JSON in a canonical form.
func text(raw json.RawMessage) string {
	var v any
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if json.Unmarshal(raw, &v) != nil || enc.Encode(v) != nil {
		return "no JSON: " + string(raw)
	}
	return strings.TrimSpace(b.String())
}

// refused checks the code, the item and a part of the message of an error.
func refused(t *testing.T, err error, code proto.Code, item, words string) {
	t.Helper()
	var e *proto.Error
	if !errors.As(err, &e) || e.Code != code || e.Item != item || !strings.Contains(e.Message, words) {
		t.Errorf("got %v (item %q), want %s about %q with %q", err, proto.AsError(err).Item, code, item, words)
	}
}

func TestRunGivesBackWhatTheCodeReturns(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	made := b.make(t, tool("greet", "import os\ndef run(input):\n    print('hello')\n    "+
		"open(os.path.join(os.environ['OUTPUT_DIR'], 'a.txt'), 'w').write('made')\n    return {'text': 'Hi ' + "+
		"input['who'] + '!', 'n': input['n'] + 1, 'keys': sorted(input)}",
		input(toolstore.Field{Name: "who", FieldType: "STRING", Required: true}, toolstore.Field{Name: "n",
			FieldType: "INTEGER"}),
		output(toolstore.Field{Name: "text", FieldType: "STRING", Required: true})))
	if made.Version != 1 || len(made.Notes) > 0 || made.Configuration.TimeoutSeconds != 30 {
		t.Errorf("%+v", made)
	}
	run := b.do(t, "greet", `{"who": "é\u0000<&>", "n": 2.0, "other": 1, "none": null}`)
	if run.State != proto.RunSucceeded ||
		text(run.Output) != `{"keys":["n","who"],"n":3,"text":"Hi é\u0000<&>!"}` {
		t.Errorf("%s %s %+v", run.State, run.Output, run.Error)
	}
	if strings.Join(run.Logs.Stdout, "") != "hello\n" || len(run.Files) != 1 || run.DurationMS <= 0 ||
		run.EndedAt == nil || run.Version != 1 {
		t.Errorf("%+v", run)
	}
	if len(run.Notes) != 1 || !strings.Contains(run.Notes[0], "none, other") ||
		text(run.Input) != `{"n":2,"who":"é\u0000<&>"}` {
		t.Errorf("%q %s", run.Notes, run.Input)
	}
	if got, err := b.GetRun(owner, run.ID); err != nil || got.State != run.State ||
		!bytes.Equal(got.Output, run.Output) {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := b.GetRun("other", run.ID); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("another owner sees it: %v", err)
	}
	if _, err := b.Get("other", made.ID, 0); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("another owner sees the tool: %v", err)
	}
	if left, _, err := b.st.Sessions.List(owner, session.Filter{}); err != nil || len(left) != 0 {
		t.Errorf("%d containers are left", len(left))
	}
}

// A failure is the expected error of a run.
type failure struct {
	text                 string
	kind, message, field string
	traceback            string
	adjust               []func(*toolstore.NewTool)
}

var failures = map[string]failure{
	"exception": {text: "def inner():\n    raise ValueError('v')\ndef run(input):\n    inner()", kind: "exception",
		message: "v", traceback: "in run\n    inner()"},
	"late_syntax": {text: "def run(input):\n    return eval('1 +')", kind: "exception", message: "invalid syntax"},
	"exit":        {text: "import sys\ndef run(input):\n    sys.exit(3)", kind: "exit", message: "status 3"},
	"hard_exit":   {text: "import os\ndef run(input):\n    os._exit(4)", kind: "exit", message: "status 4"},
	"signal": {text: "import os\ndef run(input):\n    os.kill(os.getpid(), 9)", kind: "signal",
		message: "SIGKILL"},
	"timeout": {text: "import time\ndef run(input):\n    print('kept', flush=True)\n    time.sleep(60)",
		kind: "timeout", adjust: []func(*toolstore.NewTool){timeout(0.5)}},
	"a_set": {text: "def run(input):\n    return {'items': [1, {'when': {1}}]}", kind: "not_serializable",
		field: "output.items.1.when", message: "type set"},
	"a_nan": {text: "def run(input):\n    return [float('nan')]", kind: "not_serializable", field: "output.0",
		message: "nan"},
	"a_key": {text: "def run(input):\n    return {(1, 2): 3}", kind: "not_serializable", field: "output",
		message: "key of type tuple"},
	"itself": {text: "def run(input):\n    x = []\n    x.append(x)\n    return x", kind: "not_serializable",
		field: "output.0", message: "itself"},
	"a_surrogate": {text: "def run(input):\n    return {'a': '\\ud800'}", kind: "not_serializable", field: "output.a",
		message: "half of a character"},
	"too_large": {text: "def run(input):\n    return 'x' * 300000", kind: "output_too_large", field: "output",
		message: "$OUTPUT_DIR"},
	"wrong_type": {text: "def run(input):\n    return {'n': 1.5}", kind: "invalid_output", field: "output.n",
		message: "INTEGER", adjust: []func(*toolstore.NewTool){
			output(toolstore.Field{Name: "n", FieldType: "INTEGER"})}},
	"missing": {text: "def run(input):\n    return {}", kind: "invalid_output", field: "output.n",
		message: "required", adjust: []func(*toolstore.NewTool){
			output(toolstore.Field{Name: "n", FieldType: "INTEGER", Required: true})}},
	"no_object": {text: "def run(input):\n    return [1]", kind: "invalid_output", field: "output",
		message: "an array", adjust: []func(*toolstore.NewTool){output()}},
	"no_program": {text: "import subprocess\ndef run(input):\n    subprocess.run(['ffmpeg-of-another-image'])",
		kind: "exception", message: "no program ffmpeg-of-another-image"},
	"no_module": {text: "def run(input):\n    import docxtpl_of_another_image", kind: "exception",
		message: "no such Python module"},
	"no_key": {text: "def run(input):\n    return anthropic_client.messages", kind: "exception",
		message: "anthropic_client needs ANTHROPIC_API_KEY, which is not configured"},
	"not_callable":  {text: "run = 5", kind: "no_run", message: "def run(input)"},
	"while_loading": {text: "raise RuntimeError('r')\ndef run(input): pass", kind: "exception", message: "r"},
}

func TestRunsFailByName(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	for name, f := range failures {
		b.make(t, tool(name, f.text, f.adjust...))
		run := b.do(t, name, "")
		if e := run.Error; run.State != proto.RunFailed || e == nil || e.Type != f.kind || e.Field != f.field ||
			!strings.Contains(e.Message, f.message) || !strings.Contains(e.Traceback, f.traceback) {
			t.Errorf("%s: %s %+v", name, run.State, e)
		} else if strings.Contains(e.Traceback, "berth_tool") {
			t.Errorf("%s: frames that are not the tool's: %s", name, e.Traceback)
		}
		if name == "timeout" && strings.Join(run.Logs.Stdout, "") != "kept\n" {
			t.Errorf("what was printed is lost: %q", run.Logs)
		}
	}
}

func TestCodeIsCheckedWhenItIsStored(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	for text, words := range map[string]string{
		"def run(input):\n  x = = 1": "SyntaxError", "def other(input): pass": "defines no function run",
		"class A:\n  def run(self): pass": "no function run",
	} {
		_, err := b.Create(context.Background(), owner, tool("t", text))
		refused(t, err, proto.InvalidArgument, "configuration.code", words)
	}
	for i, text := range []string{"async def run(input): return 1", "run = lambda input: 1",
		"if True:\n  def run(input): return 1", "def real(input): return 1\nrun = real"} {
		name := "fine" + string(rune('a'+i))
		b.make(t, tool(name, text))
		if run := b.do(t, name, ""); string(run.Output) != "1" {
			t.Errorf("%s: %+v %+v", text, run.State, run.Error)
		}
	}
}

func TestVersions(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	ctx := context.Background()
	made := b.make(t, tool("v", "def run(input): return 1", env(map[string]string{"TOKEN": "the-first-token"})))
	first := b.do(t, "v", "")
	cfg := made.Configuration
	cfg.Code = "import os\ndef run(input): return 2 if os.environ['TOKEN'].endswith('first-token') else 0"
	if now, err := b.Change(ctx, owner, made.ID, toolstore.ChangeTool{Configuration: &cfg}); err != nil ||
		now.Version != 2 || len(now.EnvVariableNames) != 1 {
		t.Fatalf("%+v %v", now, err)
	}
	if run := b.do(t, "v", ""); string(run.Output) != "2" || run.Version != 2 {
		t.Errorf("%+v %+v", run, run.Error)
	}
	old, _, err := b.Run(ctx, owner, "v", toolstore.RunRequest{Version: 1})
	if err != nil || string(old.Output) != "1" || old.Version != 1 {
		t.Errorf("%+v %v", old, err)
	}
	_, _, err = b.Run(ctx, owner, "v", toolstore.RunRequest{Version: 3})
	refused(t, err, proto.NotFound, "version", "no version 3")
	if list, err := b.Versions(owner, "v"); err != nil || len(list) != 2 || list[0].Version != 2 {
		t.Errorf("%+v %v", list, err)
	}
	name := "w"
	_, err = b.Change(ctx, owner, "v", toolstore.ChangeTool{Name: &name})
	refused(t, err, proto.InvalidArgument, "name", "keeps its name")
	_, err = b.Create(ctx, owner, tool("v", "def run(input): return 1"))
	refused(t, err, proto.AlreadyExists, "v", "choose another name")
	if _, err := b.Delete(ctx, owner, "v"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Get(owner, "v", 0); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("it is there: %v", err)
	}
	if run, err := b.GetRun(owner, first.ID); err != nil || string(run.Output) != "1" {
		t.Errorf("its run is gone: %+v %v", run, err)
	}
	if list, more, err := b.Runs(owner, toolstore.Filter{Tool: "v", State: proto.RunSucceeded,
		Limit: 2}); err != nil || !more || len(list) != 2 || list[0].ID != old.ID {
		t.Errorf("%+v %v %v", list, more, err)
	}
}

func TestRunInANamedContainer(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	s := b.st.Create(t, proto.CreateContainer{})
	b.make(t, tool("leave", "import os\ndef run(input):\n    open('/workspace/left', 'w').write('x') if "+
		"os.access('/workspace', os.W_OK) else None\n    return os.environ['SECRET_ONE'][:3]",
		env(map[string]string{"SECRET_ONE": "abcdefgh-1234"})))
	run, _, err := b.Run(context.Background(), owner, "leave", toolstore.RunRequest{Container: s.ID()})
	if err != nil || run.State != proto.RunSucceeded || run.Container != s.ID() {
		t.Fatalf("%+v %+v %v", run, run.Error, err)
	}
	res, err := s.Exec(context.Background(), proto.Cmd{Command: "env"})
	if err != nil {
		t.Fatal(err)
	}
	end, err := res.Wait(context.Background())
	if err != nil || end.Result.Result == nil || strings.Contains(end.Result.Result.Stdout, "abcdefgh") {
		t.Errorf("the container has the tool's environment: %+v %v", end, err)
	}
	_, _, err = b.Run(context.Background(), owner, "leave", toolstore.RunRequest{
		Container: "container_0000000000000000000000"})
	if proto.CodeOf(err) != proto.NotFound {
		t.Errorf("%v", err)
	}
}

// A tool may say how its containers are confined, and a run as far as the tool does not. A class that the tool names
// holds for each of its runs.
func TestConfinementOfRuns(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	b.make(t, tool("plain", "def run(input): return 1"))
	b.make(t, tool("guarded", "def run(input): return 1", func(r *toolstore.NewTool) {
		r.Configuration.Confinement = proto.Confinement{RuntimeClass: proto.ClassGVisor,
			Limits: proto.Limits{MemoryBytes: 256 << 20, PIDs: 64}}
	}))
	if got := b.st.LastStarted(t); got.RuntimeClass != proto.ClassGVisor {
		t.Errorf("the code of a tool was checked in %+v", got)
	}
	for _, c := range []struct {
		tool     string
		class    proto.RuntimeClass
		limits   proto.Limits
		want     proto.RuntimeClass
		pids, mb int64
	}{
		{"plain", "", proto.Limits{}, proto.ClassRunc, session.DefaultLimits.PIDs, session.DefaultLimits.MemoryBytes >> 20},
		{"plain", proto.ClassGVisor, proto.Limits{PIDs: 32}, proto.ClassGVisor, 32, session.DefaultLimits.MemoryBytes >> 20},
		{"guarded", "", proto.Limits{PIDs: 32}, proto.ClassGVisor, 32, 256},
		{"guarded", proto.ClassGVisor, proto.Limits{}, proto.ClassGVisor, 64, 256},
	} {
		run, _, err := b.Run(t.Context(), owner, c.tool, toolstore.RunRequest{
			Confinement: proto.Confinement{RuntimeClass: c.class, Limits: c.limits}})
		got := b.st.LastStarted(t)
		if err != nil || run.State != proto.RunSucceeded || got.RuntimeClass != c.want || got.Limits.PIDs != c.pids ||
			got.Limits.MemoryBytes != c.mb<<20 {
			t.Errorf("%+v: %+v %v, started as %+v", c, run.Error, err, got)
		}
	}
	there := b.st.Create(t, proto.CreateContainer{}).ID()
	for item, req := range map[string]toolstore.RunRequest{
		"container":     {Container: there},
		"runtime_class": {Confinement: proto.Confinement{RuntimeClass: proto.ClassRunc}},
	} {
		if _, _, err := b.Run(t.Context(), owner, "guarded", req); proto.CodeOf(err) != proto.Conflict ||
			proto.AsError(err).Item != item {
			t.Errorf("%+v: %v", req, err)
		}
	}
	_, err := b.Create(t.Context(), owner, tool("odd", "def run(input): return 1", func(r *toolstore.NewTool) {
		r.Configuration.RuntimeClass = "vm"
	}))
	if proto.AsError(err).Item != "configuration.runtime_class" {
		t.Errorf("a tool with an unknown class: %v", err)
	}
}

func TestIdempotencyKey(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	b.make(t, tool("once", "import time\ndef run(input): return time.time()"))
	ask := toolstore.RunRequest{IdempotencyKey: "k"}
	first, replayed, err := b.Run(context.Background(), owner, "once", ask)
	if err != nil || replayed {
		t.Fatal(err, replayed)
	}
	again, replayed, err := b.Run(context.Background(), owner, "once", ask)
	if err != nil || !replayed || again.ID != first.ID || !bytes.Equal(again.Output, first.Output) {
		t.Errorf("%+v %v %v", again, replayed, err)
	}
	ask.Files = []string{"file_x"}
	_, _, err = b.Run(context.Background(), owner, "once", ask)
	refused(t, err, proto.Conflict, "k", "used for another request")
}

func TestSecretsAreHiddenAndSealed(t *testing.T) {
	b := newBench(t, toolstore.Config{ProviderKeys: map[string]string{"OPENAI_API_KEY": "sk-provider-key-0123"}})
	secret := "top secret value 42"
	b.make(t, tool("leaky", "import os, sys\ndef run(input):\n    s = os.environ['S']\n    print(s)\n    print(s, "+
		"file=sys.stderr)\n    if input.get('fail'): raise ValueError(s)\n    return {s: [s, "+
		"os.environ['OPENAI_API_KEY'], os.environ['N']]}",
		env(map[string]string{"S": secret, "N": "1"}), input(toolstore.Field{Name: "fail", FieldType: "BOOLEAN"},
			toolstore.Field{Name: "text", FieldType: "STRING"})))
	run := b.do(t, "leaky", `{"text": "top secret value 42"}`)
	if string(run.Output) != `{"[redacted]":["[redacted]","[redacted]","1"]}` ||
		strings.Join(run.Logs.Stdout, "") != "[redacted]\n" || string(run.Input) != `{"text":"[redacted]"}` {
		t.Errorf("%s %q %s %+v", run.Output, run.Logs, run.Input, run.Error)
	}
	if run := b.do(t, "leaky", `{"fail": true}`); run.Error == nil ||
		strings.Contains(run.Error.Message+run.Error.Traceback, secret) || run.Error.Message != "[redacted]" {
		t.Errorf("%+v", run.Error)
	}
	b.close()
	b.st.Close(t)
	err := filepath.WalkDir(b.st.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(secret)) || bytes.Contains(data, []byte("sk-provider-key-0123")) {
			t.Errorf("%s has a secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	b.st.Open(t)
	b.open(t)
}

func TestNetworkIsRefused(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	b.make(t, tool("fetch", "def run(input): return 1", func(r *toolstore.NewTool) {
		r.Configuration.AllowNetwork = true
	}))
	_, _, err := b.Run(context.Background(), owner, "fetch", toolstore.RunRequest{})
	refused(t, err, proto.Unsupported, "configuration.allow_network", "--network-max open")
}

func TestHostsOfVariables(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	hosts := func(network bool, env map[string]string) func(*toolstore.NewTool) {
		return func(r *toolstore.NewTool) {
			r.Configuration.AllowNetwork, r.Configuration.EnvVariables, r.Configuration.EnvHosts = network, env,
				map[string][]string{"KEY": {"api.example.com"}}
		}
	}
	_, err := b.Create(context.Background(), owner, tool("fetch", "def run(input): return 1",
		hosts(false, map[string]string{"KEY": "value"})))
	refused(t, err, proto.InvalidArgument, "configuration.env_hosts", "allow_network")
	// This bench has no proxy; TestSecretsAtTheProxy has one.
	_, err = b.Create(context.Background(), owner, tool("fetch", "def run(input): return 1",
		hosts(true, map[string]string{"KEY": "value"})))
	refused(t, err, proto.Unsupported, "configuration.env_hosts", "network")
}

func TestClientGoesAway(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	b.make(t, tool("slow", "import time\ndef run(input):\n    time.sleep(60)"))
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(500*time.Millisecond, cancel)
	run, _, err := b.Run(ctx, owner, "slow", toolstore.RunRequest{})
	if err != nil || run.State != proto.RunFailed || run.Error.Type != string(proto.Canceled) {
		t.Errorf("%+v %+v %v", run, run.Error, err)
	}
}

// Clients of model providers are objects of the providers' classes, made before the code runs if the code names them.
func TestClientsAreRealObjects(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	s := b.st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, s, "printf 'class OpenAI:\\n  def __init__(self, api_key): self.key = api_key\\n' "+
		">/workspace/openai.py")
	const text = "import openai, sys\ndef run(input):\n  both = {'is': isinstance(openai_client, openai.OpenAI), " +
		"'type': type(openai_client).__name__, 'same': client.openai is openai_client, 'key': len(openai_client.key)}\n" +
		"  try: client.anthropic.messages\n  except RuntimeError as e: both['why'] = str(e)[:36]\n" +
		"  return both"
	if _, err := b.Create(t.Context(), owner, tool("clients", text, func(n *toolstore.NewTool) {
		n.Configuration.EnvVariables = map[string]string{"OPENAI_API_KEY": "sk-12345", "PYTHONPATH": "/workspace"}
	})); err != nil {
		t.Fatal(err)
	}
	run, _, err := b.Run(t.Context(), owner, "clients", toolstore.RunRequest{Container: s.ID()})
	if want := `{"is":true,"key":8,"same":true,"type":"OpenAI","why":"anthropic_client needs ANTHROPIC_API"}`; err !=
		nil || string(run.Output) != want {
		t.Errorf("%v %+v %s", err, run.Error, run.Output)
	}
}

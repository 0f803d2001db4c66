package daemon_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"berth/proto"
	"berth/tools/toolstore"
)

// store stores a tool through the API and deletes it after the test.
func store(t *testing.T, s *server, req toolstore.NewTool) toolstore.Tool {
	t.Helper()
	req.ToolType, req.Configuration.Type, req.Configuration.Runtime = "code_runner", "CodeRunner", "python"
	body, _ := json.Marshal(req)
	made := call[toolstore.Tool](t, s, 201, "POST", "/v1/tools", string(body))
	t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/tools/"+made.ID, nil) })
	return made
}

// mediaProbe runs a tool that creates a sound file and probes it.
func mediaProbe(t *testing.T, image string) toolstore.Run {
	t.Helper()
	store(t, base, toolstore.NewTool{Name: "media_probe", Configuration: toolstore.Configuration{
		Code: `import json, os, subprocess
def run(input):
    path = os.path.join(os.environ['OUTPUT_DIR'], 'tone.wav')
    subprocess.run(['ffmpeg', '-v', 'error', '-f', 'lavfi', '-i', 'sine=duration=%d' % input['seconds'], path], check=True)
    probe = subprocess.run(['ffprobe', '-v', 'error', '-show_format', '-of', 'json', path], capture_output=True, text=True, check=True)
    return {'seconds': float(json.loads(probe.stdout)['format']['duration'])}
`,
		InputSchema:  []toolstore.Field{{Name: "seconds", FieldType: "INTEGER", Required: true}},
		OutputSchema: []toolstore.Field{{Name: "seconds", FieldType: "NUMBER", Required: true}},
	}})
	return call[toolstore.Run](t, base, 200, "POST", "/v1/tools/media_probe/run",
		fmt.Sprintf(`{"input":{"seconds":2},"image":%q}`, image))
}

// TestMissingProgram checks that the error for a missing program names the image that has it. TestFullImage runs the
// same tool there.
func TestMissingProgram(t *testing.T) {
	run := mediaProbe(t, "base")
	if run.State != proto.RunFailed || run.Error.Name != "FileNotFoundError" ||
		!strings.Contains(run.Error.Message, "the image has no program ffmpeg; the image full has it") {
		t.Errorf("%+v %+v", run, run.Error)
	}
}

// own returns the current containers, without those that are prestarted for code.
func own(t *testing.T) (ids []string) {
	t.Helper()
	for _, c := range call[struct{ Data []proto.Container }](t, base, 200, "GET", "/v1/containers", "").Data {
		if c.Labels["berth.for"] == "" {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

func TestToolInAContainerOfItsOwn(t *testing.T) {
	store(t, base, toolstore.NewTool{Name: "alone", Configuration: toolstore.Configuration{TimeoutSeconds: 20,
		Code: `import os, socket
def run(input):
    open('/workspace/left', 'w').write('x')
    try:
        socket.create_connection(('192.0.2.1', 80), 3)
        net = 'reached'
    except OSError:
        net = 'none'
    return {'net': net, 'init_env': b'PROBE' in open('/proc/1/environ', 'rb').read() if os.access('/proc/1/environ', os.R_OK) else False, 'own': os.environ['PROBE'][-3:], 'uid': os.getuid()}
`, EnvVariables: map[string]string{"PROBE": "value-of-probe"}}})
	before := own(t)
	run := call[toolstore.Run](t, base, 200, "POST", "/v1/tools/alone/run", "{}")
	if run.State != proto.RunSucceeded || !strings.Contains(string(run.Output), `"net":"none"`) ||
		!strings.Contains(string(run.Output), `"init_env":false`) ||
		!strings.Contains(string(run.Output), `"own":"obe"`) {
		t.Errorf("%s %+v", run.Output, run.Error)
	}
	if after := own(t); !slices.Equal(before, after) {
		t.Errorf("a container is left: %v, before %v", after, before)
	}
}

func TestToolOutOfMemory(t *testing.T) {
	store(t, base, toolstore.NewTool{Name: "hungry", Configuration: toolstore.Configuration{
		Code: "def run(input):\n    x = []\n    while True: x.append(bytearray(1 << 24))"}})
	c := create(t, base)
	run := call[toolstore.Run](t, base, 200, "POST", "/v1/tools/hungry/run", `{"container":"`+c.ID+`"}`)
	if run.State != proto.RunFailed || run.Error.Type != "out_of_memory" {
		t.Errorf("%+v", run.Error)
	}
}

// TestToolsSurviveTheDaemon kills the daemon. A run that waits for approval still waits, a run in progress is lost,
// and no file contains a secret of either.
func TestToolsSurviveTheDaemon(t *testing.T) {
	h, secret, _ := newHunt(t, base)
	tool := store(t, base, toolstore.NewTool{Name: "careful", ApprovalAction: "review",
		Configuration: toolstore.Configuration{
			Code: "import os\ndef run(input):\n    print(os.environ['S'])\n    return {'said': input['text'], " +
				"'secret': os.environ['S']}",
			InputSchema:  []toolstore.Field{{Name: "text", FieldType: "STRING", Required: true}},
			EnvVariables: map[string]string{"S": secret},
		}})
	store(t, base, toolstore.NewTool{Name: "slow", Configuration: toolstore.Configuration{
		Code: "import time\ndef run(input): time.sleep(100)", TimeoutSeconds: 200}})
	input, _ := json.Marshal(map[string]any{"input": map[string]string{"text": "with " + secret}})
	parked := call[toolstore.Run](t, base, 202, "POST", "/v1/tools/careful/run", string(input))
	slow := call[toolstore.Run](t, base, 202, "POST", "/v1/tools/slow/run", `{"background":true}`)
	if parked.State != proto.RunParked || slow.State != proto.RunRunning {
		t.Fatalf("%+v %+v", parked, slow)
	}
	base.Stop(syscall.SIGKILL)
	if err := base.Start(); err != nil {
		t.Fatal(err)
	}
	if run := call[toolstore.Run](t, base, 200, "GET", "/v1/tool_runs/"+slow.ID, ""); run.State != proto.RunLost {
		t.Errorf("%+v", run)
	}
	at := "/v1/tool_runs/" + parked.ID
	call[toolstore.Run](t, base, 202, "POST", at+"/approve", "")
	done := call[toolstore.Run](t, base, 200, "GET", at+"?wait_seconds=60", "")
	if done.State != proto.RunSucceeded ||
		string(done.Output) != `{"said":"with [redacted]","secret":"[redacted]"}` ||
		strings.Join(done.Logs.Stdout, "") != "[redacted]\n" {
		t.Errorf("%s %s %+v", done.State, done.Output, done.Error)
	}
	if done.Decision == nil || done.Decision.By != done.RequestedBy {
		t.Errorf("%+v", done.Decision)
	}
	if status, _, _ := base.Do("POST", at+"/approve", nil); status != 409 {
		t.Errorf("approved twice: %d", status)
	}
	h.ask(200, "GET", "/v1/tools/"+tool.ID, "")
	h.ask(200, "GET", "/v1/tool_runs", "")
	h.everywhere("")
	if log := string(h.ask(200, "GET", "/v1/audit", "")); !strings.Contains(log, `"tool_run.approve"`) ||
		!strings.Contains(log, parked.ID) {
		t.Error("the audit log does not tell who approved")
	}
}

func TestToolsBelongToAnOwner(t *testing.T) {
	store(t, base, toolstore.NewTool{Name: "mine", Configuration: toolstore.Configuration{
		Code: "def run(input): return 1"}})
	run := call[toolstore.Run](t, base, 200, "POST", "/v1/tools/mine/run", "{}")
	key := call[struct{ Secret string }](t, base, 201, "POST", "/v1/keys", `{"owner":"other-`+strings.ToLower(
		rand.Text())+`"}`)
	other := &server{Daemon: base.Daemon}
	d := *base.Daemon
	d.Key, other.Daemon = key.Secret, &d
	for path, want := range map[string]int{"/v1/tools/mine": 404, "/v1/tool_runs/" + run.ID: 404} {
		if status, body, _ := other.Do("GET", path, nil); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body, _ := other.Do("GET", "/v1/tool_runs", nil); status != 200 ||
		strings.Contains(string(body), run.ID) {
		t.Errorf("%d %s", status, body)
	}
}

package native

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/files"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
	"berth/tools/tooluse"
)

const unknownContainer = "/v1/containers/container_0000000000000000000000"

func TestContainerLife(t *testing.T) {
	s := newSite(t)
	made := must[proto.Container](t, s, "POST", "/v1/containers", proto.CreateContainer{Labels: map[string]string{
		"team": "a=b", "n": "1"}, IdleTimeoutSeconds: 60})
	at := "/v1/containers/" + made.ID
	if made.State != proto.StateRunning || made.Labels["team"] != "a=b" || made.IdleTimeoutSeconds != 60 {
		t.Fatalf("%+v", made)
	}
	if got := must[proto.Container](t, s, "GET", at, nil); got.ID != made.ID || got.WorkspaceID != made.WorkspaceID {
		t.Errorf("get: %+v", got)
	}
	if got := must[proto.Container](t, s, "POST", at+"/extend", extension{3600}); got.ExpiresAt.Sub(
		made.CreatedAt.Time) < 59*time.Minute {
		t.Errorf("extend: %s", got.ExpiresAt)
	}
	must[proto.Container](t, s, "POST", at+"/extend", nil)
	must[proto.Container](t, s, "POST", at+"/extend", `{"seconds":0}`)
	s.run(t, at, "echo kept > f")
	if got := must[proto.Container](t, s, "POST", at+"/stop", nil); got.State != proto.StateStopped {
		t.Errorf("stop: %s", got.State)
	}
	if got := must[proto.Container](t, s, "POST", at+"/start", nil); got.State != proto.StateRunning ||
		got.Generation != 2 {
		t.Errorf("start: %s %d", got.State, got.Generation)
	}
	if got := must[proto.Container](t, s, "POST", at+"/pause", nil); got.State != proto.StatePaused {
		t.Errorf("pause: %s", got.State)
	}
	if got := must[proto.Container](t, s, "POST", at+"/resume", nil); got.State != proto.StateRunning ||
		got.Generation != 2 {
		t.Errorf("resume: %s %d", got.State, got.Generation)
	}
	del := must[deletedContainer](t, s, "DELETE", at+"?keep_workspace=true", nil)
	if del.ID != made.ID || !del.Deleted || !del.WorkspaceKept || del.WorkspaceID != made.WorkspaceID {
		t.Errorf("delete: %+v", del)
	}
	if res, _ := s.do(t, "DELETE", at, nil); res.StatusCode != 404 {
		t.Errorf("second delete: %d", res.StatusCode)
	}
	next := must[proto.Container](t, s, "POST", "/v1/containers", proto.CreateContainer{WorkspaceID: made.WorkspaceID})
	if got := s.run(t, "/v1/containers/"+next.ID, "cat ../*/f"); got.Result.Result.Stdout != "kept\n" {
		t.Errorf("the workspace's file: %+v", got.Result.Result)
	}
	if res, body := s.do(t, "DELETE", "/v1/workspaces/"+made.WorkspaceID, nil); res.StatusCode != 409 {
		t.Errorf("deleting a workspace in use: %d %s", res.StatusCode, body)
	}
	must[deletedContainer](t, s, "DELETE", "/v1/containers/"+next.ID, nil)
	if all := must[page[proto.Workspace]](t, s, "GET", "/v1/workspaces", nil).Data; len(all) != 1 || !all[0].Kept {
		t.Fatalf("workspaces: %+v", all)
	}
	if got := must[deletion](t, s, "DELETE", "/v1/workspaces/"+made.WorkspaceID, nil); got.ID != made.WorkspaceID {
		t.Errorf("%+v", got)
	}
	if all := must[page[proto.Workspace]](t, s, "GET", "/v1/workspaces", nil).Data; all == nil || len(all) != 0 {
		t.Errorf("workspaces: %+v", all)
	}
}

func TestListPages(t *testing.T) {
	s := newSite(t)
	var ids []string
	for i := range 5 {
		c := must[proto.Container](t, s, "POST", "/v1/containers", proto.CreateContainer{Labels: map[string]string{
			"odd": fmt.Sprint(i % 2), "eq": "a=b"}})
		ids = append(ids, c.ID)
	}
	var seen []string
	for after := ""; ; {
		p := must[page[proto.Container]](t, s, "GET", "/v1/containers?limit=2&after="+after, nil)
		for _, c := range p.Data {
			seen = append(seen, c.ID)
		}
		if p.HasMore != (p.NextAfter != nil) {
			t.Fatalf("%+v", p)
		}
		if !p.HasMore {
			break
		}
		after = *p.NextAfter
	}
	if len(seen) != 5 || seen[0] != ids[4] || seen[4] != ids[0] {
		t.Errorf("pages: %v of %v", seen, ids)
	}
	for query, want := range map[string]int{
		"label=odd=1": 2, "label=odd=0&label=eq=a=b": 3, "label=odd=0&label=odd=0": 3, "label=odd=2": 0,
		"state=stopped": 0, "state=running": 5, "": 5, "label=eq=a%3Db": 5,
	} {
		if p := must[page[proto.Container]](t, s, "GET", "/v1/containers?"+query, nil); len(p.Data) != want {
			t.Errorf("%s: %d containers, want %d", query, len(p.Data), want)
		}
	}
}

// File access that is meant for one generation of a container does not touch, or start, the next.
func TestFileAccessOfAGeneration(t *testing.T) {
	s := newSite(t)
	at := "/v1/containers/" + must[proto.Container](t, s, "POST", "/v1/containers", nil).ID
	write := func(generation string, want int) {
		t.Helper()
		if res, body := s.do(t, "PUT", at+"/fs/content?path=f&generation="+generation, "x"); res.StatusCode != want ||
			want == 409 && !strings.Contains(body, "generation") {
			t.Errorf("generation %s: %d %s", generation, res.StatusCode, body)
		}
	}
	write("1", 200)
	write("0", 200)
	write("2", 409)
	write("-1", 400)
	must[proto.Container](t, s, "POST", at+"/stop", nil)
	write("1", 409)
	if c := must[proto.Container](t, s, "GET", at, nil); c.State != proto.StateStopped {
		t.Errorf("it is %s", c.State)
	}
	must[proto.Container](t, s, "POST", at+"/start", nil)
	for _, r := range []struct{ method, path, body string }{
		{"GET", "content?path=f", ""}, {"DELETE", "content?path=f", ""}, {"GET", "list?path=.", ""},
		{"GET", "stat?path=f", ""}, {"GET", "tar?path=.", ""}, {"PUT", "tar?path=.", ""},
		{"POST", "move?", `{"from":"f","to":"g"}`}, {"POST", "mkdir?", `{"path":"d"}`},
	} {
		if res, body := s.do(t, r.method, at+"/fs/"+r.path+"&generation=1", r.body); res.StatusCode != 409 {
			t.Errorf("%s %s: %d %s", r.method, r.path, res.StatusCode, body)
		}
	}
	write("2", 200)
}

func TestExpiredIsToldByName(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	s := siteWith(t, session.Config{Now: clock}, func(*Config) {})
	c := must[proto.Container](t, s, "POST", "/v1/containers", proto.CreateContainer{MaxLifetimeSeconds: 1})
	at := "/v1/containers/" + c.ID
	now = now.Add(2 * time.Second)
	for _, r := range []struct{ method, path, body string }{
		{"GET", "", ""}, {"POST", "/exec", `{"command":"true"}`}, {"GET", "/live", ""}, {"POST", "/extend", ""},
		{"GET", "/fs/stat?path=/", ""},
	} {
		res, body := s.do(t, r.method, at+r.path, r.body)
		if res.StatusCode != 410 || !strings.Contains(body, c.ID) || !strings.Contains(body, `"code":"expired"`) {
			t.Errorf("%s %s: %d %s", r.method, r.path, res.StatusCode, body)
		}
	}
	if counts := must[map[string]map[string]int](t, s, "POST", "/v1/sweep", nil); counts["sessions"]["expired"] != 1 {
		t.Errorf("sweep: %v", counts)
	}
	if got := must[deletedContainer](t, s, "DELETE", at, nil); got.WorkspaceKept {
		t.Errorf("%+v", got)
	}
}

// What is wrong is refused with the right status, named, and in the one shape that errors have.
func TestBadInput(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	x := s.run(t, at, "true").Exec.ID
	long := strings.Repeat("x", maxJSON+1)
	tests := []struct {
		method, path, body string
		status             int
		item               string
	}{
		{"POST", "/v1/containers", `{"imagee":"base"}`, 400, "imagee"},
		{"POST", "/v1/containers", `{"limits":{"cpu":1}}`, 400, "limits.cpu"},
		{"POST", "/v1/containers", `{"image":"none"}`, 404, "none"},
		{"POST", "/v1/containers", `{"labels":{"a":1}}`, 400, "labels.a"},
		{"POST", "/v1/containers", `{"files":["file_none"]}`, 404, "file_none"},
		{"POST", "/v1/containers", `{`, 400, ""},
		{"POST", "/v1/containers", `[]`, 400, ""},
		{"POST", "/v1/containers", `{} {}`, 400, ""},
		{"POST", "/v1/containers", `{"env":{"a":"` + long + `"}}`, 413, ""},
		{"POST", "/v1/containers?dry=true", ``, 400, "dry"},
		{"POST", "/v1/containers", `{"runtime_class":"kata"}`, 400, "runtime_class"},
		{"POST", "/v1/containers", `{"idle_timeout_seconds":-5}`, 400, "idle_timeout_seconds"},
		{"POST", "/v1/containers", `{"workspace_id":"workspace_x"}`, 404, "workspace_x"},
		{"GET", "/v1/containers?limit=1&limit=2", "", 400, "limit"},
		{"GET", "/v1/containers?limit=1001", "", 400, "limit"},
		{"GET", "/v1/containers?limit=-1", "", 400, "limit"},
		{"GET", "/v1/containers?limit=ten", "", 400, "limit"},
		{"GET", "/v1/containers?limit=99999999999999999999", "", 400, "limit"},
		{"GET", "/v1/containers?limit", "", 400, "limit"},
		{"GET", "/v1/containers?label=novalue", "", 400, "label"},
		{"GET", "/v1/containers?label==v", "", 400, "label"},
		{"GET", "/v1/containers?label=a=1&label=a=2", "", 400, "label"},
		{"GET", "/v1/containers?state=asleep", "", 400, "state"},
		{"GET", "/v1/containers?after=x", "", 400, "after"},
		{"GET", "/v1/containers?a=%zz", "", 400, ""},
		{"GET", "/v1/containers?a;b", "", 400, ""},
		{"GET", "/v1/containers?%ff%00=1", "", 400, "\x00"},
		{"GET", "/v1/containers/nope", "", 404, "nope"},
		{"GET", unknownContainer, "", 404, strings.TrimPrefix(unknownContainer, "/v1/containers/")},
		{"DELETE", unknownContainer, "", 404, ""},
		{"DELETE", at + "?keep_workspace=1", "", 400, "keep_workspace"},
		{"POST", at + "/extend", `{"seconds":-1}`, 400, "seconds"},
		{"POST", at + "/extend", `{"seconds":9223372036854775807}`, 400, "seconds"},
		{"POST", at + "/extend", `{"minutes":1}`, 400, "minutes"},
		{"POST", unknownContainer + "/extend", ``, 404, ""},
		{"POST", unknownContainer + "/start", ``, 404, ""},
		{"POST", unknownContainer + "/stop", ``, 404, ""},
		{"POST", unknownContainer + "/reset", ``, 404, ""},
		{"POST", unknownContainer + "/snapshots", ``, 404, ""},
		{"POST", at + "/snapshots", `{"name":"a b"}`, 400, "name"},
		{"POST", at + "/snapshots", `{"expires_after_seconds":-1}`, 400, "expires_after_seconds"},
		{"POST", at + "/restore", `{}`, 404, ""},
		{"POST", at + "/restore", `{"snapshot":"nosuch"}`, 404, "nosuch"},
		{"POST", at + "/fork", `{"count":101}`, 400, "count"},
		{"GET", "/v1/snapshots/nosuch", "", 404, "nosuch"},
		{"DELETE", "/v1/snapshots/nosuch", "", 404, "nosuch"},
		{"POST", "/v1/containers", `{"snapshot":"nosuch"}`, 404, "nosuch"},
		{"POST", "/v1/containers", `{"snapshot":"nosuch","image":"base"}`, 400, "snapshot"},
		{"POST", unknownContainer + "/exec", `{"command":"true"}`, 404, ""},
		{"POST", at + "/exec", ``, 400, ""},
		{"POST", at + "/exec", `{}`, 400, "command"},
		{"POST", at + "/exec", `{"command":"a","argv":["b"]}`, 400, "argv"},
		{"POST", at + "/exec", `{"command":"a","Command":"b"}`, 400, "Command"},
		{"POST", at + "/exec", `{"command":"a","timeout_seconds":"1"}`, 400, "timeout_seconds"},
		{"POST", at + "/exec", `{"command":"a","tty":{"rows":70000,"cols":1}}`, 400, "tty.rows"},
		{"POST", at + "/exec", `{"command":"a","create":{}}`, 400, "create"},
		{"POST", at + "/exec", `{"command":"a","files":["file_none"]}`, 404, "file_none"},
		{"POST", "/v1/exec", `{"command":"a","ephemeral":true,"background":true}`, 400, "ephemeral"},
		{"POST", "/v1/exec", `{"command":"a","ephemeral":true,"detach":true}`, 400, "ephemeral"},
		{"POST", "/v1/exec", `{"command":"a","ephemeral":true,"reconnect_seconds":9}`, 400, "ephemeral"},
		{"POST", "/v1/exec", `{"command":"a","create":{"imag":"x"}}`, 400, "create.imag"},
		{"POST", "/v1/exec", `{"ephemeral":true}`, 400, "command"},
		{"POST", "/v1/exec", `{"user":"admin","command":"true"}`, 400, "admin"},
		{"GET", at + "/execs/exec_none", "", 404, "exec_none"},
		{"GET", at + "/execs/exec_none/result", "", 404, "exec_none"},
		{"GET", at + "/execs/exec_none/logs", "", 404, "exec_none"},
		{"GET", at + "/execs/exec_none/events", "", 404, "exec_none"},
		{"GET", at + "/execs/" + x + "/result?wait_seconds=90000", "", 400, "wait_seconds"},
		{"GET", at + "/execs/" + x + "/logs?offset=5", "", 400, "offset"},
		{"GET", at + "/execs/" + x + "/logs?stream=stdin", "", 400, "stream"},
		{"GET", at + "/execs/" + x + "/logs?stream=stdout&offset=-1", "", 400, "offset"},
		{"GET", at + "/execs/" + x + "/events?stdout_offset=-1", "", 400, "stdout_offset"},
		{"POST", at + "/execs/" + x + "/signal", `{"signal":"SIGTERM"}`, 409, x},
		{"POST", at + "/execs/exec_none/signal", `{"signal":"SIGTERM"}`, 404, "exec_none"},
		{"POST", at + "/execs/" + x + "/stdin", `hello`, 409, x},
		{"POST", at + "/execs/" + x + "/resize", `{"rows":1,"cols":1}`, 409, x},
		{"POST", at + "/execs/" + x + "/resize", `{"rows":0,"cols":1}`, 400, "rows"},
		{"DELETE", at + "/shells/none", "", 404, ""},
		{"DELETE", at + "/shells/%2e%2e", "", 404, ".."},
		{"GET", at + "/live", "", 426, "Upgrade"},
		{"GET", at + "/live?watch=yes", "", 400, "watch"},
		{"GET", at + "/fs/content", "", 400, "path"},
		{"GET", at + "/fs/content?path=", "", 400, "path"},
		{"GET", at + "/fs/content?path=/none", "", 404, "/none"},
		{"GET", at + "/fs/content?path=/", "", 400, "/"},
		{"GET", at + "/fs/content?path=/x&as=admin", "", 400, "admin"},
		{"GET", at + "/fs/content?path=a%00b", "", 400, ""},
		{"PUT", at + "/fs/content?path=/x&mode=0999", "x", 400, "mode"},
		{"PUT", at + "/fs/content?path=/x&mode=0000", "x", 400, "mode"},
		{"PUT", at + "/fs/content?path=/x&mode=10000", "x", 400, "mode"},
		{"PUT", at + "/fs/content?path=/usr/bin/x", "x", 403, "/usr/bin/x"},
		{"DELETE", at + "/fs/content?path=/none", "", 404, "/none"},
		{"GET", at + "/fs/list?path=/none", "", 404, "/none"},
		{"GET", at + "/fs/stat?path=/none", "", 404, "/none"},
		{"GET", at + "/fs/watch?path=/none", "", 404, "/none"},
		{"GET", at + "/fs/watch?path=/etc/passwd", "", 400, "/etc/passwd"},
		{"GET", at + "/fs/tar?path=/none", "", 404, "/none"},
		{"PUT", at + "/fs/tar?path=t", "this is no archive", 400, ""},
		{"POST", at + "/fs/move", `{"from":"a"}`, 400, "from"},
		{"POST", at + "/fs/move", `{"from":"/none","to":"/workspace/b"}`, 404, "/none"},
		{"POST", at + "/fs/move", `{"from":"a","to":"b","as":"admin"}`, 400, "admin"},
		{"POST", at + "/fs/mkdir", `{}`, 400, "path"},
		{"POST", at + "/fs/mkdir", `{"path":"/proc/x"}`, 0, ""},
		{"POST", at + "/inputs", `{"files":["file_none"]}`, 404, "file_none"},
		{"GET", at + "/jobs/none/manifest", "", 404, "none"},
		{"GET", at + "/jobs/%2e%2e/tar", "", 404, ".."},
		{"GET", at + "/jobs/inputs/tar", "", 404, "inputs"},
		{"GET", at + "/jobs/none/tar", "", 404, ""},
		{"POST", at + "/jobs/none/publish", `{"path":"x"}`, 404, "none"},
		{"POST", at + "/jobs/j/publish", `{"path":""}`, 400, "path"},
		{"POST", at + "/tool_use", `{"type":"tool_use","id":"x","name":"rm"}`, 400, "name"},
		{"POST", "/v1/tool_use", `{"type":"text","id":"x","name":"bash"}`, 400, "type"},
		{"POST", "/v1/tool_use", `{"type":"tool_use","id":7,"name":"bash"}`, 400, ""},
		{"POST", "/v1/tool_use", `"bash"`, 400, ""},
		{"POST", "/v1/tool_use", `{"type":"tool_use","id":"x","name":"bash","container":"container_x"}`, 404, "container_x"},
		{"DELETE", "/v1/workspaces/workspace_x", "", 404, "workspace_x"},
		{"POST", "/v1/images/pull", `{}`, 400, "ref"},
		{"PUT", "/v1/registries/ghcr", `{"username":"me","password":"x"}`, 400, "host"},
		{"PUT", "/v1/registries/ghcr.io", `{"username":"me"}`, 400, "password"},
		{"DELETE", "/v1/registries/ghcr.io", "", 404, "ghcr.io"},
		{"POST", "/v1/images/pull", `{"ref":"debian:12"}`, 501, ""},
		{"POST", "/v1/images/import?name=x", `tar`, 501, ""},
		{"DELETE", "/v1/images", "", 400, "ref"},
		{"DELETE", "/v1/images?ref=base", "", 501, ""},
		{"POST", "/v1/sweep?now=true", "", 400, "now"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %.80s %.60s", tt.method, tt.path, tt.body), func(t *testing.T) {
			res, body := s.do(t, tt.method, tt.path, tt.body)
			if res.StatusCode < 400 || tt.status != 0 && res.StatusCode != tt.status {
				t.Fatalf("%d %s", res.StatusCode, body)
			}
			var f struct {
				Error     proto.Error
				RequestID string `json:"request_id"`
			}
			if err := json.Unmarshal([]byte(body), &f); err != nil || f.Error.Message == "" ||
				f.RequestID != res.Header.Get("Request-Id") {
				t.Fatalf("%v %s", err, body)
			}
			if tt.item != "" && f.Error.Item != tt.item {
				t.Errorf("the error names %q, not %q: %s", f.Error.Item, tt.item, body)
			}
			if strings.Contains(body, "/tmp/") {
				t.Errorf("a path of the host: %s", body)
			}
		})
	}
	if all := must[page[proto.Container]](t, s, "GET", "/v1/containers", nil).Data; len(all) != 1 {
		t.Errorf("what was refused left %d containers behind", len(all)-1)
	}
}

func TestAKeyIsNeeded(t *testing.T) {
	s := newSite(t)
	for _, r := range New(Config{Sessions: s.Sessions, Jobs: s.Jobs, Files: s.Files, Images: s.Images}).Routes {
		path := strings.NewReplacer("{id}", "container_x", "{exec}", "exec_x", "{job}", "job", "{name}", "n").Replace(
			r.Pattern)
		res, body := s.do(t, r.Method, path, nil, "X-Api-Key", "")
		if want := map[bool]int{true: 200, false: 401}[r.Public]; res.StatusCode != want {
			t.Errorf("%s %s: %d %.200s", r.Method, path, res.StatusCode, body)
		}
	}
}

func TestInfoAndImages(t *testing.T) {
	s := newSite(t)
	info := must[Info](t, s, "GET", "/v1/info", nil)
	if info.Version != "1.2.3" || info.DefaultImage != "base" || info.MaxFileBytes == 0 ||
		len(info.RuntimeClasses) != 1 {
		t.Errorf("%+v", info)
	}
	if got := must[page[session.Image]](t, s, "GET", "/v1/images", nil).Data; len(got) != 1 || got[0].Name != "base" {
		t.Errorf("%+v", got)
	}
	if res, _ := s.do(t, "GET", "/healthz", nil); res.StatusCode != 200 {
		t.Errorf("healthz: %d", res.StatusCode)
	}
	if res, _ := s.do(t, "GET", "/metrics", nil); res.StatusCode != 200 {
		t.Errorf("metrics: %d", res.StatusCode)
	}
}

func TestShells(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	sh := func(text string) string {
		return must[proto.ExecResult](t, s, "POST", at+"/exec",
			proto.Cmd{Command: text, Shell: "main"}).Result.Result.Stdout
	}
	sh("cd /tmp; export N=7")
	if got := sh("echo $PWD $N"); got != "/tmp 7\n" {
		t.Errorf("the shell forgot: %q", got)
	}
	list := must[page[shell]](t, s, "GET", at+"/shells", nil).Data
	if len(list) != 1 || list[0].Name != "main" || list[0].Cwd != "/tmp" || list[0].PID == 0 || list[0].User != "user" {
		t.Errorf("%+v", list)
	}
	if got := must[deletedName](t, s, "DELETE", at+"/shells/main", nil); got.Name != "main" {
		t.Errorf("%+v", got)
	}
	if got := sh("echo $N"); got != "\n" {
		t.Errorf("a new shell of that name has the old one's variable: %q", got)
	}
}

func TestJobsAndInputs(t *testing.T) {
	s := newSite(t)
	f, err := s.Files.Put(t.Context(), files.Upload{Owner: sessiontest.Owner, Filename: "in.csv"}, strings.NewReader(
		"a,b\n"))
	if err != nil {
		t.Fatal(err)
	}
	at := s.container(t)
	if got := must[inputDir](t, s, "POST", at+"/inputs", inputs{[]string{f.ID}}); got.InputDir != proto.InputDir {
		t.Errorf("%+v", got)
	}
	res := must[proto.ExecResult](t, s, "POST", at+"/exec", proto.Cmd{JobID: "job-1",
		Command: `cat $INPUT_DIR/in.csv > mine; echo out > $OUTPUT_DIR/o.txt`})
	if len(res.Result.Result.Content) != 1 {
		t.Fatalf("%+v", res)
	}
	jobs := must[page[proto.JobSummary]](t, s, "GET", at+"/jobs", nil).Data
	if len(jobs) != 1 || jobs[0].JobID != "job-1" {
		t.Errorf("%+v", jobs)
	}
	m := must[proto.Manifest](t, s, "GET", at+"/jobs/job-1/manifest", nil)
	if m.JobID != "job-1" || len(m.Files) < 2 {
		t.Errorf("%+v", m)
	}
	below := must[proto.ExecResult](t, s, "POST", at+"/exec", proto.Cmd{JobID: "job-1",
		Command: `cd $OUTPUT_DIR; mkdir charts; echo out >charts/a.png; ln -s $JOB_DIR/mine mine; ln -s /etc/passwd out`})
	if c := below.Result.Result.Content; len(c) != 2 || len(below.Notes) != 1 ||
		!strings.Contains(below.Notes[0], `"out" was not stored: it is a link`) {
		t.Fatalf("%+v", below)
	}
	if f, err := s.Files.Get(t.Context(), sessiontest.Owner, below.Result.Result.Content[0].FileID); err != nil ||
		f.Filename != "charts/a.png" {
		t.Errorf("%+v %v", f, err)
	}
	pub := must[published](t, s, "POST", at+"/jobs/job-1/publish", publication{"mine"})
	if pub.Filename != "mine" || pub.SizeBytes != 4 || !proto.ValidID(proto.FilePrefix, pub.FileID) {
		t.Errorf("%+v", pub)
	}
	resp, body := s.do(t, "GET", at+"/jobs/job-1/tar", nil)
	if names := members(t, body); resp.Header.Get("Content-Type") != tarType || !strings.Contains(names, "mine") {
		t.Errorf("%v %s", resp.Header, names)
	}
}

// members are the names in a tar archive.
func members(t *testing.T, archive string) string {
	t.Helper()
	var names []string
	r := tar.NewReader(strings.NewReader(archive))
	for {
		h, err := r.Next()
		if err != nil {
			return strings.Join(names, " ")
		}
		names = append(names, h.Name)
	}
}

func TestToolUse(t *testing.T) {
	s := newSite(t)
	use := func(path, body string) tooluse.Result {
		return must[tooluse.Result](t, s, "POST", path, body)
	}
	first := use("/v1/tool_use",
		`{"type":"server_tool_use","id":"srvtoolu_1","name":"bash_code_execution","input":{"command":"echo hi > f; echo hi"},"caller":{"type":"direct"},"cache_control":null}`)
	text, _ := json.Marshal(first.Content)
	if first.Type != "bash_code_execution_tool_result" || first.ToolUseID != "srvtoolu_1" ||
		!strings.Contains(string(text), `"stdout":"hi\n"`) {
		t.Errorf("%+v %s", first, text)
	}
	at := "/v1/containers/" + first.Container.ID
	second := use(at+"/tool_use", `{"type":"tool_use","id":"toolu_2","name":"bash","input":{"command":"cat f"}}`)
	if second.Content != "hi\n" || second.Container.ID != first.Container.ID {
		t.Errorf("%+v", second)
	}
	bad := use(at+"/tool_use",
		`{"type":"server_tool_use","id":"x","name":"text_editor_code_execution","input":{"command":"view","path":"/none"}}`)
	if text, _ := json.Marshal(bad.Content); !strings.Contains(string(text), "file_not_found") {
		t.Errorf("%s", text)
	}
}

func TestFiles(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	fs := at + "/fs"
	big := bytes.Repeat([]byte("0123456789abcdef"), 300<<10) // more than any JSON body may have
	fi := must[proto.FileInfo](t, s, "PUT", fs+"/content?path=/workspace/d/big&mode=0600", bytes.NewReader(big))
	if fi.SizeBytes != int64(len(big)) || fi.Mode != "0600" || fi.Path != "/workspace/d/big" {
		t.Errorf("%+v", fi)
	}
	sum := sha256.Sum256(big)
	if hashed := must[proto.FileInfo](t, s, "PUT", fs+"/content?path=/workspace/d/big&mode=0600&hash=true",
		bytes.NewReader(big)); fi.SHA256 != "" || hashed.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("sums: %q without asking, %q", fi.SHA256, hashed.SHA256)
	}
	res, body := s.do(t, "GET", fs+"/content?path=/workspace/d/big", nil)
	h := res.Header
	if body != string(big) || h.Get("Content-Type") != octets || h.Get("X-Content-Type-Options") != "nosniff" ||
		h.Get("Berth-File-Mode") != "0600" ||
		h.Get("Last-Modified") == "" || h.Get("Accept-Ranges") != "bytes" || res.ContentLength != int64(len(big)) {
		t.Errorf("%d bytes, %v", len(body), h)
	}
	if res, body := s.do(t, "HEAD", fs+"/content?path=/workspace/d/big", nil); res.StatusCode != 200 ||
		res.ContentLength != int64(len(big)) || body != "" {
		t.Errorf("HEAD: %d %d", res.StatusCode, res.ContentLength)
	}
	must[move](t, s, "POST", fs+"/move", move{From: "/workspace/d/big", To: "/workspace/d/sub/moved"})
	if fi := must[proto.FileInfo](t, s, "GET", fs+"/stat?path=/workspace/d/sub/moved", nil); fi.Type != proto.TypeFile {
		t.Errorf("%+v", fi)
	}
	must[directory](t, s, "POST", fs+"/mkdir", directory{Path: "/workspace/d/empty"})
	list := must[listing](t, s, "GET", fs+"/list?path=/workspace/d", nil)
	if len(list.Data) != 2 || list.Data[0].Path != "/workspace/d/empty" || list.Data[1].Path != "/workspace/d/sub" ||
		list.Truncated {
		t.Errorf("%+v", list)
	}
	if list := must[listing](t, s, "GET", fs+"/list?path=/workspace/d/empty", nil); list.Data == nil ||
		len(list.Data) != 0 {
		t.Errorf("%+v", list)
	}
	_, archive := s.do(t, "GET", fs+"/tar?path=/workspace/d", nil)
	must[directory](t, s, "PUT", fs+"/tar?path=/workspace/copy", archive)
	if _, copied := s.do(t, "GET", fs+"/content?path=/workspace/copy/sub/moved", nil); copied != string(big) {
		t.Errorf("copied %d bytes: %s", len(copied), members(t, archive))
	}
	if res, body := s.do(t, "DELETE", fs+"/content?path=/workspace/d", nil); res.StatusCode != 409 {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	if got := must[deletedPath](t, s, "DELETE", fs+"/content?path=/workspace/d&recursive=true", nil); !got.Deleted {
		t.Errorf("%+v", got)
	}
	if res, _ := s.do(t, "PUT", fs+"/content?path=/etc/mine&as=root", "x"); res.StatusCode != 200 {
		t.Errorf("as root: %d", res.StatusCode)
	}
}

func TestRanges(t *testing.T) {
	s := newSite(t)
	fs := s.container(t) + "/fs/content?path=/workspace/r"
	must[proto.FileInfo](t, s, "PUT", fs, "0123456789")
	for _, tt := range []struct {
		header string
		status int
		body   string
		of     string
	}{
		{"bytes=0-3", 206, "0123", "bytes 0-3/10"},
		{"bytes=9-", 206, "9", "bytes 9-9/10"},
		{"bytes=4-400", 206, "456789", "bytes 4-9/10"},
		{"bytes=-3", 206, "789", "bytes 7-9/10"},
		{"bytes=-30", 206, "0123456789", "bytes 0-9/10"},
		{"bytes=10-", 416, "", "bytes */10"},
		{"bytes=100-200", 416, "", "bytes */10"},
		{"bytes=-0", 416, "", "bytes */10"},
		{"bytes=9223372036854775807-", 416, "", "bytes */10"},
		{"bytes=0-9223372036854775807", 206, "0123456789", "bytes 0-9/10"},
		{"bytes=5-3", 200, "0123456789", ""},
		{"bytes=a-b", 200, "0123456789", ""},
		{"bytes=-", 200, "0123456789", ""},
		{"bytes=+1-2", 200, "0123456789", ""},
		{"bytes=0-1,3-4", 200, "0123456789", ""},
		{"bytes=0-18446744073709551616", 200, "0123456789", ""},
		{"lines=0-1", 200, "0123456789", ""},
	} {
		res, body := s.do(t, "GET", fs, nil, "Range", tt.header)
		if res.StatusCode != tt.status || tt.status < 400 && body != tt.body ||
			res.Header.Get("Content-Range") != tt.of {
			t.Errorf("%s: %d %q %q", tt.header, res.StatusCode, body, res.Header.Get("Content-Range"))
		}
	}
	// A download that is resumed must not become one of two versions, which may have the same date.
	res, _ := s.do(t, "GET", fs, nil)
	must[proto.FileInfo](t, s, "PUT", fs, "abcdefghij")
	res, body := s.do(t, "GET", fs, nil, "Range", "bytes=4-", "If-Range", res.Header.Get("Last-Modified"))
	if res.StatusCode != 200 || body != "abcdefghij" {
		t.Errorf("with If-Range: %d %q", res.StatusCode, body)
	}
	must[proto.FileInfo](t, s, "PUT", fs, nil)
	if res, body := s.do(t, "GET", fs, nil); res.StatusCode != 200 || body != "" {
		t.Errorf("an empty file: %d %q", res.StatusCode, body)
	}
	if res, _ := s.do(t, "GET", fs, nil, "Range", "bytes=0-"); res.StatusCode != 416 {
		t.Errorf("a range of an empty file: %d", res.StatusCode)
	}
}

// What a client resumes is a part, which must not become the whole file.
func TestPartsOfUploadsAreRefused(t *testing.T) {
	s := newSite(t)
	fs := s.container(t) + "/fs/"
	must[proto.FileInfo](t, s, "PUT", fs+"content?path=f", "0123456789")
	for _, path := range []string{"content?path=f", "tar?path=."} {
		res, body := s.do(t, "PUT", fs+path, "789", "Content-Range", "bytes 7-9/10", "Content-Type", octets)
		if res.StatusCode != 400 || !strings.Contains(body, `"item":"Content-Range"`) ||
			!strings.Contains(body, "whole") {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
	if _, body := s.do(t, "GET", fs+"content?path=f", nil); body != "0123456789" {
		t.Errorf("the file is now %q", body)
	}
}

// A body that stops in the middle changes nothing.
func TestBrokenUpload(t *testing.T) {
	s := newSite(t)
	fs := s.container(t) + "/fs/content?path=/workspace/f"
	must[proto.FileInfo](t, s, "PUT", fs, "whole")
	req := s.request(t, t.Context(), "PUT", fs, &halfBody{})
	req.ContentLength = 1 << 20
	if res, err := s.client.Do(req); err == nil {
		res.Body.Close()
		t.Fatalf("status %d", res.StatusCode)
	}
	s.done.wait()
	if _, body := s.do(t, "GET", fs, nil); body != "whole" {
		t.Errorf("%q", body)
	}
}

// A halfBody fails after some bytes.
type halfBody struct{ n int }

func (h *halfBody) Read(p []byte) (int, error) {
	if h.n++; h.n > 3 {
		return 0, http.ErrBodyReadAfterClose
	}
	return copy(p, bytes.Repeat([]byte("x"), 1000)), nil
}

// A path of its own takes its own methods, whatever a wildcard beside it takes; and what is refused is refused in
// this edge's words.
func TestLiteralPathsHideWildcards(t *testing.T) {
	s := newSite(t)
	res, body := s.do(t, "DELETE", "/v1/keys/self", "")
	if res.StatusCode != 405 || res.Header.Get("Allow") != "GET, HEAD" || !strings.Contains(body, `"request_id"`) {
		t.Errorf("%d, Allow: %q, %s", res.StatusCode, res.Header.Get("Allow"), body)
	}
	if res, body := s.do(t, "GET", "/v1/containers/{id}", ""); res.StatusCode != 404 {
		t.Errorf("a path that reads like a pattern: %d %s", res.StatusCode, body)
	}
}

// A body that says it is something else is not taken for what the route wants.
func TestMediaTypes(t *testing.T) {
	s := newSite(t)
	for header, status := range map[string]int{
		"Content-Type: application/json; charset=utf-8":   201,
		"Content-Type: application/vnd.x+json":            201,
		"Content-Type: application/x-www-form-urlencoded": 201, // what curl -d says
		"Content-Type: text/xml":                          415,
		"Content-Type: ///":                               415,
		"Content-Encoding: gzip":                          415,
		"Content-Encoding: identity":                      201,
	} {
		name, value, _ := strings.Cut(header, ": ")
		if res, body := s.do(t, "POST", "/v1/containers", "{}", name, value); res.StatusCode != status {
			t.Errorf("%s: %d %s", header, res.StatusCode, body)
		}
	}
	if res, body := s.do(t, "POST", "/v1/containers", nil, "Content-Type", "text/xml"); res.StatusCode != 201 {
		t.Errorf("no body: %d %s", res.StatusCode, body)
	}
}

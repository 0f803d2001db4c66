package native

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"berth/code"
	"berth/proto"
	"berth/state/vault"
	"berth/test/sessiontest"
	"berth/tools/toolstore"
)

// storedTools is a tool store over a stack.
func storedTools(t *testing.T, s *sessiontest.Stack, run *code.Runner) *toolstore.Store {
	t.Helper()
	v, err := vault.Open(filepath.Join(s.Dir, "secret-key"), s.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	c, err := toolstore.Open(toolstore.Config{Ledger: s.Ledger, Sessions: s.Sessions, Code: run, Vault: v})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

const mediaProbe = `{"name":"media_probe","description":"What a media file holds","tool_type":"code_runner","configuration":{"type":"CodeRunner","runtime":"python",` +
	`"code":"import json, subprocess\ndef run(input):\n    p = subprocess.run(['ffprobe', '-v', 'error', '-show_format', '-of', 'json', input['path']], capture_output=True, text=True, check=True)\n    return {'format': json.loads(p.stdout)['format']['format_name']}",` +
	`"input_schema":[{"name":"path","field_type":"STRING","required":true,"description":"Where the file is"}],"output_schema":[{"name":"format","field_type":"STRING","required":true}],` +
	`"env_variables":{"PROBE_TOKEN":"probe-token-123"},"timeout_seconds":30,"allow_network":false}}`

func TestStoredTools(t *testing.T) {
	s := newSite(t)
	made := must[toolstore.Tool](t, s, "POST", "/v1/tools", mediaProbe)
	if made.Version != 1 || len(made.EnvVariableNames) != 1 || made.Configuration.EnvVariables != nil {
		t.Errorf("%+v", made)
	}
	for _, at := range []string{"/v1/tools/media_probe", "/v1/tools/" + made.ID, "/v1/tools/media_probe?version=1"} {
		if got := must[toolstore.Tool](t, s, "GET", at, nil); got.ID != made.ID {
			t.Errorf("%s: %+v", at, got)
		}
	}
	if now := must[toolstore.Tool](t, s, "PATCH", "/v1/tools/media_probe",
		`{"description":"d","approval_action":"review"}`); now.Version != 2 || now.Description != "d" ||
		now.Configuration.Code != made.Configuration.Code {
		t.Errorf("%+v", now)
	}
	if list := must[page[toolstore.Tool]](t, s, "GET", "/v1/tools", nil); len(list.Data) != 1 ||
		list.Data[0].Version != 2 {
		t.Errorf("%+v", list)
	}
	if list := must[page[toolstore.Tool]](t, s, "GET", "/v1/tools/media_probe/versions", nil); len(list.Data) != 2 {
		t.Errorf("%+v", list)
	}
	res, text := s.do(t, "POST", "/v1/tools/media_probe/run", `{"input":{"path":"/x"}}`)
	if res.StatusCode != http.StatusAccepted || !strings.Contains(text, `"parked"`) {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	parked := must[page[proto.ToolRun]](t, s, "GET", "/v1/tool_runs?state=parked&tool=media_probe", nil).Data
	if len(parked) != 1 {
		t.Fatalf("%+v", parked)
	}
	at := "/v1/tool_runs/" + parked[0].ID
	if run := must[toolstore.Run](t, s, "POST", at+"/refuse", `{"reason":"no"}`); run.State != proto.RunRefused ||
		run.Decision.By == "" {
		t.Errorf("%+v", run)
	}
	if res, text := s.do(t, "POST", at+"/approve", nil); res.StatusCode != http.StatusConflict {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	run := must[toolstore.Run](t, s, "POST", "/v1/tools/media_probe/run", `{"input":{"path":"/x"},"version":1}`)
	if run.State != proto.RunFailed || run.Error.Name == "" || run.Version != 1 {
		t.Errorf("%+v %+v", run, run.Error)
	}
	next := must[toolstore.Run](t, s, "POST", "/v1/tools/media_probe/run", `{"input":{"path":"/x"}}`, "Idempotency-Key",
		"a-key")
	must[toolstore.Run](t, s, "POST", "/v1/tool_runs/"+next.ID+"/approve", nil)
	if run := must[toolstore.Run](t, s, "GET", "/v1/tool_runs/"+next.ID+"?wait_seconds=60",
		nil); run.State != proto.RunFailed || run.Decision == nil {
		t.Errorf("%+v", run)
	}
	if res, _ := s.do(t, "POST", "/v1/tools/media_probe/run", `{"input":{"path":"/x"}}`, "Idempotency-Key",
		"a-key"); res.Header.Get(replayedHeader) != "true" {
		t.Errorf("%v", res.Header)
	}
	must[deletion](t, s, "DELETE", "/v1/tools/media_probe", nil)
	if res, _ := s.do(t, "GET", "/v1/tools/media_probe", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("%d", res.StatusCode)
	}
	must[toolstore.Run](t, s, "GET", at, nil)
}

// What consoles and SDKs of code runners send beside the required keys.
func TestShapesOfStoredTools(t *testing.T) {
	s := newSite(t)
	const form = `{"name":"%s","tool_type":"code_runner"%s,"configuration":{"type":"CodeRunner","code":"import os\ndef run(input): return {'got': input, 'env': os.environ.get('TOKEN')}"%s}}`
	schemaOf := func(more string) string {
		return fmt.Sprintf(`,"input_schema":[{"name":"a","field_type":"STRING"},{"name":"v",%s}]`, more)
	}
	for i, c := range []struct {
		tool, configuration string
		input, got          string // what run receives; "" is a 400 that names the item
		item                string
	}{
		{"", "", `{"a":{"b":[1,null]},"n":null}`, `{"a":{"b":[1,null]},"n":null}`, ""},
		{"", `,"input_schema":null,"output_schema":null,"env_variables":null,"timeout_seconds":null,"allow_network":null`,
			`{"a":1}`, `{"a":1}`, ""},
		{`,"description":null,"approval_action":null`, `,"runtime":null`, `{}`, `{}`, ""},
		{`,"approval_action":"allow"`, `,"runtime":"python"`, `{}`, `{}`, ""},
		{"", `,"input_schema":[]`, `{"a":1}`, `{}`, ""},
		{"", `,"env_variables":[{"name":"TOKEN","value":"list"}]`, `{}`, `{}`, ""},
		{"", `,"env_variables":[]`, `{}`, `{}`, ""},
		{"", schemaOf(`"field_type":"STRING","title":"A title","description":"d","required":true,"format":"email","enum_values":["x","y"],"items_type":null,"properties":null,"items_schema":null,"minimum":null,"maximum":null,"min_items":null,"max_items":null`),
			`{"v":"x","z":1}`, `{"v":"x"}`, ""},
		{"", schemaOf(`"field_type":"STRING","enum_values":["x","y"]`), `{"v":"z"}`, "", "input.v"},
		{"", schemaOf(`"field_type":"INTEGER","minimum":1,"maximum":10,"enum_values":null`), `{"v":10}`, `{"v":10}`, ""},
		{"", schemaOf(`"field_type":"INTEGER","minimum":1,"maximum":10`), `{"v":11}`, "", "input.v"},
		{"", schemaOf(`"field_type":"NUMBER","minimum":0.5`), `{"v":0.25}`, "", "input.v"},
		{"", schemaOf(`"field_type":"INTEGER","enum_values":["1","2"]`), `{"v":2}`, `{"v":2}`, ""},
		{"", schemaOf(`"field_type":"ARRAY","items_type":"INTEGER","min_items":1,"max_items":2`), `{"v":[1,2]}`, `{"v":[1,2]}`, ""},
		{"", schemaOf(`"field_type":"ARRAY","items_type":"INTEGER","min_items":1`), `{"v":[]}`, "", "input.v"},
		{"", schemaOf(`"field_type":"ARRAY","max_items":2`), `{"v":[1,2,3]}`, "", "input.v"},
		{"", schemaOf(`"field_type":"ARRAY","items_schema":{"field_type":"OBJECT","properties":[{"name":"n","field_type":"INTEGER","required":true}]}`),
			`{"v":[{"n":1,"x":2},{"n":3}]}`, `{"v":[{"n":1},{"n":3}]}`, ""},
		{"", schemaOf(`"field_type":"ARRAY","items_schema":{"name":"item","field_type":"OBJECT","properties":[{"name":"n","field_type":"INTEGER","required":true}]}`),
			`{"v":[{"n":1},{}]}`, "", "input.v.1.n"},
		{"", schemaOf(`"field_type":"ARRAY","items_schema":{"field_type":"ARRAY","items_schema":{"field_type":"STRING","enum_values":["x"]}}`),
			`{"v":[["x"],["x","y"]]}`, "", "input.v.1.1"},
		{"", schemaOf(`"field_type":"OBJECT","properties":[{"name":"o","field_type":"OBJECT","properties":[{"name":"b","field_type":"BOOLEAN","required":true}]}]`),
			`{"v":{"o":{"b":true,"more":1},"more":{}}}`, `{"v":{"o":{"b":true}}}`, ""},
		{"", schemaOf(`"field_type":"OBJECT","properties":[{"name":"o","field_type":"OBJECT","properties":[{"name":"b","field_type":"BOOLEAN","required":true}]}]`),
			`{"v":{"o":{"b":"true"}}}`, "", "input.v.o.b"},
		{"", schemaOf(`"field_type":"OBJECT","properties":[]`), `{"v":{"any":[1]}}`, `{"v":{"any":[1]}}`, ""},
	} {
		name := fmt.Sprintf("shape_%d", i)
		res, text := s.do(t, "POST", "/v1/tools", fmt.Sprintf(form, name, c.tool, c.configuration))
		if res.StatusCode != http.StatusCreated {
			t.Errorf("%s%s: %d %s", c.tool, c.configuration, res.StatusCode, text)
			continue
		}
		res, text = s.do(t, "POST", "/v1/tools/"+name+"/run", `{"input":`+c.input+`,"version":null,"container":null}`)
		var run struct {
			Output struct {
				Got json.RawMessage
				Env *string
			}
			Error *proto.Error
		}
		if err := json.Unmarshal([]byte(text), &run); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		switch {
		case c.got != "" && (res.StatusCode != http.StatusOK || string(run.Output.Got) != c.got),
			c.got == "" && (res.StatusCode != http.StatusBadRequest || run.Error.Item != c.item):
			t.Errorf("%s %s: %d %s", c.configuration, c.input, res.StatusCode, text)
		case strings.Contains(c.configuration, "TOKEN") && (run.Output.Env == nil):
			t.Errorf("%s: no environment: %s", c.configuration, text)
		}
	}
	if res, text := s.do(t, "POST", "/v1/tools", fmt.Sprintf(form, "denied", `,"approval_action":"deny"`,
		"")); res.StatusCode != http.StatusCreated {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	if res, text := s.do(t, "POST", "/v1/tools/denied/run", `{"input":{}}`); res.StatusCode != http.StatusForbidden ||
		!strings.Contains(text, "approval_action deny") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	if res, text := s.do(t, "PATCH", "/v1/tools/denied", `{"approval_action":"allow","name":null,"description":null,"configuration":null}`); res.StatusCode != http.StatusOK {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	must[toolstore.Run](t, s, "POST", "/v1/tools/denied/run", `{}`)
}

func TestBadStoredTools(t *testing.T) {
	s := newSite(t)
	spoiled := func(old, new string) string {
		if !strings.Contains(mediaProbe, old) {
			t.Fatal(old)
		}
		return strings.Replace(mediaProbe, old, new, 1)
	}
	for _, c := range []struct {
		body   string
		status int
		words  string
	}{
		{spoiled(`"STRING"`, `"string"`), 400,
			`configuration.input_schema.0.field_type: \"string\" is not a type; types are upper case`},
		{spoiled(`"CodeRunner"`, `"code_runner"`), 400, "configuration.type"},
		{spoiled(`"python"`, `"ruby"`), 400, "configuration.runtime"},
		{spoiled(`"tool_type":"code_runner"`, `"tool_type":"CodeRunner"`), 400, "tool_type"},
		{spoiled(`"required":true`, `"required":"yes"`), 400, "configuration.input_schema.0.required"},
		{spoiled(`"field_type":"STRING"`, `"field_type":"STRING","properties":[{"name":"a","field_type":"STRING"}]`), 400,
			"configuration.input_schema.0.properties"},
		{spoiled(`"field_type":"STRING"`, `"field_type":"OBJECT","properties":[{"name":"a","field_type":"text"}]`), 400,
			"configuration.input_schema.0.properties.0.field_type"},
		{spoiled(`"field_type":"STRING"`, `"field_type":"ARRAY","items_schema":{"field_type":"OBJECT","properties":[{"name":"a b","field_type":"STRING"}]}`), 400,
			"configuration.input_schema.0.items_schema.properties.0.name"},
		{spoiled(`"name":"path"`, `"name":null`), 400, "configuration.input_schema.0.name"},
		{spoiled(`{"PROBE_TOKEN":"probe-token-123"}`, `[{"name":"A","value":"probe-token"},{"name":"A","value":"probe-token"}]`), 400,
			"configuration.env_variables.1.name"},
		{spoiled(`{"PROBE_TOKEN":"probe-token-123"}`, `[{"key":"A","value":"probe-token"}]`), 400, "configuration.env_variables"},
		{spoiled(`"tool_type"`, `"approval_action":"never","tool_type"`), 400, "approval_action"},
		{spoiled(`"name":"path"`, `"name":"path","name":"path"`), 400, "configuration.input_schema.0.name"},
		{spoiled(`"input_schema":[`, `"input_schema":[{"name":"path","field_type":"NUMBER"},`), 400,
			"is there already"},
		{spoiled(`"code":"`, `"code":"`+strings.Repeat("#", toolstore.MaxCode)), 413, "configuration.code"},
		{spoiled(`"timeout_seconds":30`, `"timeout_seconds":1e9`), 400, "configuration.timeout_seconds"},
		{spoiled(`def run`, `def walk`), 400, "defines no function run"},
	} {
		res, text := s.do(t, "POST", "/v1/tools", c.body)
		if res.StatusCode != c.status || !strings.Contains(text, c.words) || strings.Contains(text, "probe-token") {
			t.Errorf("%d %.300s, want %d %s", res.StatusCode, text, c.status, c.words)
		}
	}
	must[toolstore.Tool](t, s, "POST", "/v1/tools", mediaProbe)
	for body, want := range map[string]int{
		`{}`: 400, `{"input":{"path":1}}`: 400, `{"input":[]}`: 400, `{"input":{"path":"x"},"more":1}`: 400,
		`{"input":{"path":"x"},"version":9}`:                                    404,
		`{"input":{"path":"x"},"container":"container_0000000000000000000000"}`: 404,
		`{"input":{"path":"` + strings.Repeat("x", toolstore.MaxInput) + `"}}`:  413, `{"input":{"path":"` +
			strings.Repeat("x", 2*runBody) + `"}}`: 413,
	} {
		if res, text := s.do(t, "POST", "/v1/tools/media_probe/run", body); res.StatusCode != want {
			t.Errorf("%.80s: %d %.200s", body, res.StatusCode, text)
		}
	}
}

package native

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"berth/code"
	"berth/proto"
)

func TestRunCode(t *testing.T) {
	s := newSite(t)
	_, body := s.do(t, "POST", "/v1/run_code",
		`{"code":"import sys\nprint('out')\nprint('err', file=sys.stderr)\n6*7"}`)
	var got struct {
		Results []string
		Logs    struct{ Stdout, Stderr []string }
		Error   *string
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.Results, []string{"42"}) || !slices.Equal(got.Logs.Stdout, []string{"out\n"}) ||
		!slices.Equal(got.Logs.Stderr, []string{"err\n"}) || got.Error != nil {
		t.Errorf("%s", body)
	}
	s.done.wait() // the container is deleted once the answer is sent
	if c := s.Sessions.Counts(); len(c.ByState) != 0 {
		t.Errorf("left: %+v", c)
	}
	bad := must[code.Outcome](t, s, "POST", "/v1/run_code", proto.Program{Code: "print('kept')\n1/0"})
	if !strings.Contains(bad.Error, "ZeroDivisionError") || bad.ErrorDetail.Name != "ZeroDivisionError" ||
		!slices.Equal(bad.Logs.Stdout, []string{"kept\n"}) {
		t.Errorf("%+v", bad)
	}
	made := must[code.Outcome](t, s, "POST", "/v1/run_code",
		proto.Program{Code: "import os\nopen(os.environ['OUTPUT_DIR'] + '/o.txt', 'w').write('made')"})
	if len(made.Files) != 1 || !proto.ValidID(proto.FilePrefix, made.Files[0].FileID) {
		t.Errorf("%+v", made)
	}
	for body, want := range map[string]int{
		`{}`:                                     http.StatusBadRequest,
		`{"code":"1","language":"cobol"}`:        http.StatusBadRequest,
		`{"code":"1","context":"a"}`:             http.StatusBadRequest,
		`{"code":"1","what":1}`:                  http.StatusBadRequest,
		`{"code":"1","container":"container_x"}`: http.StatusNotFound,
	} {
		if res, text := s.do(t, "POST", "/v1/run_code", body); res.StatusCode != want {
			t.Errorf("%s: %d %s", body, res.StatusCode, text)
		}
	}
}

func TestContextsOverHTTP(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	contexts := at + "/contexts"
	if c := must[code.Context](t, s, "POST", contexts, code.NewContext{Name: "main"}); c.Name != "main" ||
		c.Language != "python" || c.State != proto.ContextIdle || c.ExecID == "" {
		t.Errorf("%+v", c)
	}
	if res, text := s.do(t, "POST", contexts, `{"name":"main"}`); res.StatusCode != http.StatusConflict {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	must[code.Outcome](t, s, "POST", contexts+"/main/run", code.Cell{Code: "x = 21"})
	if c := must[code.Context](t, s, "POST", contexts, code.NewContext{Name: "other", User: "4242:77"}); c.User != "4242:77" {
		t.Errorf("%+v", c)
	}
	if res := must[code.Outcome](t, s, "POST", contexts+"/other/run", code.Cell{Code: "import os; os.getuid(), os.getgid()"}); len(
		res.Results) != 1 || res.Results[0] != "(4242, 77)" {
		t.Errorf("%+v", res)
	}
	if res, text := s.do(t, "POST", contexts, `{"name":"none","user":"nobody-here"}`); res.StatusCode != http.StatusBadRequest ||
		!strings.Contains(text, "/etc/passwd has root, ") {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	must[deletedName](t, s, "DELETE", contexts+"/other", nil)
	container := strings.TrimPrefix(at, "/v1/containers/")
	if res := must[code.Outcome](t, s, "POST", "/v1/run_code", proto.Program{Code: "x * 2", Container: container,
		Context: "main"}); !slices.Equal(res.Results, []string{"42"}) || res.Context != "main" ||
		res.Container.ID != container {
		t.Errorf("%+v", res)
	}
	if c := must[code.Context](t, s, "POST", contexts+"/main/interrupt", nil); c.Cells != 2 {
		t.Errorf("%+v", c)
	}
	if c := must[code.Context](t, s, "POST", contexts+"/main/restart", nil); c.Cells != 0 {
		t.Errorf("%+v", c)
	}
	if list := must[page[code.Context]](t, s, "GET", contexts, nil).Data; len(list) != 1 || list[0].Name != "main" {
		t.Errorf("%+v", list)
	}
	must[deletedName](t, s, "DELETE", contexts+"/main", nil)
	if res, _ := s.do(t, "GET", contexts+"/main", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("a deleted context: %d", res.StatusCode)
	}
}

func TestACellAsItHappens(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	_, body := s.do(t, "POST", at+"/contexts/main/run", `{"code":"print('é')\nimport sys\nsys.stderr.write('e')\n7"}`,
		"Accept", "text/event-stream")
	var types []string
	var out string
	var last code.Progress
	for line := range strings.SplitSeq(body, "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		last = code.Progress{}
		if err := json.Unmarshal([]byte(data), &last); err != nil {
			t.Fatal(err)
		}
		types = append(types, last.Type)
		out += last.Data
	}
	if types[0] != proto.ProgressStart || last.Type != proto.ProgressResult || !strings.Contains(out, "é\n") ||
		!slices.Equal(last.Result.Results, []string{"7"}) {
		t.Errorf("%v %q %+v", types, out, last)
	}
	if res, text := s.do(t, "POST", at+"/contexts/main/run", `{"code":""}`, "Accept",
		"text/event-stream"); res.StatusCode != http.StatusBadRequest {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

func TestCodeExecutor(t *testing.T) {
	s := newSite(t)
	got := must[execution](t, s, "POST", "/v1/code_executor", code.Script{Language: "python", Code: "print(6*7)"})
	if !strings.HasPrefix(got.Text, "## Code Execution Result\n") || !strings.Contains(got.Text, "```\n42\n```") {
		t.Errorf("%q", got.Text)
	}
	if res, text := s.do(t, "POST", "/v1/code_executor",
		`{"language":"js","code":"1"}`); res.StatusCode != http.StatusBadRequest {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

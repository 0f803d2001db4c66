package native

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"berth/api"
	"berth/api/native/document"
	"berth/api/openapi"
	"berth/events"
	"berth/proto"
	"berth/session"
	"berth/state/audit"
	"berth/test/needs"
	"berth/test/sessiontest"
)

// The examples of the document are true: their requests are sent to the real edge in the order of the file, and each
// answer has the status, the fields and the values of its example. IDs, times and numbers differ from run to run. All
// examples, also those that no test can send, fit the schemas, and every operation has one. With -update, the answers
// that differ are written into the file.
func TestDescriptionsOfExamples(t *testing.T) {
	needs.Time(t)
	var log *audit.Log
	core := session.Config{Audit: func(e proto.AuditEntry) { log.Append(e) }}
	stack := sessiontest.New(t, core)
	log = auditLog(t, stack)
	s := siteOver(t, stack, core, func(c *Config) { c.Audit, c.Events = log, events.New(log) },
		func(c *api.Config) { c.Audit = log })
	doc := readDocument(t, s.URL)
	operations := byID(doc)
	tale := story{ids: map[string]string{}}
	steps := document.Steps()
	for i := range steps {
		step := &steps[i]
		at, known := operations[step.Operation]
		if !known {
			t.Errorf("step %d: there is no operation %q", i, step.Operation)
			continue
		}
		if step.Unsent == "" {
			tale.send(t, s, at, step)
		}
		checkExample(t, doc, at, *step)
	}
	for _, step := range steps {
		delete(operations, step.Operation)
	}
	for id := range operations {
		t.Errorf("operation %s has no example", id)
	}
	compareOrUpdate(t, "document/examples.json", steps)
}

// A place is where an operation stands in the document.
type place struct {
	method, path string
	operation    map[string]any
}

func byID(doc *contract) map[string]place {
	all := map[string]place{}
	for path, item := range doc.raw["paths"].(map[string]any) {
		for method, o := range item.(map[string]any) {
			operation := o.(map[string]any)
			all[operation["operationId"].(string)] = place{strings.ToUpper(method), path, operation}
		}
	}
	return all
}

// A story is a run of the examples.
type story struct {
	ids map[string]string // of this run, by those of the file
}

// anyID matches IDs.
var anyID = regexp.MustCompile(`^[a-z]+_[0-9A-Za-z]{22}$`)

// real replaces the IDs of the file by those of this run; file does the reverse.
func (st story) real(text string) string { return st.replace(text, false) }
func (st story) file(text string) string { return st.replace(text, true) }

func (st story) replace(text string, reverse bool) string {
	for file, id := range st.ids {
		if reverse {
			file, id = id, file
		}
		text = strings.ReplaceAll(text, file, id)
	}
	return text
}

// send sends the request of a step and compares the answer. A step whose answer differs gets the real one.
func (st story) send(t *testing.T, s *site, at place, step *document.Step) {
	t.Helper()
	path, query, header := at.path, url.Values{}, []string{}
	parameters, _ := at.operation["parameters"].([]any)
	for _, p := range parameters {
		p := p.(map[string]any)
		name := p["name"].(string)
		value, given := step.Parameters[name]
		list, many := value.([]any)
		if !many {
			list = []any{value}
		}
		for _, v := range list {
			text := st.real(fmt.Sprint(v))
			switch {
			case !given:
			case p["in"] == "path":
				path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(text))
			case p["in"] == "query":
				query.Add(name, text)
			default:
				header = append(header, name, text)
			}
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	var body any
	if text, bytes := step.Body.(string); bytes {
		body = st.real(text)
	} else if step.Body != nil {
		text, err := json.Marshal(step.Body)
		if err != nil {
			t.Fatal(err)
		}
		body = st.real(string(text))
		header = append(header, "Content-Type", "application/json")
	}
	res, err := s.client.Do(s.request(t, t.Context(), at.method, path, body, header...))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != step.Status {
		t.Errorf("the example of %s: %s %s is answered %d, not %d: %s", step.Operation, at.method, path,
			res.StatusCode, step.Status, text)
		return
	}
	got := firstValue(t, res, text)
	if same := st.same(step.Answer, got); !same {
		t.Logf("the example of %s is answered %s", step.Operation, text)
		whole, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(st.file(string(whole))), &step.Answer); err != nil {
			t.Fatal(err)
		}
	}
}

// firstValue returns the JSON value of an answer: the first line, the first event, or the text of bytes.
func firstValue(t *testing.T, res *http.Response, text []byte) (v any) {
	t.Helper()
	media, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	switch media {
	case eventType:
		event := map[string]any{}
		first, _, _ := strings.Cut(string(text), "\n\n")
		for line := range strings.Lines(first) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			event[name] = value
		}
		return event
	case "application/json", "application/x-ndjson":
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(&v); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		return v
	}
	return string(text)
}

// same reports whether two values have the same fields and, where they do not differ from run to run, the same values.
// It learns which IDs stand for which, also of values that differ.
func (st story) same(want, got any) bool {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		same := ok && len(want) == len(got)
		for name, v := range want {
			v2, has := got[name]
			// The isolation is that of the test's runtime, which has none: the example has that of a daemon.
			same = (st.same(v, v2) || name == "isolation") && has && same
		}
		return same
	case []any:
		got, ok := got.([]any)
		same := ok && len(want) == len(got)
		for i := range min(len(want), len(got)) {
			same = st.same(want[i], got[i]) && same
		}
		return same
	case string:
		got, ok := got.(string)
		if ok && anyID.MatchString(want) && anyID.MatchString(got) {
			st.ids[want] = got
		}
		return ok && variable.ReplaceAllString(want, "") == variable.ReplaceAllString(got, "")
	}
	return reflect.TypeOf(want) == reflect.TypeOf(got) && (want != true && want != false || want == got)
}

// variable matches the parts of text that differ from run to run: IDs and secrets, times, hashes, numbers, and what a
// test has in place of a daemon.
var variable = regexp.MustCompile(`[0-9A-Za-z+/_=-]{32,}|[a-z]+_[0-9A-Za-z]{16,}|[0-9]+-[0-9a-f]{8}-[0-9]+|` +
	`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z|/tmp/\S*|[0-9a-f]{12,}|[0-9]+`)

// checkExample compares an example with the schemas of its operation.
func checkExample(t *testing.T, doc *contract, at place, step document.Step) {
	t.Helper()
	check := func(v any, keys ...string) {
		if text, isText := v.(string); v == nil || isText && !strings.HasPrefix(text, "{") {
			return
		}
		root := []string{"paths", at.path, strings.ToLower(at.method)}
		s, err := doc.schema(documentURL + "#" + pointer(slices.Concat(root, keys, []string{"schema"})...))
		if err == nil {
			err = s.Validate(v)
		}
		if err != nil {
			t.Errorf("the example of %s: %v", step.Operation, err)
		}
	}
	if body, ok := at.operation["requestBody"].(map[string]any); ok {
		for media := range body["content"].(map[string]any) {
			if media == "application/json" {
				check(step.Body, "requestBody", "content", media)
			}
		}
	}
	status := fmt.Sprint(step.Status)
	answer, _ := at.operation["responses"].(map[string]any)[status].(map[string]any)
	contents, _ := answer["content"].(map[string]any)
	for _, media := range []string{"application/json", "application/x-ndjson", eventType} {
		if contents[media] != nil {
			check(step.Answer, "responses", status, "content", media)
			return
		}
	}
}

// A value that differs is noticed, whatever kind it has, and one that may differ is not.
func TestStoryCompares(t *testing.T) {
	st := story{ids: map[string]string{}}
	parse := func(text string) (v any) {
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	want := `{"id":"job_0000000000000000000000","n":1,"ok":true,"list":["a"],"none":null}`
	for got, same := range map[string]bool{
		`{"id":"job_1111111111111111111111","n":2,"ok":true,"list":["a"],"none":null}`:          true,
		`{"id":"job_1111111111111111111111","n":2,"ok":false,"list":["a"],"none":null}`:         false,
		`{"id":"job_1111111111111111111111","n":"2","ok":true,"list":["a"],"none":null}`:        false,
		`{"id":"job_1111111111111111111111","n":2,"ok":true,"list":["b"],"none":null}`:          false,
		`{"id":"job_1111111111111111111111","n":2,"ok":true,"list":["a","b"],"none":null}`:      false,
		`{"id":"job_1111111111111111111111","n":2,"ok":true,"list":["a"],"none":null,"more":1}`: false,
		`{"id":"job_1111111111111111111111","n":2,"ok":true,"list":["a"],"no":null}`:            false,
	} {
		if st.same(parse(want), parse(got)) != same {
			t.Errorf("%s: %v", got, !same)
		}
	}
	if st.real("job_0000000000000000000000") != "job_1111111111111111111111" {
		t.Errorf("%v", st.ids)
	}
}

// An example of what an operation does not have is a fault of the file, and is not left out silently.
func TestExamplesFit(t *testing.T) {
	entry := openapi.Entry{Method: "GET", Path: "/x/{id}", Operation: &openapi.Operation{ID: "get",
		Answers: answers(http.StatusOK, js(openapi.Schema{}))}}
	for name, example := range map[string]openapi.Example{
		"parameter": {Status: 200, Parameters: map[string]any{"limit": 1}},
		"body":      {Status: 200, Body: map[string]any{}},
		"status":    {Status: 201},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			openapi.Document(openapi.Config{Examples: map[string]openapi.Example{"get": example}}, []openapi.Entry{entry})
		}()
	}
}

package native

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"berth/api"
	"berth/api/approvals"
	"berth/api/jsonlines"
	"berth/events"
	"berth/events/webhook"
	"berth/session/stats"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const documentURL = "http://berth.test/openapi.json"

// A contract is an OpenAPI document that answers can be held against.
type contract struct {
	raw map[string]any

	mu       sync.Mutex // held while compiler is used: answers are read by several goroutines
	compiler *jsonschema.Compiler
}

// schema compiles a part of the document.
func (c *contract) schema(at string) (*jsonschema.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.compiler.Compile(at)
}

func readDocument(t *testing.T, base string) *contract {
	t.Helper()
	res, err := http.Get(base + "/openapi.json") // needs no key
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := jsonschema.UnmarshalJSON(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("the document: %d %v", res.StatusCode, err)
	}
	closeObjects(raw)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource(documentURL, raw); err != nil {
		t.Fatal(err)
	}
	return &contract{raw: raw.(map[string]any), compiler: c}
}

// closeObjects forbids properties that a schema does not list, so that a field which is not documented fails.
func closeObjects(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, has := v["properties"].(map[string]any); has && v["type"] == "object" {
			v["additionalProperties"] = false
		}
		for _, x := range v {
			closeObjects(x)
		}
	case []any:
		for _, x := range v {
			closeObjects(x)
		}
	}
}

// find is the path template and operation that a request belongs to.
func (c *contract) find(method, path string) (string, map[string]any) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	parts := strings.Split(path, "/")
	best, literal := "", -1
	for template := range c.raw["paths"].(map[string]any) {
		if n := matchTemplate(strings.Split(template, "/"), parts); n > literal {
			best, literal = template, n
		}
	}
	item, _ := c.raw["paths"].(map[string]any)[best].(map[string]any)
	op, _ := item[strings.ToLower(method)].(map[string]any)
	return best, op
}

// matchTemplate is how many literal parts match, or -1.
func matchTemplate(template, parts []string) (n int) {
	if len(template) != len(parts) {
		return -1
	}
	for i, p := range template {
		switch {
		case p == parts[i]:
			n++
		case !strings.HasPrefix(p, "{"):
			return -1
		}
	}
	return n
}

// pointer writes keys as a JSON pointer in a URL.
func pointer(keys ...string) string {
	var b strings.Builder
	for _, k := range keys {
		k = strings.ReplaceAll(strings.ReplaceAll(k, "~", "~0"), "/", "~1")
		b.WriteString("/" + strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D", "[", "%5B", "]", "%5D", " ", "%20",
			"*", "%2A").Replace(k))
	}
	return b.String()
}

// judgeBody holds one body against the document.
func (c *contract) judgeBody(method, path string, res *http.Response, body []byte) error {
	template, op := c.find(method, path)
	if op == nil {
		return fmt.Errorf("%s %s is not documented", method, path)
	}
	status := strconv.Itoa(res.StatusCode)
	answer, _ := op["responses"].(map[string]any)[status].(map[string]any)
	if answer == nil {
		return fmt.Errorf("%s %s: status %s is not documented: %s", method, template, status, body)
	}
	contents, _ := answer["content"].(map[string]any)
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if len(contents) == 0 {
		if len(body) > 0 {
			return fmt.Errorf("%s %s: status %s has no documented body", method, template, status)
		}
		return nil
	}
	form, ok := contents[media].(map[string]any)
	if !ok { // a stored file has the type that its uploader said
		form, ok = contents["*/*"].(map[string]any)
	}
	if !ok {
		return fmt.Errorf("%s %s: content type %q of status %s is not documented", method, template, media, status)
	}
	shape, _ := form["schema"].(map[string]any)
	if shape == nil {
		return fmt.Errorf("%s %s: the body of status %s has no schema", method, template, status)
	}
	if shape["format"] == "binary" || method == http.MethodHead {
		return nil
	}
	at := documentURL + "#" + pointer("paths", template, strings.ToLower(method), "responses", status, "content", media,
		"schema")
	if media == eventType { // the schema is of an event, whose data it tells apart
		at += pointer("properties", "data", "contentSchema")
	}
	s, err := c.schema(at)
	if err != nil {
		return fmt.Errorf("the schema of %s %s %s: %w", method, template, status, err)
	}
	for _, value := range values(media, body) {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
		if err != nil {
			return fmt.Errorf("%s %s: %w in %s", method, template, err, value)
		}
		if err := s.Validate(v); err != nil {
			return fmt.Errorf("%s %s: %w in %s", method, template, err, value)
		}
	}
	return nil
}

// values are the JSON values of a body.
func values(media string, body []byte) (list [][]byte) {
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 64<<20)
	switch media {
	case eventType:
		for lines.Scan() {
			if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
				list = append(list, bytes.Clone(data))
			}
		}
		return list
	case jsonlines.Media:
		for lines.Scan() {
			list = append(list, bytes.Clone(lines.Bytes()))
		}
		return list
	}
	return [][]byte{body}
}

// A judge is a transport that fails the test for every answer that is not as the document says. Bodies
// that are streamed are judged when they were read to the end.
type judge struct {
	t    *testing.T
	doc  *contract
	next http.RoundTripper
}

func (j *judge) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := j.next.RoundTrip(req)
	if err != nil || res.StatusCode == http.StatusMethodNotAllowed {
		return res, err // a method that no operation has is not in a document of operations
	}
	if template, _ := j.doc.find(req.Method, req.URL.Path); template == "" && res.StatusCode == http.StatusNotFound {
		return res, nil
	}
	res.Body = &judged{ReadCloser: res.Body, j: j, req: req, res: res}
	return res, nil
}

type judged struct {
	io.ReadCloser
	j    *judge
	req  *http.Request
	res  *http.Response
	seen bytes.Buffer
	over bool
}

func (b *judged) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.seen.Len() < 8<<20 {
		b.seen.Write(p[:n])
	}
	if err == io.EOF && !b.over {
		b.over = true
		if err := b.j.doc.judgeBody(b.req.Method, b.req.URL.Path, b.res, b.seen.Bytes()); err != nil {
			b.j.t.Errorf("not as documented: %v", err)
		}
	}
	return n, err
}

// Every route of the tables is in the document, and every path of the document is one that is served: by this edge
// or by those that New is given.
func TestDocumentAndRoutesAgree(t *testing.T) {
	s := newSite(t)
	doc := readDocument(t, s.URL)
	var served, documented []string
	edges := []api.Edge{New(Config{Sessions: s.Sessions, Jobs: s.Jobs, Files: s.Files, Images: s.Images,
		Events: events.New(nil), Stats: &stats.Store{}, Webhooks: &webhook.Store{},
		Registries: offline{}}), operations(), approvals.New(approvals.Config{}), hosted(s.Files)}
	for _, e := range edges {
		for _, r := range e.Routes {
			if strings.HasSuffix(r.Pattern, "...}") { // another spelling of a documented one
				continue
			}
			served = append(served, r.Method+" "+r.Pattern)
		}
	}
	ids := map[string]bool{}
	for path, item := range doc.raw["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			documented = append(documented, strings.ToUpper(method)+" "+path)
			id := op.(map[string]any)["operationId"].(string)
			if ids[id] {
				t.Errorf("operationId %s is used twice", id)
			}
			ids[id] = true
		}
	}
	slices.Sort(served)
	slices.Sort(documented)
	if !slices.Equal(served, documented) {
		t.Errorf("served:\n%s\ndocumented:\n%s", strings.Join(served, "\n"), strings.Join(documented, "\n"))
	}
}

// Every schema of the document compiles and every reference leads somewhere.
func TestSchemasCompile(t *testing.T) {
	s := newSite(t)
	doc := readDocument(t, s.URL)
	schemas := doc.raw["components"].(map[string]any)["schemas"].(map[string]any)
	for name := range schemas {
		if _, err := doc.schema(documentURL + "#" + pointer("components", "schemas", name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(schemas) < 25 {
		t.Errorf("only %d schemas", len(schemas))
	}
	for path, item := range doc.raw["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			if _, has := op.(map[string]any)["requestBody"]; !has {
				continue
			}
			for media, form := range op.(map[string]any)["requestBody"].(map[string]any)["content"].(map[string]any) {
				if _, has := form.(map[string]any)["schema"]; has {
					if _, err := doc.schema(documentURL + "#" + pointer("paths", path, method, "requestBody",
						"content", media, "schema")); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
}

var update = flag.Bool("update", false, "write the files of package document from the source")

// Descriptions of types and fields are their doc comments. This test keeps descriptions.json equal to those of the
// types that the document has; run it with -update after changing one.
func TestDescriptionsAreTheComments(t *testing.T) {
	s := newSite(t)
	schemas := readDocument(t, s.URL).raw["components"].(map[string]any)["schemas"].(map[string]any)
	documented := func(typ string) bool { return schemas[strings.ToUpper(typ[:1])+typ[1:]] != nil }
	schemas["Page"] = schemas["ContainerPage"] // of a generic type
	for t, name := range typeNames {
		typ, _, _ := strings.Cut(t.Name(), "[")
		schemas[strings.ToUpper(typ[:1])+typ[1:]] = schemas[name]
	}
	want := map[string]string{}
	for _, pkg := range []string{"api/approvals", "api/live", "api/native", "api/native/document", "code", "proto", "tools/bridge",
		"tools/toolstore", "tools/tooluse"} {
		addComments(t, want, pkg, documented)
	}
	compareOrUpdate(t, "document/descriptions.json", want)
}

// compareOrUpdate compares a file of package document with what the source says, or writes it.
func compareOrUpdate(t *testing.T, file string, want any) {
	t.Helper()
	text, err := json.MarshalIndent(want, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if text = append(text, '\n'); *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if has, err := os.ReadFile(file); err != nil || !bytes.Equal(text, has) {
		t.Errorf("%s is not what the source says (%v); run this test with -update", file, err)
	}
}

// addComments adds the doc comments of a package's struct types and their fields.
func addComments(t *testing.T, to map[string]string, pkg string, wanted func(typ string) bool) {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join("../..", pkg, "*.go"))
	if err != nil || len(sources) == 0 {
		t.Fatal(sources, err)
	}
	add := func(key string, groups ...*ast.CommentGroup) {
		for _, g := range groups {
			if text := strings.Join(strings.Fields(g.Text()), " "); text != "" {
				to[key] = text
				return
			}
		}
	}
	for _, path := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE || strings.HasSuffix(path, "_test.go") {
				return !ok
			}
			for _, s := range decl.Specs {
				spec := s.(*ast.TypeSpec)
				fields, ok := spec.Type.(*ast.StructType)
				if !ok || !wanted(spec.Name.Name) {
					continue
				}
				key := "berth/" + pkg + "." + spec.Name.Name
				add(key, spec.Doc, decl.Doc)
				for _, f := range fields.Fields.List {
					if len(f.Names) == 1 && f.Tag != nil && !strings.Contains(f.Tag.Value, `json:"-"`) {
						add(key+"."+f.Names[0].Name, f.Doc, f.Comment)
					}
				}
			}
			return false
		})
	}
}

// The values of string types are the constants of package proto, all of them, in the order of their declaration. The
// name begins like that of TestDescriptionsAreTheComments, so that one -run with -update writes both files.
func TestDescriptionsOfEnums(t *testing.T) {
	declared := map[string][]string{}
	sources, err := filepath.Glob("../../proto/*.go")
	if err != nil || len(sources) == 0 {
		t.Fatal(sources, err)
	}
	for _, path := range sources {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok || v.Type == nil || len(v.Values) != 1 {
				return true
			}
			if lit, ok := v.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				typ := fmt.Sprint("berth/proto.", v.Type)
				text, _ := strconv.Unquote(lit.Value)
				declared[typ] = append(declared[typ], text)
			}
			return true
		})
	}
	compareOrUpdate(t, "document/enums.json", declared)
}

// The judge itself: what is not documented must not pass.
func TestJudgeRefuses(t *testing.T) {
	s := newSite(t)
	doc := readDocument(t, s.URL)
	answer := func(status int, media string) *http.Response {
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {media}}}
	}
	good := `{"id":"x","deleted":true}`
	if err := doc.judgeBody("DELETE", "/v1/workspaces/w", answer(200, "application/json"), []byte(good)); err != nil {
		t.Error(err)
	}
	for _, bad := range []struct {
		method, path string
		res          *http.Response
		body         string
	}{
		{"DELETE", "/v1/workspaces/w", answer(200, "application/json"), `{"id":"x","deleted":true,"more":1}`},
		{"DELETE", "/v1/workspaces/w", answer(200, "application/json"), `{"id":"x"}`},
		{"DELETE", "/v1/workspaces/w", answer(200, "application/json"), `{"id":1,"deleted":true}`},
		{"DELETE", "/v1/workspaces/w", answer(201, "application/json"), good},
		{"DELETE", "/v1/workspaces/w", answer(200, "text/plain"), good},
		{"DELETE", "/v1/nothing", answer(200, "application/json"), good},
		{"GET", "/v1/containers/c/execs/e/events", answer(200, eventType), "data: {\"type\":\"what\"}\n\n"},
	} {
		if err := doc.judgeBody(bad.method, bad.path, bad.res, []byte(bad.body)); err == nil {
			t.Errorf("passed: %s %s %d %s", bad.method, bad.path, bad.res.StatusCode, bad.body)
		}
	}
}

// TestDocumentSuitsGenerators checks what makes generators of clients fail on a valid document: values of an enum that
// differ in case alone (they become one name), a second form of an error beside the JSON, bytes without a schema, and
// paths without a server.
func TestDocumentSuitsGenerators(t *testing.T) {
	doc := readDocument(t, newSite(t).URL)
	if servers, _ := doc.raw["servers"].([]any); len(servers) == 0 {
		t.Error("there are no servers")
	}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case []any:
			for i, e := range v {
				walk(fmt.Sprintf("%s/%d", at, i), e)
			}
		case map[string]any:
			values, _ := v["enum"].([]any)
			names := map[string]bool{}
			for _, value := range values {
				name := strings.ToLower(fmt.Sprint(value))
				if names[name] {
					t.Errorf("%s has %q twice, in another case", at, value)
				}
				names[name] = true
			}
			var contents map[string]any
			if strings.HasPrefix(at, "/paths/") && !strings.Contains(at, "/schema/") { // there it is a field of that name
				contents, _ = v["content"].(map[string]any)
			}
			for media, form := range contents {
				if form, _ := form.(map[string]any); form["schema"] == nil {
					t.Errorf("%s: %s has no schema", at, media)
				}
			}
			if status := at[strings.LastIndexByte(at, '/')+1:]; len(status) == 3 && status[0] >= '4' && len(contents) > 1 {
				t.Errorf("%s: the error has several forms", at)
			}
			for key, e := range v {
				walk(at+"/"+key, e)
			}
		}
	}
	walk("", doc.raw)
}

package mcp

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"berth/tools/toolstore"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestCutText(t *testing.T) {
	for _, c := range []struct {
		name, text string
		limit      int
	}{
		{"short", "abc", 100},
		{"letters", strings.Repeat("x", 10_000), 1000},
		{"wide characters", strings.Repeat("ä", 10_000), 1000},
		{"emoji", strings.Repeat("😀", 10_000), 1001},
		{"control characters", strings.Repeat("\x01", 10_000), 1000},
		{"markup", strings.Repeat("<&>", 10_000), 1000},
		{"line ends", strings.Repeat("\n", 10_000), 1000},
		{"invalid UTF-8", strings.Repeat("\xff", 10_000), 1000},
	} {
		got := cutText(c.text, c.limit)
		if n := len(encode(got)); n > c.limit {
			t.Errorf("%s: %d bytes of JSON", c.name, n)
		}
		m := cutMarks.FindStringSubmatch(got)
		if len(c.text) <= c.limit {
			if got != c.text {
				t.Errorf("%s: %q", c.name, got)
			}
			continue
		}
		if m == nil || !utf8.ValidString(got) && utf8.ValidString(c.text) {
			t.Fatalf("%s: %.200q", c.name, got)
		}
		if want := fmt.Sprint(len(c.text) - len(got) + len(m[0])); m[1] != want {
			t.Errorf("%s: %s bytes left out, want %s", c.name, m[1], want)
		}
	}
	// a text that was cut before
	twice := cutText(strings.Repeat("a", 5000)+fmt.Sprintf(cutMark, 1_000_000)+strings.Repeat("b", 5000), 1000)
	if m := cutMarks.FindAllStringSubmatch(twice, -1); len(m) != 1 ||
		m[0][1] != fmt.Sprint(1_010_000-len(twice)+len(m[0][0])) {
		t.Errorf("%v", m)
	}
}

// raw sends one message and returns the type of the answer and its text.
func (s *site) raw(t *testing.T, session, body string) (media, text string) {
	t.Helper()
	res := s.stream(t, t.Context(), "POST", session, body)
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.Header.Get("Content-Type"), string(data)
}

// An answer is JSON where nothing is streamed. A call that reports progress, or takes long, has a stream.
func TestAnswersWithoutStreamAreJSON(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	const use = `{"jsonrpc":"2.0","id":"%s","method":"tools/call","params":{"name":"bash","arguments":{"command":"%s"}%s}}`
	for name, c := range map[string]struct{ body, media string }{
		"list":     {`{"jsonrpc":"2.0","id":"a","method":"tools/list"}`, "application/json"},
		"quick":    {fmt.Sprintf(use, "b", "echo hi", ""), "application/json"},
		"error":    {`{"jsonrpc":"2.0","id":"c","method":"resources/read","params":{"uri":"berth://files/x"}}`, "application/json"},
		"progress": {fmt.Sprintf(use, "d", "echo hi; sleep 0.5", `,"_meta":{"progressToken":1}`), "text/event-stream"},
		"long":     {fmt.Sprintf(use, "e", "sleep 3", ""), "text/event-stream"},
	} {
		media, text := s.raw(t, cs.ID(), c.body)
		if media != c.media || strings.HasPrefix(text, "{") != (c.media == "application/json") {
			t.Errorf("%s: %s %.300s", name, media, text)
		}
	}
	if media, text := s.raw(t, "", hello); media != "application/json" || !strings.Contains(text, `"result"`) {
		t.Errorf("initialize: %s %s", media, text)
	}
}

func TestLargeAnswersFit(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	const picture = "import os\nclass P:\n  def __init__(s, n): s.n = n\n" +
		"  def _repr_png_(s): return b'\\x89PNG' + os.urandom(s.n)\n  def _repr_html_(s): return '<b>' * s.n\n"
	use(t, cs, "bash", map[string]any{"command": "(printf '\\x89PNG\\r\\n\\x1a\\n'; head -c 1M /dev/urandom) >p.png; " +
		"head -c 200K /dev/zero | tr '\\0' '\\001' >control"})
	for _, c := range []struct {
		tool  string
		args  map[string]any
		cut   bool
		links int
	}{
		{"bash", map[string]any{"command": "seq 1 200000"}, true, 0},
		{"bash", map[string]any{"command": "head -c 3M /dev/zero | tr '\\0' '\\001'; seq 1 200000 >&2"}, true, 0},
		{"run_code", map[string]any{"code": "print('a' * 600_000)"}, false, 0},
		{"run_code", map[string]any{"code": "for i in range(150):\n  display('b' * 20_000)\n'c' * 4_000_000"}, true, 0},
		{"run_code", map[string]any{"code": "raise ValueError('d' * 3_000_000)"}, true, 0},
		{"run_code", map[string]any{"code": picture + "display(P(400_000)); P(400_000)"}, false, 3},
		{"str_replace_based_edit_tool", map[string]any{"command": "view", "path": "p.png"}, false, 1},
		{"str_replace_based_edit_tool", map[string]any{"command": "view", "path": strings.Repeat("x", 2_000_000)}, false, 0},
		{"download_file", map[string]any{"path": "control"}, false, 1},
		{"code_executor", map[string]any{"language": "python", "code": "print('\\x01' * 60_000, flush=True); 1/0"}, false, 0},
	} {
		if c.tool == "download_file" || c.args["path"] == "p.png" { // the shell's directory is that of its job
			_, dir := use(t, cs, "bash", map[string]any{"command": "pwd"})
			c.args["path"] = strings.TrimSpace(dir) + "/" + c.args["path"].(string)
		}
		res, text := use(t, cs, c.tool, c.args)
		links := 0
		for _, part := range res.Content {
			if l, ok := part.(*sdk.ResourceLink); ok {
				links++
				if _, err := readResource(t, cs, l.URI); err != nil {
					t.Errorf("%v", err)
				}
			}
		}
		if n := len(encode(res)); n > 1<<20 || strings.Contains(text, "bytes left out") != c.cut || links != c.links {
			t.Errorf("%s %.80v: %d bytes, %d links, %.300s", c.tool, c.args, n, links, text)
		}
		if n := len(encode(res.StructuredContent)); n > maxStructured {
			t.Errorf("%s: structured content of %d bytes", c.tool, n)
		}
	}
	// what fits is told once: here as text
	res, text := use(t, cs, "run_code", map[string]any{"code": "print('a' * 600_000)"})
	if n := len(encode(res.StructuredContent)); n > 2*maxTwice || strings.Count(text, "a") != 600_000 {
		t.Errorf("told twice: %d bytes, and %d of text", n, len(text))
	}
}

// An output of a stored tool is sent once, and a very large one is a file.
func TestLargeOutputsOfStoredTools(t *testing.T) {
	s := withTools(t)
	cs := s.session(t)
	code := "def run(input): return {'text': input['fill'] * input['n']}"
	in := []toolstore.Field{{Name: "n", FieldType: "INTEGER", Required: true}, {Name: "fill", FieldType: "STRING"}}
	s.store(t, toolstore.NewTool{Name: "plain", Configuration: toolstore.Configuration{Code: code, InputSchema: in}})
	s.store(t, toolstore.NewTool{Name: "declared", Configuration: toolstore.Configuration{Code: code, InputSchema: in,
		OutputSchema: []toolstore.Field{{Name: "text", FieldType: "STRING", Required: true}}}})
	for _, c := range []struct {
		tool, fill       string
		n                int
		text, structured bool // whether it is whole there
		failed           bool
		links            int
	}{
		{"plain", "a", 100, true, true, false, 0}, {"plain", "a", 200_000, true, false, false, 0},
		{"plain", "<", 200_000, false, false, false, 1}, {"declared", "a", 100, true, true, false, 0},
		{"declared", "a", 200_000, false, true, false, 0}, {"declared", "<", 200_000, false, false, true, 1},
	} {
		res, text := use(t, cs, c.tool, map[string]any{"n": c.n, "fill": c.fill})
		links := 0
		for _, part := range res.Content {
			if _, ok := part.(*sdk.ResourceLink); ok {
				links++
			}
		}
		structured, _ := res.StructuredContent.(map[string]any)
		whole, _ := structured["text"].(string)
		if len(encode(res)) > 1<<20 || (len(text) >= c.n) != c.text || (len(whole) == c.n) != c.structured ||
			res.IsError != c.failed || links != c.links {
			t.Errorf("%+v: %d bytes, text %d, structured %d, error %v, %d links: %.300s", c, len(encode(res)),
				len(text), len(whole), res.IsError, links, text)
		}
	}
}

// A list of tools that is too long for one answer has pages.
func TestToolListHasPages(t *testing.T) {
	s := withTools(t)
	const count = 15 // each is checked in a container of its own
	long := make([]toolstore.Field, 20)
	for i := range long {
		long[i] = toolstore.Field{Name: fmt.Sprintf("field_%d", i), FieldType: "STRING",
			Description: strings.Repeat("y", 4000)}
	}
	for i := range count {
		s.store(t, toolstore.NewTool{Name: fmt.Sprintf("tool_%02d", i), Description: strings.Repeat("x", 4000),
			Configuration: toolstore.Configuration{Code: "def run(input): return 1", InputSchema: long}})
	}
	cs := s.session(t)
	seen, pages, cursor := map[string]bool{}, 0, ""
	for pages == 0 || cursor != "" {
		list, err := cs.ListTools(t.Context(), &sdk.ListToolsParams{Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(encode(list)); n > 1<<20 {
			t.Errorf("a page of %d bytes", n)
		}
		for _, tool := range list.Tools {
			seen[tool.Name] = true
		}
		pages, cursor = pages+1, list.NextCursor
	}
	if len(seen) != count+len(commonTools) || pages < 2 {
		t.Errorf("%d tools on %d pages", len(seen), pages)
	}
}

func TestResourcesInRanges(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	res, _ := use(t, cs, "bash", map[string]any{"command": "cd /workspace; seq 1 1000000 >big; printf 'äöü' >small; " +
		": >empty; echo q >'a?b'; cp big $OUTPUT_DIR/stored"})
	link := res.Content[len(res.Content)-1].(*sdk.ResourceLink)
	if !strings.Contains(link.Description, link.URI+"?offset=0&length=4194304") {
		t.Errorf("the link does not say how to read it: %q", link.Description)
	}
	files := containerURI + containerOf(t, res) + "/workspace/"
	for uri, want := range map[string]string{
		link.URI + "?offset=2&length=4":      "2\n3\n",
		link.URI + "?length=4":               "1\n2\n",
		files + "big?offset=6888893":         "00\n",
		files + "small?offset=0&length=3":    "ä\xc3",
		files + "small?offset=2&length=2":    "ö",
		files + "small?offset=100&length=2":  "",
		files + "empty":                      "",
		files + "empty?offset=0&length=4096": "",
		files + "a%3Fb":                      "q\n",
		files + "a?b":                        "q\n",
	} {
		if got, err := readResource(t, cs, uri); err != nil || got != want {
			t.Errorf("%s: %q %v", uri, got, err)
		}
	}
	for uri, want := range map[string]string{
		link.URI:                          "such as " + link.URI + "?offset=0&length=4194304",
		files + "big":                     "4194304",
		files + "big?offset=-1":           "offset",
		files + "big?offset=x":            "offset",
		files + "big?offset=0&length=5e6": "length",
		files + "big?length=4194305":      "4194304",
	} {
		if _, err := readResource(t, cs, uri); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", uri, err)
		}
	}
	part, err := cs.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: files + "big?offset=10&length=5"})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := json.Marshal(part.Contents[0].Meta[metaRange]); string(got) != `{"length":5,"offset":10,"size":6888896}` {
		t.Errorf("%s", got)
	}
	for _, uri := range []string{files + "empty", files + "big?offset=7000000"} { // clients want a text or a blob
		_, text := s.raw(t, cs.ID(), fmt.Sprintf(`{"jsonrpc":"2.0","id":9,"method":"resources/read","params":{"uri":%q}}`, uri))
		if !strings.Contains(text, `"blob":""`) && !strings.Contains(text, `"text":""`) {
			t.Errorf("%s", text)
		}
	}
}

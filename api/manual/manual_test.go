package manual_test

import (
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"

	"berth/api"
	"berth/api/manual"
	"berth/docs"
	"berth/test/apitest"
)

// A site serves the documentation of a real daemon's document.
type site struct {
	*httptest.Server
	reference *manual.Reference
}

func newSite(t *testing.T) site {
	t.Helper()
	daemon := apitest.Serve(t, nil)
	res, err := http.Get(daemon.URL + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	document, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := manual.Read(document)
	if err != nil {
		t.Fatal(err)
	}
	server, err := api.New(api.Config{Edges: []api.Edge{manual.New(manual.Config{Document: document,
		Guides: docs.Files})}})
	if err != nil {
		t.Fatal(err)
	}
	s := site{httptest.NewServer(server), ref}
	t.Cleanup(s.Close)
	return s
}

// get asks without an API key.
func (s site) get(t *testing.T, at string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest("GET", s.URL+at, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

var (
	anyLink = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	anyID   = regexp.MustCompile(` id="([^"]*)"`)
)

// The reference has every operation and type, and all links of all pages lead somewhere. No page has a script, or loads
// anything from another host.
func TestPages(t *testing.T) {
	s := newSite(t)
	operations := 0
	_, text := s.get(t, "/docs")
	_, twin := s.get(t, "/docs/api-reference.md")
	for _, tag := range s.reference.Tags {
		for _, o := range tag.Operations {
			operations++
			if !strings.Contains(text, `<article id="`+o.ID+`">`) || !strings.Contains(twin, "### "+o.ID+"\n") {
				t.Errorf("%s is missing", o.ID)
			}
			if o.Curl == "" && o.Answers[0].Status != "101" {
				t.Errorf("%s has no example", o.ID)
			}
		}
	}
	if operations < 90 || len(s.reference.Types) < 100 {
		t.Errorf("%d operations, %d types", operations, len(s.reference.Types))
	}
	ids := map[string]map[string]bool{} // by path of a page
	at := []string{"/docs"}
	var links []string
	for ; len(at) > 0; at = at[1:] {
		if ids[at[0]] != nil {
			continue
		}
		res, text := s.get(t, at[0])
		if res.StatusCode != 200 {
			t.Errorf("%s: %d", at[0], res.StatusCode)
		}
		ids[at[0]] = map[string]bool{}
		if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
			continue
		}
		policy := res.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") ||
			strings.Contains(policy, "script") {
			t.Errorf("%s: %s", at[0], policy)
		}
		if regexp.MustCompile(`(?i)<script|<style|\sstyle=|\son\w+=|src="http|stylesheet" href="http`).MatchString(text) {
			t.Errorf("%s has a script or a style, or loads something", at[0])
		}
		for _, m := range anyID.FindAllStringSubmatch(text, -1) {
			if ids[at[0]][m[1]] {
				t.Errorf("%s has the ID %s twice", at[0], m[1])
			}
			ids[at[0]][m[1]] = true
		}
		for _, m := range anyLink.FindAllStringSubmatch(text, -1) {
			page, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(page, ":") || page == "/openapi.json" {
				continue
			}
			if page == "" {
				page = at[0]
			}
			at = append(at, page)
			if links = append(links, page+"#"+anchor); !strings.HasPrefix(page, "/") {
				t.Errorf("%s has the link %s", at[0], m[1])
			}
		}
	}
	for _, link := range links {
		page, anchor, _ := strings.Cut(link, "#")
		if anchor != "" && !ids[page][anchor] {
			t.Errorf("the link %s leads nowhere", link)
		}
	}
	if len(ids) < 30 {
		t.Errorf("only %d pages are linked", len(ids))
	}
}

// Every page of the folder is there in both forms, and the list for agents names those at the top.
func TestMarkdown(t *testing.T) {
	s := newSite(t)
	_, list := s.get(t, "/llms.txt")
	for _, m := range regexp.MustCompile(`\]\((/[^)]*)\)`).FindAllStringSubmatch(list, -1) {
		if res, _ := s.get(t, m[1]); m[1] != "/openapi.json" && (res.StatusCode != 200 ||
			!strings.HasPrefix(res.Header.Get("Content-Type"), "text/markdown")) {
			t.Errorf("%s: %d %s", m[1], res.StatusCode, res.Header.Get("Content-Type"))
		}
	}
	err := fs.WalkDir(docs.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".md" {
			return err
		}
		want, err := fs.ReadFile(docs.Files, name)
		if err != nil {
			return err
		}
		if res, text := s.get(t, "/docs/"+name); res.StatusCode != 200 || text != string(want) {
			t.Errorf("%s: %d, %d bytes", name, res.StatusCode, len(text))
		}
		if res, text := s.get(t, "/docs/"+strings.TrimSuffix(name, ".md")); res.StatusCode != 200 ||
			!strings.Contains(text, "</h1>") {
			t.Errorf("%s as a page: %d, %d bytes", name, res.StatusCode, len(text))
		}
		for _, m := range regexp.MustCompile(`!\[[^\]]*\]\(([\w.-]+)\)`).FindAllStringSubmatch(string(want), -1) {
			if res, _ := s.get(t, path.Join("/docs", path.Dir(name), m[1])); res.StatusCode != 200 ||
				!strings.HasPrefix(res.Header.Get("Content-Type"), "image/") {
				t.Errorf("the picture %s of %s: %d", m[1], name, res.StatusCode)
			}
		}
		if at := "(/docs/" + name + ")"; !strings.Contains(name, "/") && !strings.Contains(list, at) {
			t.Errorf("the list lacks %s", at)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Nothing but the pages is served: not the source, and nothing outside the folder.
func TestNothingElseIsServed(t *testing.T) {
	s := newSite(t)
	for _, at := range []string{"/docs/", "/docs/nothing", "/docs/docs.go", "/docs/../go.mod", "/docs/%2e%2e/go.mod",
		"/docs/..%2fgo.mod", "/docs//api.md", "/docs/decisions", "/docs/decisions/", "/docs/./api.md", "/docs/api.md/",
		"/docs/style.css.md", "/docs/api%00", "/docs/\\..\\go.mod", "/docs/API.MD", "/llms.txt/", "/llms"} {
		res, text := s.get(t, at, "Accept", "application/json")
		if res.StatusCode != 404 || !strings.Contains(text, `"not_found"`) {
			t.Errorf("%s: %d %.100s", at, res.StatusCode, text)
		}
		if res, text := s.get(t, at, "Accept", "text/html"); res.StatusCode != 404 || !strings.Contains(text, "</html>") {
			t.Errorf("%s for a browser: %d %.100s", at, res.StatusCode, text)
		}
	}
	res, _ := s.get(t, "/docs")
	if again, text := s.get(t, "/docs", "If-None-Match", res.Header.Get("ETag")); again.StatusCode != 304 || text != "" {
		t.Errorf("the same page again: %d, %d bytes", again.StatusCode, len(text))
	}
}

// The document's texts are shown, and never become markup: an example may hold what a container said.
func TestReferenceEscapes(t *testing.T) {
	const evil = `<img src=x onerror=alert(1)>\"'` + "`"
	document := `{"info":{"title":"EVIL","description":"EVIL"},"tags":[{"name":"a","description":"EVIL"}],"paths":{"/EVIL":
		{"post":{"operationId":"EVIL","tags":["a"],"summary":"EVIL","description":"EVIL",
		"parameters":[{"name":"EVIL","in":"query","description":"EVIL","schema":{"type":"string","enum":["EVIL"]},
		"example":"EVIL"}],"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/x/EVIL"},"example":"EVIL"}}},
		"responses":{"200":{"description":"EVIL","content":{"application/json":{"schema":{"type":"string"},
		"example":"EVIL"}}}}}}},"components":{"schemas":{"EVIL":{"description":"EVIL","properties":{"EVIL":{}}}}}}`
	server, err := api.New(api.Config{Edges: []api.Edge{manual.New(manual.Config{Guides: docs.Files,
		Document: []byte(strings.ReplaceAll(document, "EVIL", evil))})}})
	if err != nil {
		t.Fatal(err)
	}
	s := site{Server: httptest.NewServer(server)}
	defer s.Close()
	if res, text := s.get(t, "/docs"); res.StatusCode != 200 || strings.Contains(text, "<img") ||
		strings.Count(text, "&lt;img") < 15 {
		t.Errorf("%d %s", res.StatusCode, text)
	}
}

// A shell reads each example as one command with these arguments, whatever they hold.
func TestCurl(t *testing.T) {
	s := newSite(t)
	const define = `curl() { for word; do printf '%s\n' "$word"; done; }; BERTH_URL=http://h BERTH_API_KEY=k; `
	for _, tag := range s.reference.Tags {
		for _, o := range tag.Operations {
			if o.Curl == "" {
				continue
			}
			out, err := exec.Command("sh", "-euc", define+o.Curl).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "http://h/") {
				t.Errorf("%s: %v %s", o.ID, err, out)
			}
		}
	}
	document := `{"info":{},"tags":[{"name":"a"}],"paths":{"/x/{id}":{"put":{"operationId":"put","tags":["a"],
		"parameters":[{"name":"id","in":"path","schema":{},"example":"a/b"},
		{"name":"q","in":"query","schema":{},"example":["1 2","&"]}],
		"requestBody":{"content":{"text/plain":{"schema":{},"example":"it's $HOME\n"}}},"responses":{}}}}}`
	ref, err := manual.Read([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sh", "-euc", define+ref.Tags[0].Operations[0].Curl).CombinedOutput()
	want := "-X\nPUT\nhttp://h/x/a%2Fb?q=1+2&q=%26\n-H\nX-Api-Key: k\n-H\nContent-Type: text/plain\n--data-binary\n" +
		"it's $HOME\n\n"
	if err != nil || string(out) != want {
		t.Errorf("%v %q, want %q", err, out, want)
	}
}

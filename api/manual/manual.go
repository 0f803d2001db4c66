// Package manual serves the documentation: /docs is the reference of the API, which it makes of the OpenAPI document,
// and below it are the pages of the folder docs. Each page is there as HTML and, with the ending .md, as Markdown for
// agents; /llms.txt lists those. Pages need no script and load nothing from elsewhere.
//
// All of it needs no API key, as the OpenAPI document needs none: it says what the source of the program says, and
// nothing of any owner. In: pages and their routes. Out: what the document says, which is package native/document's.
package manual

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"berth/api"
	"berth/proto"
)

// A Config is what the edge serves.
type Config struct {
	Document []byte // the OpenAPI document
	Guides   fs.FS  // pages in Markdown, and their pictures
}

// An edge makes each page at its first request, and keeps it.
type edge struct {
	Config
	reference func() (*Reference, error)

	mu    sync.Mutex
	pages map[string]page // by path
}

// A page is an answer.
type page struct {
	media string
	body  []byte
	tag   string // for If-None-Match
}

// New makes the edge.
func New(cfg Config) api.Edge {
	e := &edge{Config: cfg, pages: map[string]page{}, reference: sync.OnceValues(func() (*Reference, error) {
		return Read(cfg.Document)
	})}
	dialect := api.Plain
	dialect.Page = api.ErrorPage
	out := api.Edge{Name: "manual", Prefixes: []string{"/docs", "/llms.txt"}, Dialect: dialect}
	for _, pattern := range []string{"/docs", "/docs/{page...}", "/llms.txt"} {
		out.Routes = append(out.Routes, api.Route{Method: "GET", Pattern: pattern, Where: api.None, Public: true,
			Handle: e.serve})
	}
	return out
}

// style is all that pages load.
//
//go:embed style.css
var style []byte

func (e *edge) serve(w http.ResponseWriter, r *http.Request, _ api.Caller) error {
	p, err := e.page(r.URL.Path)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", p.media)
	h.Set("ETag", p.tag)
	h.Set("Cache-Control", "no-cache") // another version of the daemon has other pages
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; "+
		"form-action 'none'; frame-ancestors 'none'")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(p.body))
	return nil
}

// page returns the page of a path.
func (e *edge) page(at string) (page, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p, made := e.pages[at]; made {
		return p, nil
	}
	p, err := e.makePage(at)
	if err != nil {
		return p, err
	}
	sum := sha256.Sum256(p.body)
	p.tag = `"` + hex.EncodeToString(sum[:8]) + `"`
	e.pages[at] = p
	return p, nil
}

// Media types of pages.
const (
	htmlType = "text/html; charset=utf-8"
	textType = "text/markdown; charset=utf-8"
)

// mediaTypes are those of files, by the ending of their name.
var mediaTypes = map[string]string{".md": textType, ".svg": "image/svg+xml", ".png": "image/png",
	".json": "application/json"}

func (e *edge) makePage(at string) (page, error) {
	name := strings.TrimPrefix(at, "/docs/")
	switch at {
	case "/docs":
		return e.referencePage(referenceHTML, htmlType)
	case "/docs/api-reference.md":
		return e.referencePage(referenceText, textType)
	case "/docs/style.css":
		return page{media: "text/css; charset=utf-8", body: style}, nil
	case "/llms.txt":
		return e.list()
	}
	// A name that fs does not accept, as one with dots, is a name that there is not.
	if text, err := fs.ReadFile(e.Guides, name); err == nil {
		media := mediaTypes[path.Ext(name)]
		if media == "" {
			return page{}, unknown(at)
		}
		return page{media: media, body: text}, nil
	}
	text, err := fs.ReadFile(e.Guides, name+".md")
	if err != nil {
		return page{}, unknown(at)
	}
	body, err := guideHTML(name, text, e.guides())
	return page{media: htmlType, body: body}, err
}

func (e *edge) referencePage(write func(*Reference, []guide) ([]byte, error), media string) (page, error) {
	ref, err := e.reference()
	if err != nil {
		return page{}, err
	}
	body, err := write(ref, e.guides())
	return page{media: media, body: body}, err
}

func unknown(at string) error {
	return proto.Errorf(proto.NotFound, "", api.Shortened(at), "There is no such page; /docs has a list.")
}

// A guide is a page of the folder docs.
type guide struct {
	Name, Title string
	About       string // its first paragraph
}

// guides returns the pages at the top of the folder, by name.
func (e *edge) guides() (list []guide) {
	names, _ := fs.Glob(e.Guides, "*.md") // fails only for a bad pattern
	for _, name := range names {
		if text, err := fs.ReadFile(e.Guides, name); err == nil {
			g := guide{Name: strings.TrimSuffix(name, ".md")}
			g.Title, g.About = head(string(text))
			list = append(list, g)
		}
	}
	return list
}

// head returns the title and the first paragraph of a page in Markdown.
func head(text string) (title, about string) {
	title, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	for block := range strings.SplitSeq(rest, "\n\n") {
		if block = strings.TrimSpace(block); block != "" && !strings.ContainsAny(block[:1], "!#") {
			about = strings.Join(strings.Fields(block), " ")
			break
		}
	}
	return strings.TrimPrefix(title, "# "), about
}

// list is the index for agents, in the format of llmstxt.org.
func (e *edge) list() (page, error) {
	ref, err := e.reference()
	if err != nil {
		return page{}, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n> %s\n\n## API\n\n", ref.Title, ref.Description)
	b.WriteString("- [API reference](/docs/api-reference.md): every operation with its fields, an example and curl\n" +
		"- [OpenAPI document](/openapi.json): the same for programs\n\n## Guides\n\n")
	for _, g := range e.guides() {
		fmt.Fprintf(&b, "- [%s](/docs/%s.md): %s\n", g.Title, g.Name, plain(firstSentence(g.About)))
	}
	return page{media: textType, body: []byte(b.String())}, nil
}

// firstSentence cuts a paragraph after its first sentence.
func firstSentence(text string) string {
	if first, _, cut := strings.Cut(text, ". "); cut {
		return first + "."
	}
	return text
}

package anthropic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api"
	"berth/files"
	"berth/proto"
	"berth/state/ledger"
	"berth/tools/skills"
)

// The keys of two workspaces.
const (
	annKey = "ann-key-0123456789"
	bobKey = "bob-key-0123456789"
)

// twoKeys knows both.
type twoKeys struct{}

func (twoKeys) Authenticate(_ context.Context, key string) (api.Caller, error) {
	owner, ok := map[string]string{annKey: "ann", bobKey: "bob"}[key]
	if !ok {
		return api.Caller{}, proto.Errorf(proto.Unauthenticated, "", "", "Invalid API key.")
	}
	return api.Caller{Owner: owner}, nil
}

func (twoKeys) Life(string) context.Context { return context.Background() }

// A desk is the edge on a real server with a real store.
type desk struct {
	*httptest.Server
	files *files.Store
	dir   string
	shelf string // of provided skills
	now   time.Time
}

// newDesk serves the edge; change may alter it first, to make it fail on purpose.
func newDesk(t *testing.T, store files.Config, strict bool, change ...func(*api.Edge)) *desk {
	t.Helper()
	d := &desk{dir: t.TempDir(), shelf: t.TempDir(), now: time.Now()}
	db, err := ledger.Open(filepath.Join(d.dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	store.Dir, store.Ledger, store.Now = filepath.Join(d.dir, "files"), db, func() time.Time { return d.now }
	if d.files, err = files.Open(store); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.files.Close() })
	kept, err := skills.Open(skills.Config{Dir: filepath.Join(d.dir, "skills"), Ledger: db, Provided: d.shelf})
	if err != nil {
		t.Fatal(err)
	}
	e := New(Config{Files: d.files, MaxFileBytes: d.files.MaxFileBytes(), Skills: kept, SkillChanges: kept,
		MaxSkillBytes: kept.MaxBytes(), StrictDownloads: strict})
	for _, f := range change {
		f(&e)
	}
	srv, err := api.New(api.Config{Auth: twoKeys{}, Edges: []api.Edge{e}})
	if err != nil {
		t.Fatal(err)
	}
	d.Server = httptest.NewServer(srv)
	t.Cleanup(d.Close)
	return d
}

// onDisk counts contents and unfinished uploads.
func (d *desk) onDisk(t *testing.T) int {
	t.Helper()
	n := 0
	for _, sub := range []string{"blobs", "tmp"} {
		entries, err := os.ReadDir(filepath.Join(d.dir, "files", sub))
		if err != nil {
			t.Fatal(err)
		}
		n += len(entries)
	}
	return n
}

// An answer is one response, read whole.
type answer struct {
	*http.Response
	body []byte
	json map[string]any
}

// do sends a request as ann's newer SDK; header overrides, an empty value removes.
func (d *desk) do(t *testing.T, method, path string, body io.Reader, header ...string) answer {
	t.Helper()
	req, err := http.NewRequest(method, d.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+annKey)
	req.Header.Set("anthropic-version", "2026-10-21")
	for i := 0; i < len(header); i += 2 {
		req.Header.Del(header[i])
		if header[i+1] != "" {
			req.Header.Set(header[i], header[i+1])
		}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	a := answer{Response: res}
	if a.body, err = io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(a.body, &a.json)
	return a
}

var requestID = regexp.MustCompile(`^req_[0-9A-Za-z]+$`)

// wantError checks the whole envelope.
func (a answer) wantError(t *testing.T, status int, kind, code string) {
	t.Helper()
	e, _ := a.json["error"].(map[string]any)
	details, _ := e["details"].(map[string]any)
	got, _ := details["error_code"].(string)
	id := a.Header.Get("request-id")
	if a.StatusCode != status || a.json["type"] != "error" || e["type"] != kind || got != code || e["message"] == "" {
		t.Errorf("got %d %s\nwant %d %s %s", a.StatusCode, a.body, status, kind, code)
	}
	if !requestID.MatchString(id) || a.json["request_id"] != id || a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("request ID %q, body %s, type %s", id, a.body, a.Header.Get("Content-Type"))
	}
}

func (a answer) wantOK(t *testing.T) answer {
	t.Helper()
	if a.StatusCode != 200 || !requestID.MatchString(a.Header.Get("request-id")) {
		t.Fatalf("%d %s", a.StatusCode, a.body)
	}
	return a
}

func (a answer) str(key string) string {
	s, _ := a.json[key].(string)
	return s
}

// ids are those of a list.
func (a answer) ids() []string {
	ids := []string{}
	data, _ := a.json["data"].([]any)
	for _, entry := range data {
		ids = append(ids, entry.(map[string]any)["id"].(string))
	}
	return ids
}

// A part is one of a form, its disposition written as given.
type part struct{ disposition, kind, content string }

func filePart(name, kind, content string) part {
	return part{fmt.Sprintf(`form-data; name="file"; filename="%s"`, name), kind, content}
}

func fieldPart(name, content string) part {
	return part{fmt.Sprintf(`form-data; name="%s"`, name), "", content}
}

func formOf(parts ...part) (string, []byte) {
	var buf bytes.Buffer
	m := multipart.NewWriter(&buf)
	for _, p := range parts {
		h := textproto.MIMEHeader{"Content-Disposition": {p.disposition}}
		if p.kind != "" {
			h.Set("Content-Type", p.kind)
		}
		w, _ := m.CreatePart(h) // a buffer takes everything
		io.WriteString(w, p.content)
	}
	m.Close()
	return m.FormDataContentType(), buf.Bytes()
}

func (d *desk) upload(t *testing.T, parts ...part) answer {
	t.Helper()
	kind, body := formOf(parts...)
	return d.do(t, "POST", "/v1/files", bytes.NewReader(body), "Content-Type", kind)
}

// produce stores a file as a container does.
func (d *desk) produce(t *testing.T, content string) proto.StoredFile {
	t.Helper()
	f, err := d.files.Put(t.Context(), files.Upload{Owner: "ann", Filename: "chart.png", MIMEType: "image/png",
		Downloadable: true, Scope: "container_1"}, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func keysOf(m map[string]any) string {
	keys := []string{}
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return strings.Join(keys, " ")
}

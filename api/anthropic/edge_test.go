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
	"berth/ledger"
	"berth/proto"
)

// The keys of two workspaces.
const (
	annKey = "ann-key-0123456789"
	bobKey = "bob-key-0123456789"
)

// twoKeys knows both, since SingleKey has but one owner.
type twoKeys struct{}

func (twoKeys) Authenticate(_ context.Context, key string) (api.Caller, error) {
	owner, ok := map[string]string{annKey: "ann", bobKey: "bob"}[key]
	if !ok {
		return api.Caller{}, proto.Errorf(proto.Unauthenticated, "", "", "Invalid API key.")
	}
	return api.Caller{Owner: owner}, nil
}

// A desk is the edge on a real server with a real store.
type desk struct {
	*httptest.Server
	files *files.Store
	dir   string
	now   time.Time
}

// newDesk serves the edge; change may alter it first, to make it fail on purpose.
func newDesk(t *testing.T, store files.Config, strict bool, change ...func(*api.Edge)) *desk {
	t.Helper()
	d := &desk{dir: t.TempDir(), now: time.Now()}
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
	e := New(Config{Files: d.files, StrictDownloads: strict})
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
	f, err := d.files.Put(t.Context(), files.Upload{Owner: "ann", Filename: "chart.png", MIMEType: "image/png", Downloadable: true, Scope: "container_1"}, strings.NewReader(content))
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

func TestRows1to5Transport(t *testing.T) {
	d := newDesk(t, files.Config{}, false, func(e *api.Edge) {
		e.Routes = append(e.Routes, api.Route{Method: "GET", Pattern: "/v1/panic",
			Handle: func(http.ResponseWriter, *http.Request, api.Caller) error { panic("on purpose") }})
	})
	get := func(header ...string) answer { return d.do(t, "GET", "/v1/files", nil, header...) }
	get().wantOK(t)
	get("Authorization", "", "X-Api-Key", annKey).wantOK(t)
	get("X-Api-Key", annKey).wantOK(t)
	get("Authorization", "").wantError(t, 401, "authentication_error", "")
	get("Authorization", "Bearer wrong").wantError(t, 401, "authentication_error", "")
	get("Authorization", "", "X-Api-Key", "wrong").wantError(t, 401, "authentication_error", "")
	get("anthropic-version", "2023-06-01").wantOK(t)
	get("anthropic-version", "").wantError(t, 400, "invalid_request_error", "")
	get("anthropic-version", "2024-01-01").wantError(t, 400, "invalid_request_error", "")
	get("Content-Encoding", "gzip").wantError(t, 400, "invalid_request_error", "request_body_encoding_unsupported")
	get("anthropic-beta", "code-execution-2025-08-25, nobody-knows-1999-01-01").wantOK(t)
	d.do(t, "GET", "/v1/files?beta=true&color=blue", nil).wantOK(t)
	d.do(t, "GET", "/v1/nothing", nil).wantError(t, 404, "not_found_error", "")
	d.do(t, "GET", "/v1/files/x/y/z", nil).wantError(t, 404, "not_found_error", "")
	d.do(t, "PUT", "/v1/files", nil).wantError(t, 405, "invalid_request_error", "")
	d.do(t, "GET", "/v1/panic", nil).wantError(t, 500, "api_error", "")
}

func TestRow9MetadataHasExactKeys(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	a := d.upload(t, filePart("data.csv", "text/csv", "a,b\n1,2\n")).wantOK(t)
	if got := keysOf(a.json); got != "created_at downloadable expires_at filename id mime_type size_bytes type" {
		t.Fatalf("keys: %s", got)
	}
	if a.json["downloadable"] != false || a.json["expires_at"] != nil || a.json["size_bytes"] != 8.0 || a.str("type") != "file" || a.str("mime_type") != "text/csv" {
		t.Fatalf("%s", a.body)
	}
	if !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`).MatchString(a.str("created_at")) || !regexp.MustCompile(`^file_[0-9A-Za-z]+$`).MatchString(a.str("id")) {
		t.Fatalf("%s", a.body)
	}
	if again := d.do(t, "GET", "/v1/files/"+a.str("id"), nil).wantOK(t); !bytes.Equal(again.body, a.body) {
		t.Fatalf("metadata %s\nis not what the upload answered: %s", again.body, a.body)
	}
}

func TestRows10and11Names(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	tests := []struct {
		part part
		name string // "" is a 400
	}{
		{filePart("data.csv", "text/csv", "x"), "data.csv"},
		{filePart("naïve 数据.csv", "text/csv", "x"), "naïve 数据.csv"},
		{filePart("../../etc/passwd", "text/plain", "x"), "passwd"},
		{filePart("/abs/dir/x.txt", "text/plain", "x"), "x.txt"},
		{filePart("100%25 sure.txt", "text/plain", "x"), "100%25 sure.txt"},
		{filePart("", "application/octet-stream", "x"), "unnamed.bin"},
		{filePart("dir/", "text/plain", "x"), "unnamed.txt"},
		{part{`form-data; name="file"`, "application/octet-stream", "x"}, "unnamed.bin"}, // Python, bytes
		{part{`form-data; name="file"`, "text/csv", "x"}, "unnamed.csv"},
		{part{`form-data; name=file; filename=plain.txt`, "text/plain", "x"}, "plain.txt"},
		{part{`form-data; filename="first.txt"; name="file"`, "text/plain", "x"}, "first.txt"},
		{part{`FORM-DATA; NAME="file"; FILENAME="upper.txt"`, "text/plain", "x"}, "upper.txt"},
		{part{`form-data; name="file"; filename="x"; filename*=UTF-8''na%C3%AFve.txt`, "text/plain", "x"}, "naïve.txt"},
		{filePart(strings.Repeat("ü", 255), "text/plain", "x"), strings.Repeat("ü", 255)},
		{filePart(strings.Repeat("ü", 256), "text/plain", "x"), ""},
		{filePart(`a\"b.txt`, "text/plain", "x"), ""}, // Go's way to write a quote
		{filePart(`a%22b.txt`, "text/plain", "x"), ""},
		{filePart(`a%0D%0Ab.txt`, "text/plain", "x"), ""},
		{filePart(`a\\b.txt`, "text/plain", "x"), ""},
		{filePart(`a\b.txt`, "text/plain", "x"), ""},
		{filePart("a<b.txt", "text/plain", "x"), ""},
		{filePart("a>b.txt", "text/plain", "x"), ""},
		{filePart("a:b.txt", "text/plain", "x"), ""},
		{filePart("a|b.txt", "text/plain", "x"), ""},
		{filePart("a?b.txt", "text/plain", "x"), ""},
		{filePart("a*b.txt", "text/plain", "x"), ""},
		{filePart("a\x01b.txt", "text/plain", "x"), ""},
		{filePart("a\x7fb.txt", "text/plain", "x"), ""},
		{filePart("a\xffb.txt", "text/plain", "x"), ""},
		{filePart("..", "text/plain", "x"), ""},
		{part{`form-data; name="file"; filename="no end`, "text/plain", "x"}, ""},
		{part{`attachment; name="file"; filename="x"`, "text/plain", "x"}, ""},
	}
	for _, tt := range tests {
		a := d.upload(t, tt.part)
		if tt.name == "" {
			a.wantError(t, 400, "invalid_request_error", "")
		} else if a.str("filename") != tt.name {
			t.Errorf("%s: got %s, want name %q", tt.part.disposition, a.body, tt.name)
		}
	}
}

func TestRow12Expiry(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	file := filePart("x.txt", "text/plain", "x")
	for _, parts := range [][]part{{file, fieldPart("expires_in_seconds", "3600")}, {fieldPart("expires_in_seconds", "3600"), file}} {
		a := d.upload(t, parts...).wantOK(t)
		created, _ := time.Parse(time.RFC3339, a.str("created_at"))
		expires, err := time.Parse(time.RFC3339, a.str("expires_at"))
		if err != nil || expires.Sub(created) != time.Hour {
			t.Fatalf("%s", a.body)
		}
	}
	d.upload(t, fieldPart("expires_in_seconds", "7776000"), file).wantOK(t)
	before := d.do(t, "GET", "/v1/files", nil).ids()
	for _, bad := range []string{"3599", "7776001", "0", "-3600", "", "1e4", "3600.5", "3600 ", "99999999999999999999", strings.Repeat("0", 1000) + "3600"} {
		d.upload(t, fieldPart("expires_in_seconds", bad), file).wantError(t, 400, "invalid_request_error", "")
		d.upload(t, file, fieldPart("expires_in_seconds", bad)).wantError(t, 400, "invalid_request_error", "")
	}
	d.upload(t, file, fieldPart("expires_in_seconds", "3600"), fieldPart("expires_in_seconds", "3600")).wantError(t, 400, "invalid_request_error", "")
	if after := d.do(t, "GET", "/v1/files", nil).ids(); len(after) != len(before) || d.onDisk(t) != 1 {
		t.Fatalf("refused uploads left %d files, %d on disk", len(after)-len(before), d.onDisk(t))
	}
}

func TestRow13BrokenBodiesLeaveNothing(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	kind, whole := formOf(filePart("x.txt", "text/plain", strings.Repeat("content ", 10_000)), fieldPart("other", "ignored"))
	d.do(t, "POST", "/v1/files", strings.NewReader("a=b"), "Content-Type", "application/x-www-form-urlencoded").wantError(t, 400, "invalid_request_error", "")
	d.do(t, "POST", "/v1/files", bytes.NewReader(whole)).wantError(t, 400, "invalid_request_error", "")
	d.do(t, "POST", "/v1/files", bytes.NewReader(whole), "Content-Type", "multipart/form-data").wantError(t, 400, "invalid_request_error", "")
	d.do(t, "POST", "/v1/files", bytes.NewReader(whole), "Content-Type", "multipart/form-data; boundary=wrong").wantError(t, 400, "invalid_request_error", "")
	d.do(t, "POST", "/v1/files", nil, "Content-Type", kind).wantError(t, 400, "invalid_request_error", "")
	d.upload(t).wantError(t, 400, "invalid_request_error", "")
	d.upload(t, fieldPart("expires_in_seconds", "3600")).wantError(t, 400, "invalid_request_error", "")
	file := filePart("x", "text/plain", "x")
	d.upload(t, file, file).wantError(t, 400, "invalid_request_error", "")
	d.upload(t, slices.Repeat([]part{fieldPart("f", "x")}, 100)...).wantError(t, 400, "invalid_request_error", "")
	for i := 1; i < 16; i++ { // a sender that stops early and says that it was all
		d.do(t, "POST", "/v1/files", bytes.NewReader(whole[:len(whole)*i/16]), "Content-Type", kind).wantError(t, 400, "invalid_request_error", "")
	}
	d.do(t, "POST", "/v1/files", bytes.NewReader(whole[:len(whole)-4]), "Content-Type", kind).wantError(t, 400, "invalid_request_error", "")
	if ids := d.do(t, "GET", "/v1/files", nil).ids(); len(ids) != 0 || d.onDisk(t) != 0 || d.files.Usage("ann") != 0 {
		t.Fatalf("left: %v, %d on disk, usage %d", ids, d.onDisk(t), d.files.Usage("ann"))
	}
	d.do(t, "POST", "/v1/files", bytes.NewReader(whole), "Content-Type", kind).wantOK(t)
}

// A connection that dies in the middle is the other way to be truncated.
func TestRow13LostConnectionLeavesNothing(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	kind, whole := formOf(filePart("x.txt", "text/plain", strings.Repeat("content ", 100_000)))
	body, feed := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "POST", d.URL+"/v1/files", body)
	req.Header = http.Header{"X-Api-Key": {annKey}, "Anthropic-Version": {"2023-06-01"}, "Content-Type": {kind}}
	req.ContentLength = int64(len(whole))
	done := make(chan error)
	go func() {
		_, err := http.DefaultClient.Do(req)
		done <- err
	}()
	feed.Write(whole[:len(whole)/2]) // returns when the transport has taken it
	cancel()
	if err := <-done; err == nil {
		t.Fatal("the request did not fail")
	}
	feed.Close()
	d.Close() // waits for the handler
	if d.onDisk(t) != 0 || d.files.Usage("ann") != 0 {
		t.Fatalf("%d on disk, usage %d", d.onDisk(t), d.files.Usage("ann"))
	}
}

func TestRow14TooLarge(t *testing.T) {
	d := newDesk(t, files.Config{MaxFileBytes: 1 << 20}, false)
	d.upload(t, filePart("x", "text/plain", strings.Repeat("x", 1<<20))).wantOK(t)
	d.upload(t, filePart("x", "text/plain", strings.Repeat("x", 1<<20+1))).wantError(t, 413, "request_too_large", "")
	d.upload(t, filePart("x", "text/plain", strings.Repeat("x", 4<<20))).wantError(t, 413, "request_too_large", "")
	kind, body := formOf(filePart("x", "text/plain", strings.Repeat("x", 4<<20)))
	d.do(t, "POST", "/v1/files", struct{ io.Reader }{bytes.NewReader(body)}, "Content-Type", kind).wantError(t, 413, "request_too_large", "") // chunked
	if d.onDisk(t) != 1 {
		t.Fatal("a refused upload is on disk")
	}
}

func TestRow15DetectsTypes(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	png := "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
	for _, tt := range []struct{ name, content, want string }{
		{"chart", png, "image/png"}, {"a.csv", "one column\n1\n", "text/csv"}, {"b.csv", "a,b\n1,2\n3,4\n", "text/csv"}, {"notes", "plain words", "text/plain"},
		{"x.json", `{"a":1}`, "application/json"}, {"x.py", "print(1)\n", "text/x-python"}, {"x.pdf", "%PDF-1.7\n", "application/pdf"}, {"lies.csv", png, "image/png"},
	} {
		a := d.upload(t, filePart(tt.name, "", tt.content)).wantOK(t)
		if a.str("mime_type") != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, a.str("mime_type"), tt.want)
		}
	}
	if a := d.upload(t, part{`form-data; name="file"`, "", png}); a.str("filename") != "unnamed.png" {
		t.Errorf("%s", a.body)
	}
	kind, body := formOf(filePart("x", "", "x"))
	d.do(t, "POST", "/v1/files", bytes.NewReader(body), "Content-Type", kind, "anthropic-beta", "files-api-2025-04-14").wantError(t, 400, "invalid_request_error", "")
	for _, bad := range []string{"nonsense", "text/pl\x01ain", "text/" + strings.Repeat("x", 300), "texté/plain"} {
		d.upload(t, filePart("x", bad, "x")).wantError(t, 400, "invalid_request_error", "")
	}
}

// some uploads n files and returns their IDs, newest first.
func (d *desk) some(t *testing.T, n int) []string {
	t.Helper()
	ids := []string{}
	for i := range n {
		ids = append(ids, d.upload(t, filePart("x", "text/plain", fmt.Sprint(i))).wantOK(t).str("id"))
	}
	slices.Reverse(ids)
	return ids
}

func TestRows16to18ListGA(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	empty := d.do(t, "GET", "/v1/files", nil).wantOK(t)
	if strings.TrimSpace(string(empty.body)) != `{"data":[],"next_page":null}` {
		t.Fatalf("%s", empty.body)
	}
	ids := d.some(t, 23)
	first := d.do(t, "GET", "/v1/files", nil).wantOK(t)
	if !slices.Equal(first.ids(), ids[:20]) || keysOf(first.json) != "data next_page" {
		t.Fatalf("%s", first.body)
	}
	var walked []string
	for path := "/v1/files?limit=10"; ; {
		a := d.do(t, "GET", path, nil).wantOK(t)
		walked = append(walked, a.ids()...)
		if a.json["next_page"] == nil {
			break
		}
		if !strings.HasPrefix(a.str("next_page"), "page_") {
			t.Fatalf("%s", a.body)
		}
		path = "/v1/files?limit=10&page=" + a.str("next_page")
	}
	if !slices.Equal(walked, ids) {
		t.Fatalf("walked %v\nwant %v", walked, ids)
	}
	some := d.do(t, "GET", "/v1/files?ids%5B%5D="+ids[3]+"&ids%5B%5D="+ids[1]+"&ids%5B%5D="+ids[3]+"&ids%5B%5D=file_0000000000000000000000&ids%5B%5D=..%2fx", nil).wantOK(t)
	if !slices.Equal(some.ids(), []string{ids[1], ids[3]}) || some.json["next_page"] != nil {
		t.Fatalf("%s", some.body)
	}
	many := "/v1/files?"
	for i := range 101 {
		many += fmt.Sprintf("ids[]=file_%022d&", i)
	}
	d.do(t, "GET", strings.TrimSuffix(many, "ids[]=file_0000000000000000000100&"), nil).wantOK(t)
	page := first.str("next_page")
	for _, bad := range []string{many, "/v1/files?limit=0", "/v1/files?limit=1001", "/v1/files?limit=-1", "/v1/files?limit=ten", "/v1/files?limit=",
		"/v1/files?page=", "/v1/files?page=page_", "/v1/files?page=" + ids[0], "/v1/files?page=page_..%2f..%2f..%2f..%2f..%2f..%2f..x",
		"/v1/files?before_id=" + ids[0], "/v1/files?after_id=" + ids[0],
		"/v1/files?ids[]=" + ids[0] + "&limit=5", "/v1/files?ids[]=" + ids[0] + "&page=" + page} {
		d.do(t, "GET", bad, nil).wantError(t, 400, "invalid_request_error", "")
	}
	d.do(t, "GET", "/v1/files?limit=1000", nil).wantOK(t)
}

func TestRows19and20ListBetas(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	ids := d.some(t, 6)
	made := d.produce(t, "png")
	ids = append([]string{made.ID}, ids...)
	const legacy, hybrid = "files-api-2025-04-14", "managed-agents-2026-04-01"
	get := func(query, beta string) answer {
		return d.do(t, "GET", "/v1/files?beta=true&"+query, nil, "anthropic-beta", beta).wantOK(t)
	}
	for _, beta := range []string{legacy, hybrid} {
		var walked []string
		for query := "limit=3"; ; {
			a := get(query, beta)
			walked = append(walked, a.ids()...)
			if n := len(a.ids()); a.str("first_id") != a.ids()[0] || a.str("last_id") != a.ids()[n-1] {
				t.Fatalf("%s", a.body)
			}
			if a.json["has_more"] == false {
				break
			}
			query = "limit=3&after_id=" + a.str("last_id")
		}
		if !slices.Equal(walked, ids) {
			t.Fatalf("%s walked %v\nwant %v", beta, walked, ids)
		}
		before := get("limit=2&before_id="+ids[4], beta)
		if !slices.Equal(before.ids(), ids[2:4]) || before.json["has_more"] != true {
			t.Fatalf("%s", before.body)
		}
		if a := get("scope_id=container_1", beta); !slices.Equal(a.ids(), ids[:1]) {
			t.Fatalf("%s", a.body)
		}
		if a := get("after_id="+ids[6], beta); a.json["first_id"] != nil || a.json["last_id"] != nil || len(a.ids()) != 0 {
			t.Fatalf("%s", a.body)
		}
		d.do(t, "GET", "/v1/files?after_id=x", nil, "anthropic-beta", beta).wantError(t, 400, "invalid_request_error", "")
		d.do(t, "GET", "/v1/files?after_id="+ids[0]+"&before_id="+ids[1], nil, "anthropic-beta", beta).wantError(t, 400, "invalid_request_error", "")
	}
	entry := func(a answer) string { return keysOf(a.json["data"].([]any)[0].(map[string]any)) }
	old := get("", legacy)
	if keysOf(old.json) != "data first_id has_more last_id" || strings.Contains(entry(old), "expires_at") {
		t.Fatalf("%s", old.body)
	}
	both := get("limit=2", hybrid)
	if keysOf(both.json) != "data first_id has_more last_id next_page" || !strings.Contains(entry(both), "expires_at") || !strings.Contains(string(both.body), `"scope":{"type":"session","id":"container_1"}`) {
		t.Fatalf("%s", both.body)
	}
	if a := get("limit=2&page="+both.str("next_page"), hybrid); !slices.Equal(a.ids(), ids[2:4]) {
		t.Fatalf("%s", a.body)
	}
	if a := get("", hybrid+","+legacy); keysOf(a.json) != "data first_id has_more last_id" {
		t.Fatalf("both betas: %s", a.body)
	}
}

func TestRows21and22Download(t *testing.T) {
	content := strings.Repeat("\x00\xffbinary", 100_000)
	for _, strict := range []bool{false, true} {
		d := newDesk(t, files.Config{}, strict)
		up := d.upload(t, filePart("naïve.bin", "application/x-thing", content)).wantOK(t)
		a := d.do(t, "GET", "/v1/files/"+up.str("id")+"/content", nil)
		if strict {
			a.wantError(t, 400, "invalid_request_error", "file_not_downloadable")
		} else if string(a.body) != content || a.Header.Get("Content-Type") != "application/x-thing" || a.ContentLength != int64(len(content)) ||
			a.Header.Get("Content-Disposition") != "attachment; filename*=utf-8''na%C3%AFve.bin" {
			t.Fatalf("%d bytes, %v", len(a.body), a.Header)
		}
		made := d.produce(t, content)
		b := d.do(t, "GET", "/v1/files/"+made.ID+"/content", nil).wantOK(t)
		if string(b.body) != content || b.Header.Get("Content-Type") != "image/png" || b.Header.Get("Content-Disposition") != "attachment; filename=chart.png" {
			t.Fatalf("%d bytes, %v", len(b.body), b.Header)
		}
		h := d.do(t, "HEAD", "/v1/files/"+made.ID+"/content", nil).wantOK(t)
		if h.ContentLength != int64(len(content)) || len(h.body) != 0 {
			t.Fatalf("HEAD: %v", h.Header)
		}
	}
}

func TestRow23Expired(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	id := d.upload(t, filePart("x", "text/plain", "x"), fieldPart("expires_in_seconds", "3600")).wantOK(t).str("id")
	d.now = d.now.Add(time.Hour)
	for range 2 { // before and after the sweep
		d.do(t, "GET", "/v1/files/"+id+"/content", nil).wantError(t, 404, "not_found_error", "file_expired")
		d.do(t, "GET", "/v1/files/"+id, nil).wantOK(t)
		if ids := d.do(t, "GET", "/v1/files", nil).ids(); len(ids) != 1 {
			t.Fatalf("%v", ids)
		}
		if _, err := d.files.Sweep(t.Context(), d.now); err != nil {
			t.Fatal(err)
		}
	}
	if d.onDisk(t) != 0 {
		t.Fatal("the content of an expired file is still on disk")
	}
	if _, err := d.files.Sweep(t.Context(), d.now.Add(30*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	d.do(t, "GET", "/v1/files/"+id, nil).wantError(t, 404, "not_found_error", "")
}

func TestRow24Delete(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	id := d.some(t, 1)[0]
	a := d.do(t, "DELETE", "/v1/files/"+id, nil, "Content-Type", "application/json").wantOK(t)
	if strings.TrimSpace(string(a.body)) != `{"id":"`+id+`","type":"file_deleted"}` {
		t.Fatalf("%s", a.body)
	}
	d.do(t, "DELETE", "/v1/files/"+id, nil).wantError(t, 404, "not_found_error", "")
	d.do(t, "GET", "/v1/files/"+id, nil).wantError(t, 404, "not_found_error", "")
	d.do(t, "GET", "/v1/files/"+id+"/content", nil).wantError(t, 404, "not_found_error", "")
	for _, strange := range []string{"x", "file_", "..%2f..%2fetc%2fpasswd", "file_%00", "%1b%5b2J", strings.Repeat("a", 5000)} {
		d.do(t, "GET", "/v1/files/"+strange, nil).wantError(t, 404, "not_found_error", "")
	}
}

func TestRow24DeleteDuringDownload(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	content := strings.Repeat("0123456789abcdef", 4<<20) // more than sockets buffer
	made := d.produce(t, content)
	req, _ := http.NewRequest("GET", d.URL+"/v1/files/"+made.ID+"/content", nil)
	req.Header = http.Header{"X-Api-Key": {annKey}, "Anthropic-Version": {"2023-06-01"}}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	d.do(t, "DELETE", "/v1/files/"+made.ID, nil).wantOK(t)
	if data, err := io.ReadAll(res.Body); err != nil || string(data) != content {
		t.Fatalf("%d of %d bytes, %v", len(data), len(content), err)
	}
}

func TestRow25Quota(t *testing.T) {
	d := newDesk(t, files.Config{QuotaBytes: 1000}, false)
	id := d.upload(t, filePart("x", "text/plain", strings.Repeat("x", 900))).wantOK(t).str("id")
	d.upload(t, filePart("y", "text/plain", strings.Repeat("y", 101))).wantError(t, 400, "invalid_request_error", "storage_quota_exceeded")
	d.do(t, "DELETE", "/v1/files/"+id, nil).wantOK(t)
	d.upload(t, filePart("y", "text/plain", strings.Repeat("y", 1000))).wantOK(t)
}

func TestRow26ForeignFilesAreUnknown(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	id := d.some(t, 1)[0]
	bob := []string{"Authorization", "Bearer " + bobKey}
	for _, req := range []struct{ method, path string }{{"GET", ""}, {"GET", "/content"}, {"DELETE", ""}} {
		d.do(t, req.method, "/v1/files/"+id+req.path, nil, bob...).wantError(t, 404, "not_found_error", "")
	}
	for _, query := range []string{"", "?ids[]=" + id, "?page=page_zzzzzzzzzzzzzzzzzzzzzz"} {
		if a := d.do(t, "GET", "/v1/files"+query, nil, bob...).wantOK(t); len(a.ids()) != 0 {
			t.Fatalf("%s", a.body)
		}
	}
	d.do(t, "GET", "/v1/files/"+id, nil).wantOK(t)
}

// Each code of the core must have a status; without one it would be a 500 by accident.
func TestEveryCodeHasAStatus(t *testing.T) {
	for code := range api.PlainStatus {
		if dialect.Status[code] == 0 {
			t.Errorf("no status for %s", code)
		}
	}
}

func FuzzParseDisposition(f *testing.F) {
	for _, s := range []string{`form-data; name="file"; filename="a.csv"`, `form-data; name="file"; filename="a\"b\\c.csv"`, `form-data; name=file`,
		`form-data; name="file"; filename="a%22%0d%0Ab"`, `form-data; name="file"; filename*=UTF-8''%e2%82%ac`, `form-data; name="file"; filename="`,
		`form-data;;; ; name = "file" ;`, `form-data; filename="\`, "form-data; name=\"\x00\xff\"", `attachment`, ``, `form-data; filename="../../x"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		params, err := parseDisposition(header)
		if err != nil {
			if proto.CodeOf(err) != proto.InvalidArgument {
				t.Fatalf("%v", err)
			}
			return
		}
		name, err := files.CleanName(params["filename"], "text/plain")
		if err != nil {
			return
		}
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "<>:\"|?*\\/\x00\n\r\x1b") {
			t.Fatalf("%q became the name %q", header, name)
		}
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name) // as Go writes it
		again, err := parseDisposition(`form-data; name="file"; filename="` + quoted + `"`)
		if err != nil || again["filename"] != formUnescape.Replace(name) {
			t.Fatalf("%q does not survive a round trip: %q, %v", name, again["filename"], err)
		}
	})
}

func FuzzParsePage(f *testing.F) {
	for _, s := range []string{"page_0000000000000000000000", "page_", "", "file_0000000000000000000000", "page_../../../../../../../../", "page_000000000000000000000\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, page string) {
		id, err := parsePage(page)
		if (err == nil) != proto.ValidID(proto.FilePrefix, id) {
			t.Fatalf("%q became %q, %v", page, id, err)
		}
		if err == nil && *nextPage(files.Page{Files: []proto.StoredFile{{ID: id}}, More: true}, files.Query{}) != page {
			t.Fatalf("%q does not survive a round trip", page)
		}
	})
}

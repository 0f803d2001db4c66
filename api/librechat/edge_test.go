package librechat_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/api"
	"berth/api/librechat"
	"berth/proto"
	"berth/session"
	"berth/state/audit"
	"berth/test/logtest"
	"berth/test/sessiontest"
)

// A site is the edge over the real core. Its containers are the real guest without isolation.
type site struct {
	*sessiontest.Stack
	server *httptest.Server
	log    *logtest.Buffer
	audit  string // directory of the audit log
}

func newSite(t *testing.T) *site {
	t.Helper()
	var log *audit.Log
	st := &site{log: &logtest.Buffer{}, audit: t.TempDir(), Stack: sessiontest.New(t, session.Config{Audit: func(
		e proto.AuditEntry) {
		log.Append(e)
	}})}
	var err error
	if log, err = audit.Open(audit.Config{Dir: st.audit, Ledger: st.Ledger}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	edge := librechat.New(librechat.Config{Sessions: st.Sessions, Files: st.Files, Bridge: st.Bridge,
		MaxFileBytes: st.Files.MaxFileBytes()})
	t.Cleanup(func() { _ = edge.Close() })
	server, err := api.New(api.Config{Auth: st.Keys, Audit: log, Edges: []api.Edge{edge.Edge()},
		Log: slog.New(slog.NewTextHandler(st.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	st.server = httptest.NewServer(server)
	t.Cleanup(st.server.Close)
	return st
}

// A client has an API key, which it sends in the path.
type client struct {
	*site
	key string
}

func (st *site) client(t *testing.T, owner string) client {
	t.Helper()
	k, err := st.Keys.Create(proto.Caller{Owner: "admin"}, proto.CreateKey{Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	return client{st, k.Secret}
}

// An answered is what a request got.
type answered struct {
	status int
	header http.Header
	body   string
}

// send sends a request with a body. Headers are pairs of name and value.
func (c client) send(t *testing.T, method, path, body string, headers ...string) answered {
	t.Helper()
	req, err := http.NewRequest(method, c.server.URL+"/librechat/"+c.key+"/v1"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{res.StatusCode, res.Header, string(data)}
}

// want checks the status of an answer and decodes its body.
func want[T any](t *testing.T, a answered, status int) (v T) {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	return v
}

// A ref names a stored file.
type ref struct {
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Storage   string          `json:"storage_session_id,omitempty"`
	SessionID string          `json:"session_id,omitempty"`
	Inherited bool            `json:"inherited,omitempty"`
	From      json.RawMessage `json:"modified_from,omitempty"`
}

// A ran is the answer to a run.
type ran struct {
	SessionID      string `json:"session_id"`
	Stdout, Stderr string
	Files          []ref
	Deleted        []string `json:"deleted_files"`
	Code           *int
	Signal         *string
	Status         string
	Message        *string
	RuntimeSession string `json:"runtime_session_id"`
	RuntimeStatus  string `json:"runtime_status"`

	Token string `json:"continuation_token"`
	Calls []struct {
		ID, Name string
		Input    json.RawMessage
	} `json:"tool_calls"`
	Error string
}

// run runs code that has to run.
func (c client) run(t *testing.T, lang, code string, more ...any) ran {
	t.Helper()
	return want[ran](t, c.send(t, "POST", "/exec", request(t, lang, code, more...)), http.StatusOK)
}

// request is the body of a request to run code, with more fields as pairs of name and value.
func request(t *testing.T, lang, code string, more ...any) string {
	t.Helper()
	m := map[string]any{"lang": lang, "code": code}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// named returns the file of that name.
func (r ran) named(t *testing.T, name string) ref {
	t.Helper()
	for _, f := range r.Files {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("there is no %s in %+v", name, r)
	return ref{}
}

// A failure is the body of an error.
type failure struct {
	Error, Code, Message string
	RequestID            string `json:"request_id"`
}

// An upload is the answer to one.
type upload struct {
	Message           string
	Storage           string `json:"storage_session_id"`
	SessionID         string `json:"session_id"`
	Succeeded, Failed int
	Files             []struct{ Status, Filename, FileID, Error string }
}

// upload sends files, pairs of name and content, in a form whose fields say who they are for.
func (c client) upload(t *testing.T, path string, pairs ...string) answered {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	_ = w.WriteField("kind", "user")
	_ = w.WriteField("id", "anyone")
	for i := 0; i < len(pairs); i += 2 {
		h := textproto.MIMEHeader{"Content-Disposition": {`form-data; name="file"; filename="` + pairs[i] + `"`}}
		part, err := w.CreatePart(h)
		if err == nil {
			_, err = io.WriteString(part, pairs[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return c.send(t, "POST", path, b.String(), "Content-Type", w.FormDataContentType())
}

func TestRuns(t *testing.T) {
	c := newSite(t).client(t, "ann")
	shared := []any{"runtime_session_hint", "these runs"} // so that they need one container
	for _, r := range []struct {
		name, lang, code, out, err string
		status                     int
		more                       []any
	}{
		{name: "python", lang: "py", code: "import os, sys; print(os.getcwd(), sys.argv[1:])",
			out: "/mnt/data ['a b']\n", more: []any{"args", []string{"a b"}}},
		{name: "bash", lang: "bash", code: "echo $1 >&2; exit 3", err: "x\n", status: 3, more: []any{"args",
			[]string{"x"}}},
		{name: "script", lang: "js", code: "const p = require('path'); console.log(p.basename('/a/b'), process.cwd())",
			out: "b /mnt/data\n"},
		{name: "module", lang: "javascript", code: "import { basename } from 'path'; await null; " +
			"console.log(basename('/a/b'), typeof require)", out: "b function\n"},
		{name: "c++", lang: "cpp", code: "#include <cstdio>\nint main(int n, char **v) { std::puts(v[1]); return 4; }",
			out: "x\n", status: 4, more: []any{"args", []string{"x"}}},
		// clients send their settings along, of which some are no business of ours
		{name: "unknown fields", lang: "py", code: "print(1)", out: "1\n", more: []any{"user_id", "u", "apiKey", "k",
			"entity_id", nil}},
	} {
		t.Run(r.name, func(t *testing.T) {
			got := c.run(t, r.lang, r.code, append(r.more, shared...)...)
			if got.Stdout != r.out || got.Stderr != r.err || got.Code == nil || *got.Code != r.status ||
				len(got.SessionID) != 21 || len(got.Files) != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
	t.Run("timeout", func(t *testing.T) {
		got := c.run(t, "bash", "sleep 1000", append(shared, "timeout", 300)...)
		if got.Message == nil || *got.Message != "Time limit exceeded" || got.Status != "TO" ||
			!strings.Contains(got.Stderr, "Time limit exceeded") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("nothing stays", func(t *testing.T) {
		c := c.client(t, "carl")
		if got := c.run(t, "bash", "ls -A"); got.Stdout != ".berth-main.sh\n" || got.RuntimeSession != "" {
			t.Errorf("%+v", got)
		}
		if list, _, err := c.Sessions.List("carl", session.Filter{}); err != nil || len(list) != 0 {
			t.Errorf("containers: %v, %v", list, err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		for _, r := range []struct {
			body, code, says string
			status           int
		}{
			{request(t, "cobol", "x"), "invalid_argument", "py, js, ts", 400},
			{request(t, "py", " "), "invalid_argument", "code", 400},
			{request(t, "py", strings.Repeat("#", proto.MaxCode+1)), "too_large", "limit", 413},
			{request(t, "py", "1", "timeout", 1e9), "invalid_argument", "timeout", 400},
			{request(t, "py", "1", "args", 5), "invalid_argument", "args", 400},
			{`{"lang": `, "invalid_argument", "JSON", 400},
			{request(t, "f90", "end", shared...), "unsupported", "image base cannot run f90: it has no gfortran", 422},
			{request(t, "r", "1", shared...), "unsupported", "such as full", 422},
			{request(t, "py", strings.Repeat("#", 9<<20)), "too_large", "8388608", 413},
		} {
			if got := want[failure](t, c.send(t, "POST", "/exec", r.body), r.status); got.Code != r.code ||
				!strings.Contains(got.Error, r.says) || got.RequestID == "" {
				t.Errorf("%.60s: %+v", r.body, got)
			}
		}
	})
}

// TestFilesOfSessions follows files from an upload and a run to the next run, to lists, downloads and their end.
func TestFilesOfSessions(t *testing.T) {
	st := newSite(t)
	c, bob := st.client(t, "ann"), st.client(t, "bob")
	up := want[upload](t, c.upload(t, "/upload", "data/in.csv", "a,b\n", "same.txt", "same", "gone.txt", "gone"), 200)
	if up.Message != "success" || up.Storage != up.SessionID || len(up.Files) != 3 ||
		up.Files[0].Filename != "data/in.csv" {
		t.Fatalf("%+v", up)
	}
	var refs []ref
	for _, f := range up.Files {
		refs = append(refs, ref{ID: f.FileID, Name: f.Filename, Storage: up.Storage})
	}
	got := c.run(t, "py", `
import os
open("out.txt", "w").write(open("data/in.csv").read() * 2)
open("data/in.csv", "a").write("c,d\n")
os.remove("gone.txt")
os.makedirs("deep/er"); open("deep/er/x.bin", "wb").write(bytes(range(256)))
os.symlink("/etc/passwd", "link"); os.mkfifo("pipe")
`, "files", refs)
	if *got.Code != 0 || len(got.Files) != 4 || len(got.Deleted) != 1 || got.Deleted[0] != "gone.txt" {
		t.Fatalf("%+v", got)
	}
	if f := got.named(t, "same.txt"); !f.Inherited || f.ID != refs[1].ID || f.Storage != up.Storage {
		t.Errorf("same.txt: %+v", f)
	}
	if f := got.named(t, "data/in.csv"); f.Inherited || f.Storage != got.SessionID || !strings.Contains(string(f.From),
		refs[0].ID) {
		t.Errorf("in.csv: %+v", f)
	}
	out := got.named(t, "out.txt")
	path := "/download/" + got.SessionID + "/" + out.ID
	if a := c.send(t, "GET", path, ""); a.status != 200 || a.body != "a,b\na,b\n" ||
		!strings.Contains(a.header.Get("Content-Disposition"), "out.txt") {
		t.Errorf("%+v", a)
	}
	t.Run("older clients", func(t *testing.T) {
		next := c.run(t, "bash", "cat out.txt", "files", []ref{{ID: out.ID, Name: "out.txt", SessionID: got.SessionID}})
		if next.Stdout != "a,b\na,b\n" {
			t.Errorf("%+v", next)
		}
	})
	t.Run("lists", func(t *testing.T) {
		names := want[[]string](t, c.send(t, "GET", "/files/"+got.SessionID, ""), 200)
		if len(names) != 3 || !strings.HasPrefix(names[0], got.SessionID+"/") {
			t.Errorf("%v", names)
		}
		all := want[[]struct {
			Name, ID string
			Size     int64
			Metadata map[string]string
			Storage  string `json:"storage_session_id"`
		}](t, c.send(t, "GET", "/files/"+got.SessionID+"?detail=full", ""), 200)
		found := false
		for _, f := range all {
			if f.Metadata["original-filename"] == "deep/er/x.bin" {
				found = f.Size == 256 && f.Storage == got.SessionID && strings.Contains(f.Name, f.ID+".bin")
			}
		}
		if !found {
			t.Errorf("%+v", all)
		}
		norm := want[[]ref](t, c.send(t, "GET", "/files/"+got.SessionID+"?detail=normalized", ""), 200)
		if len(norm) != 3 || norm[0].Storage != got.SessionID || norm[0].Name == "" {
			t.Errorf("%+v", norm)
		}
		if a := c.send(t, "GET", "/files/"+got.SessionID+"?detail=summary", ""); !strings.Contains(a.body, "etag") {
			t.Errorf("%+v", a)
		}
		if o := want[struct {
			OriginalFilename string
			LastModified     proto.Time
		}](t, c.send(t, "GET", "/sessions/"+up.Storage+"/objects/"+refs[0].ID, ""), 200); o.OriginalFilename !=
			"data/in.csv" || o.LastModified.IsZero() {
			t.Errorf("%+v", o)
		}
	})
	t.Run("another owner", func(t *testing.T) {
		for _, p := range []string{path, "/sessions/" + got.SessionID + "/objects/" + out.ID} {
			want[failure](t, bob.send(t, "GET", p, ""), 404)
		}
		want[failure](t, bob.send(t, "DELETE", "/files/"+got.SessionID+"/"+out.ID, ""), 404)
		if names := want[[]string](t, bob.send(t, "GET", "/files/"+got.SessionID, ""), 200); len(names) != 0 {
			t.Errorf("bob sees %v", names)
		}
		want[failure](t, bob.send(t, "POST", "/exec", request(t, "bash", "cat *", "files", refs)), 404)
		// hers, as if it were of a session of his
		his := want[upload](t, bob.upload(t, "/upload", "his.txt", "his"), 200)
		want[failure](t, bob.send(t, "GET", "/download/"+his.Storage+"/"+out.ID, ""), 404)
		want[failure](t, c.send(t, "GET", "/download/"+up.Storage+"/"+out.ID, ""), 404)
	})
	t.Run("names that lead elsewhere", func(t *testing.T) {
		for _, name := range []string{"../x", "/etc/x", "a/../../x", "a//b", "..", "/mnt/data/../x", ".berth-main.py"} {
			f := refs[0]
			f.Name = name
			body := request(t, "py", "1", "files", []ref{f})
			if got := want[failure](t, c.send(t, "POST", "/exec", body), 400); !strings.Contains(got.Error,
				"files.0.name") {
				t.Errorf("%s: %+v", name, got)
			}
			want[failure](t, c.upload(t, "/upload", name, "x"), 400)
		}
	})
	t.Run("delete", func(t *testing.T) {
		if a := c.send(t, "DELETE", "/files/"+got.SessionID+"/"+out.ID, ""); a.status != 200 {
			t.Errorf("%+v", a)
		}
		want[failure](t, c.send(t, "GET", path, ""), 404)
	})
	t.Run("batch", func(t *testing.T) {
		b := want[upload](t, c.upload(t, "/upload/batch", "good.txt", "x", "../bad.txt", "y"), 200)
		if b.Message != "partial_success" || b.Succeeded != 1 || b.Failed != 1 || b.Files[0].Status != "success" ||
			b.Files[1].Error == "" {
			t.Errorf("%+v", b)
		}
		if b := want[upload](t, c.upload(t, "/upload/batch", "..", "y"), 400); b.Message != "error" {
			t.Errorf("%+v", b)
		}
		want[failure](t, c.upload(t, "/upload"), 400)
		want[failure](t, c.send(t, "POST", "/upload", "{}"), 400)
	})
}

// TestHint checks that runs with one hint of one user share a container, which comes back after a stop.
func TestHint(t *testing.T) {
	c := newSite(t).client(t, "ann")
	first := c.run(t, "bash", "echo kept > kept.txt", "runtime_session_hint", "talk", "user_id", "u1")
	if first.RuntimeStatus != "new" || first.RuntimeSession != first.SessionID || len(first.Files) != 1 {
		t.Fatalf("%+v", first)
	}
	list, _, err := c.Sessions.List("ann", session.Filter{})
	if err != nil || len(list) != 1 {
		t.Fatalf("%v %v", list, err)
	}
	s, err := c.Sessions.Get("ann", list[0].ID)
	if err != nil || s.Stop(t.Context()) != nil {
		t.Fatal(err)
	}
	again := c.run(t, "bash", "ls -A; cat kept.txt", "runtime_session_hint", "talk", "user_id", "u1")
	if again.RuntimeStatus != "reused" || again.RuntimeSession != first.RuntimeSession || len(again.Files) != 0 ||
		again.Stdout != ".berth-main.sh\nkept.txt\nkept\n" {
		t.Errorf("%+v", again)
	}
	if other := c.run(t, "bash", "ls", "runtime_session_hint", "talk", "user_id", "u2"); other.Stdout != "" ||
		other.RuntimeSession == first.RuntimeSession {
		t.Errorf("another user: %+v", other)
	}
}

// TestKeyIsNowhere checks that the key in the path is in no log, audit log or answer.
func TestKeyIsNowhere(t *testing.T) {
	st := newSite(t)
	c := st.client(t, "ann")
	up := want[upload](t, c.upload(t, "/upload", "a.txt", "x"), 200)
	answers := []answered{c.send(t, "POST", "/exec", request(t, "bash", "env; cat /proc/*/cmdline", "files",
		[]ref{{ID: up.Files[0].FileID, Storage: up.Storage}})),
		c.send(t, "GET", "/download/"+up.Storage+"/nothing", ""), c.send(t, "PUT", "/exec", ""),
		c.send(t, "GET", "/nowhere", ""), c.send(t, "DELETE", "/files/"+up.Storage+"/"+up.Files[0].FileID, "")}
	entries, err := os.ReadFile(filepath.Join(st.audit, "audit.log"))
	if err != nil || !strings.Contains(string(entries), "file.upload") ||
		!strings.Contains(string(entries), "code.run") {
		t.Errorf("the audit log: %s %v", entries, err)
	}
	if !strings.Contains(st.log.String(), "POST /librechat/v1/exec") {
		t.Errorf("the log: %s", st.log)
	}
	text := st.log.String() + string(entries)
	for _, a := range answers {
		text += a.body
	}
	if strings.Contains(text, c.key) {
		t.Errorf("the key is in %s", text)
	}
	bad := c
	bad.key = "berth_no-such-key"
	if got := want[failure](t, bad.send(t, "GET", "/files/x", ""), 401); strings.Contains(got.Error, bad.key) {
		t.Errorf("%+v", got)
	}
	if strings.Contains(st.log.String(), bad.key) {
		t.Errorf("the log has a wrong key: %s", st.log)
	}
}

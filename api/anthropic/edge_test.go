package anthropic

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"berth/api"
	"berth/files"
)

func TestRows1to5Transport(t *testing.T) {
	d := newDesk(t, files.Config{}, false, func(e *api.Edge) {
		e.Routes = append(e.Routes, api.Route{Method: "GET", Pattern: "/v1/panic", Where: api.None,
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
	one := "/v1/files/" + d.produce(t, "made").ID
	for _, path := range []string{one, one + "/content"} { // plain HTTP clients send no version
		d.do(t, "GET", path, nil, "anthropic-version", "").wantOK(t)
		d.do(t, "HEAD", path, nil, "anthropic-version", "").wantOK(t)
		d.do(t, "GET", path, nil, "anthropic-version", "2024-01-01").wantError(t, 400, "invalid_request_error", "")
	}
	d.do(t, "DELETE", one, nil, "anthropic-version", "").wantError(t, 400, "invalid_request_error", "")
	get("anthropic-version", "2024-01-01").wantError(t, 400, "invalid_request_error", "")
	get("Content-Encoding", "gzip").wantError(t, 400, "invalid_request_error", "request_body_encoding_unsupported")
	get("anthropic-beta", "code-execution-2025-08-25, nobody-knows-1999-01-01").wantOK(t)
	d.do(t, "GET", "/v1/files?beta=true&color=blue", nil).wantOK(t)
	d.do(t, "GET", "/v1/nothing", nil).wantError(t, 404, "not_found_error", "")
	d.do(t, "GET", "/v1/files/x/y/z", nil).wantError(t, 404, "not_found_error", "")
	d.do(t, "PUT", "/v1/files", nil).wantError(t, 405, "invalid_request_error", "")
	d.do(t, "GET", "/v1/panic", nil).wantError(t, 500, "api_error", "")
}

func TestRows21and22Download(t *testing.T) {
	content := strings.Repeat("\x00\xffbinary", 100_000)
	for _, strict := range []bool{false, true} {
		d := newDesk(t, files.Config{}, strict)
		up := d.upload(t, filePart("naïve.bin", "application/x-thing", content)).wantOK(t)
		a := d.do(t, "GET", "/v1/files/"+up.str("id")+"/content", nil)
		if strict {
			a.wantError(t, 400, "invalid_request_error", "file_not_downloadable")
		} else if string(a.body) != content || a.Header.Get("Content-Type") != "application/x-thing" ||
			a.ContentLength != int64(len(content)) ||
			a.Header.Get("Content-Disposition") != "attachment; filename*=utf-8''na%C3%AFve.bin" {
			t.Fatalf("%d bytes, %v", len(a.body), a.Header)
		}
		made := d.produce(t, content)
		b := d.do(t, "GET", "/v1/files/"+made.ID+"/content", nil).wantOK(t)
		if string(b.body) != content || b.Header.Get("Content-Type") != "image/png" ||
			b.Header.Get("Content-Disposition") != "attachment; filename=chart.png" {
			t.Fatalf("%d bytes, %v", len(b.body), b.Header)
		}
		// A download has no directories.
		nested, err := d.files.Put(t.Context(), files.Upload{Owner: "ann", Filename: "charts/a b.png", Tree: true,
			Downloadable: true}, strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		c := d.do(t, "GET", "/v1/files/"+nested.ID+"/content", nil).wantOK(t)
		if c.Header.Get("Content-Disposition") != `attachment; filename="a b.png"` {
			t.Errorf("%v", c.Header)
		}
		if name := d.do(t, "GET", "/v1/files/"+nested.ID, nil).wantOK(t).str("filename"); name != "charts/a b.png" {
			t.Errorf("it is called %q", name)
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
	for _, strange := range []string{"x", "file_", "..%2f..%2fetc%2fpasswd", "file_%00", "%1b%5b2J",
		strings.Repeat("a", 5000)} {
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
	d.upload(t, filePart("y", "text/plain", strings.Repeat("y", 101))).wantError(t, 400, "invalid_request_error",
		"storage_quota_exceeded")
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

package anthropic

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/files"
)

func TestRow9MetadataHasExactKeys(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	a := d.upload(t, filePart("data.csv", "text/csv", "a,b\n1,2\n")).wantOK(t)
	if got := keysOf(a.json); got != "created_at downloadable expires_at filename id mime_type size_bytes type" {
		t.Fatalf("keys: %s", got)
	}
	if a.json["downloadable"] != false || a.json["expires_at"] != nil || a.json["size_bytes"] != 8.0 ||
		a.str("type") != "file" || a.str("mime_type") != "text/csv" {
		t.Fatalf("%s", a.body)
	}
	if !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$`).MatchString(a.str("created_at")) ||
		!regexp.MustCompile(`^file_[0-9A-Za-z]+$`).MatchString(a.str("id")) {
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
	for _, parts := range [][]part{{file, fieldPart("expires_in_seconds", "3600")},
		{fieldPart("expires_in_seconds", "3600"), file}} {
		a := d.upload(t, parts...).wantOK(t)
		created, _ := time.Parse(time.RFC3339, a.str("created_at"))
		expires, err := time.Parse(time.RFC3339, a.str("expires_at"))
		if err != nil || expires.Sub(created) != time.Hour {
			t.Fatalf("%s", a.body)
		}
	}
	d.upload(t, fieldPart("expires_in_seconds", "7776000"), file).wantOK(t)
	before := d.do(t, "GET", "/v1/files", nil).ids()
	for _, bad := range []string{"3599", "7776001", "0", "-3600", "", "1e4", "3600.5", "3600 ", "99999999999999999999",
		strings.Repeat("0", 1000) + "3600"} {
		d.upload(t, fieldPart("expires_in_seconds", bad), file).wantError(t, 400, "invalid_request_error", "")
		d.upload(t, file, fieldPart("expires_in_seconds", bad)).wantError(t, 400, "invalid_request_error", "")
	}
	d.upload(t, file, fieldPart("expires_in_seconds", "3600"), fieldPart("expires_in_seconds", "3600")).wantError(
		t, 400, "invalid_request_error", "")
	if after := d.do(t, "GET", "/v1/files", nil).ids(); len(after) != len(before) || d.onDisk(t) != 1 {
		t.Fatalf("refused uploads left %d files, %d on disk", len(after)-len(before), d.onDisk(t))
	}
}

func TestRow13BrokenBodiesLeaveNothing(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	kind, whole := formOf(filePart("x.txt", "text/plain", strings.Repeat("content ", 10_000)),
		fieldPart("other", "ignored"))
	d.do(t, "POST", "/v1/files", strings.NewReader("a=b"), "Content-Type",
		"application/x-www-form-urlencoded").wantError(t, 400, "invalid_request_error", "")
	d.do(t, "POST", "/v1/files", bytes.NewReader(whole)).wantError(t, 400, "invalid_request_error", "")
	d.do(t, "POST", "/v1/files", bytes.NewReader(whole), "Content-Type", "multipart/form-data").wantError(
		t, 400, "invalid_request_error", "")
	d.do(t, "POST", "/v1/files", bytes.NewReader(whole), "Content-Type",
		"multipart/form-data; boundary=wrong").wantError(t, 400, "invalid_request_error", "")
	d.do(t, "POST", "/v1/files", nil, "Content-Type", kind).wantError(t, 400, "invalid_request_error", "")
	d.upload(t).wantError(t, 400, "invalid_request_error", "")
	d.upload(t, fieldPart("expires_in_seconds", "3600")).wantError(t, 400, "invalid_request_error", "")
	file := filePart("x", "text/plain", "x")
	d.upload(t, file, file).wantError(t, 400, "invalid_request_error", "")
	d.upload(t, slices.Repeat([]part{fieldPart("f", "x")}, 100)...).wantError(t, 400, "invalid_request_error", "")
	for i := 1; i < 16; i++ { // a sender that stops early and says that it was all
		d.do(t, "POST", "/v1/files", bytes.NewReader(whole[:len(whole)*i/16]), "Content-Type", kind).wantError(
			t, 400, "invalid_request_error", "")
	}
	d.do(t, "POST", "/v1/files", bytes.NewReader(whole[:len(whole)-4]), "Content-Type", kind).wantError(
		t, 400, "invalid_request_error", "")
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
	feed.CloseWithError(context.Canceled) // the transport may be waiting for more
	if err := <-done; err == nil {
		t.Fatal("the request did not fail")
	}
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
	// chunked
	d.do(t, "POST", "/v1/files", struct{ io.Reader }{bytes.NewReader(body)}, "Content-Type", kind).wantError(
		t, 413, "request_too_large", "")
	if d.onDisk(t) != 1 {
		t.Fatal("a refused upload is on disk")
	}
}

func TestRow15DetectsTypes(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	png := "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
	for _, tt := range []struct{ name, content, want string }{
		{"chart", png, "image/png"}, {"a.csv", "one column\n1\n", "text/csv"}, {"b.csv", "a,b\n1,2\n3,4\n", "text/csv"},
		{"notes", "plain words", "text/plain"},
		{"x.json", `{"a":1}`, "application/json"}, {"x.py", "print(1)\n", "text/x-python"},
		{"x.pdf", "%PDF-1.7\n", "application/pdf"}, {"lies.csv", png, "image/png"},
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
	d.do(t, "POST", "/v1/files", bytes.NewReader(body), "Content-Type", kind, "anthropic-beta",
		"files-api-2025-04-14").wantError(t, 400, "invalid_request_error", "")
	for _, bad := range []string{"nonsense", "text/pl\x01ain", "text/" + strings.Repeat("x", 300), "texté/plain"} {
		d.upload(t, filePart("x", bad, "x")).wantError(t, 400, "invalid_request_error", "")
	}
}

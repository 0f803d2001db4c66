package api_test

import (
	"mime"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"berth/api"
	"berth/files/filename"
	"berth/proto"
)

// A stored name comes back out of the header of its download as it is, and adds nothing to it.
func FuzzContentHeaders(f *testing.F) {
	for _, s := range []string{"a.txt", "caf\u00e9", "\u202Egnp.exe", "a;b=c", "a'b", "100%25", " ", "-", "a,b",
		"=?utf-8?q?x?="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		name, err := filename.Clean(sent, "")
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		if err := api.SendFile(w, httptest.NewRequest(http.MethodGet, "/", nil),
			proto.StoredFile{Filename: name, MIMEType: "text/plain"}, strings.NewReader("")); err != nil {
			t.Fatal(err)
		}
		value := w.Header().Get("Content-Disposition")
		kind, params, err := mime.ParseMediaType(value)
		if err != nil || kind != "attachment" || params["filename"] != name || len(params) != 1 ||
			strings.ContainsAny(value, "\r\n") {
			t.Errorf("%q is sent as %q: %v %v", name, value, params, err)
		}
	})
}

package anthropic

import (
	"mime"
	"net/http"
	"strings"
	"testing"

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
		h := http.Header{}
		setContentHeaders(h, proto.StoredFile{Filename: name, MIMEType: "text/plain"})
		value := h.Get("Content-Disposition")
		kind, params, err := mime.ParseMediaType(value)
		if err != nil || kind != "attachment" || params["filename"] != name || len(params) != 1 ||
			strings.ContainsAny(value, "\r\n") {
			t.Errorf("%q is sent as %q: %v %v", name, value, params, err)
		}
	})
}

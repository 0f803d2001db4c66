package upstream

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"berth/proto"
)

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Some proxies compress answers although the request forbids it.
func TestAnswersThatArePacked(t *testing.T) {
	const answer, refusal = `{"type":"message"}`,
		`{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`
	packed := zipped(t, answer)
	for _, c := range []struct {
		status int
		sent   []byte
		want   string
		code   proto.Code
	}{
		{200, packed, answer, ""},
		{429, zipped(t, refusal), refusal, ""},
		{200, packed[:len(packed)-5], "", proto.Unavailable},
		{200, []byte("no gzip at all"), "", proto.Unavailable},
		{200, nil, "", ""},
	} {
		model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(c.status)
			_, _ = w.Write(c.sent)
		}))
		set, err := Open([]Config{{URL: model.URL}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		u, err := set.For("m")
		if err != nil {
			t.Fatal(err)
		}
		res, err := u.Do(t.Context(), Request{Path: PathMessages, Body: []byte(`{"model":"m"}`)})
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if c.code != "" && proto.CodeOf(err) != c.code || c.code == "" && (err != nil || string(text) != c.want) ||
			res.Header.Get("Content-Encoding") != "" {
			t.Errorf("%d %q: %q, %v, %v", c.status, c.sent, text, err, res.Header)
		}
		set.Close()
		model.Close()
	}
}

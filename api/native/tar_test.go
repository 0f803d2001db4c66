package native

import (
	"errors"
	"io"
	"strings"
	"testing"

	"berth/proto"
	"berth/test/sessiontest"
)

// TestEndOfArchive checks that trailers name what a complete archive lacks, and that a broken archive has neither
// trailers nor an end.
func TestEndOfArchive(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	end := func(path string) string {
		t.Helper()
		res, body := s.do(t, "GET", at+path, nil)
		if res.StatusCode != 200 || len(res.Trailer) != 2 {
			t.Errorf("%s: %d %.200s, trailers %v", path, res.StatusCode, body, res.Trailer)
		}
		return res.Trailer.Get(proto.UnreadTrailer) + ": " + res.Trailer.Get(proto.UnreadNamesTrailer)
	}
	s.run(t, at, "mkdir -p /workspace/d/shut; cd /workspace/d; echo x >a; echo x >z")
	if got := end("/fs/tar?path=/workspace/d"); got != "0: " {
		t.Errorf("a whole archive ends with %q", got)
	}
	must[proto.ExecResult](t, s, "POST", at+"/exec", proto.Cmd{User: "root", Command: `cd /workspace/d; ` +
		`for f in 日本.txt 'a b, c' $'n\n.key'; do echo x >"$f"; chmod 600 "$f"; done; chmod 700 shut; chown root shut`})
	if got := end("/fs/tar?path=/workspace/d"); got != "4: a%20b%2C%20c, n%0A.key, shut, %E6%97%A5%E6%9C%AC.txt" {
		t.Errorf("an archive that lacks four files ends with %q", got)
	}
	if got := end("/fs/tar?path=/workspace/d&as=root"); got != "0: " {
		t.Errorf("root's archive ends with %q", got)
	}
	if res, _ := s.do(t, "GET", at+"/fs/tar?path=/none", nil); res.StatusCode != 404 || len(res.Trailer) != 0 {
		t.Errorf("no directory: %d, trailers %v", res.StatusCode, res.Trailer)
	}

	s.run(t, at, "truncate -s 200M /workspace/d/big")
	res, err := s.Client().Do(s.request(t, t.Context(), "GET", at+"/fs/tar?path=/workspace/d", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	s.Runtime.(*sessiontest.Runtime).Kill(strings.TrimPrefix(at, "/v1/containers/"))
	_, err = io.Copy(io.Discard, res.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || res.Trailer.Get(proto.UnreadTrailer) != "" {
		t.Errorf("a broken archive ends with %v, trailers %v", err, res.Trailer)
	}
}

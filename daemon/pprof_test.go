package daemon

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"berth/proto"
)

// TestProfiles checks that profiles are served only on loopback, and end with the daemon.
func TestProfiles(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, address := range []string{"0.0.0.0:0", "[::]:0", ":0", "nonsense"} {
		if p, err := profile(address, log); proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("%s: %v, %v", address, p, err)
		}
	}
	p, err := profile("127.0.0.1:0", log)
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + p.listener.Addr().String() + "/debug/pprof/"
	for _, name := range []string{"goroutine", "heap", "block", "mutex"} {
		res, err := http.Get(url + name + "?debug=1")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || len(text) == 0 {
			t.Errorf("%s: %d, %v", name, res.StatusCode, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := http.Get(url); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("after the end: %v", err)
	}
}

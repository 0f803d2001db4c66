package daemon_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/test/daemontest"
	"berth/test/scripted"
)

// upstreams starts scripted upstreams. An unexpected request fails the test.
func upstreams(t *testing.T, scripts ...string) (urls []string) {
	t.Helper()
	for _, text := range scripts {
		s, err := scripted.Load(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		srv := scripted.New(s)
		web := httptest.NewServer(srv)
		t.Cleanup(func() {
			web.Close()
			if err := srv.Err(); err != nil || srv.Left() > 0 {
				t.Errorf("%d turns left, %v", srv.Left(), err)
			}
		})
		urls = append(urls, web.URL)
	}
	return urls
}

// message sends a request without the tool, with keys in both headers.
func message(t *testing.T, d *daemontest.Daemon, model, other string) (int, string) {
	t.Helper()
	r, err := http.NewRequest("POST", d.URL+"/v1/messages", strings.NewReader(`{"model":"`+model+
		`","max_tokens":9,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Anthropic-Version", "2023-06-01")
	r.Header.Set("X-Api-Key", d.Key)
	if other != "" {
		r.Header.Set("Authorization", "Bearer "+other)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// TestUpstreams runs a daemon with several upstreams. Each gets the models with its prefix and its own key. Neither
// an upstream nor the log gets a key of berth.
func TestUpstreams(t *testing.T) {
	say := func(key, text string) string {
		return `{"headers": {"x-api-key": ` + key + `}}, "answer": {"content": [{"type": "text", "text": "` + text +
			`"}]}}`
	}
	urls := upstreams(t,
		`{"turns": [{"expect": `+say(`"sk-of-a"`, "from a")+`]}`,
		`{"turns": [{"expect": {"path": "/v1/chat/completions", "model": "qwen", "headers": {"authorization": null, "x-api-key": null}}, "answer": {"content": [{"type": "text", "text": "from local"}]}}]}`,
		`{"turns": [{"expect": {"headers": {"authorization": "Bearer sk-the-callers", "x-api-key": null}}, "answer": {"content": [{"type": "text", "text": "from all"}]}}]}`)
	keyFile := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keyFile, []byte("# keys\na-=sk-of-a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := bare(t, "--upstream", "a-="+urls[0], "--upstream", "local/=openai+"+urls[1], "--upstream", urls[2],
		"--upstream-keys", keyFile)
	for _, c := range []struct{ model, other, want string }{{"a-1", "", "from a"}, {"local/qwen", "", "from local"},
		{"z", "sk-the-callers", "from all"}} {
		if status, text := message(t, d, c.model, c.other); status != 200 || !strings.Contains(text, `"`+c.want+`"`) {
			t.Errorf("%s: %d %s", c.model, status, text)
		}
	}
	if log := d.Log(); strings.Contains(log, "sk-of-a") || strings.Contains(log, "sk-the-callers") {
		t.Errorf("the log has a key:\n%s", log)
	}
}

// TestUpstreamKeysAreChecked checks that the daemon does not start with unsafe or invalid key files.
func TestUpstreamKeysAreChecked(t *testing.T) {
	keyFile := filepath.Join(t.TempDir(), "keys")
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{"readable": {"*=sk-secret", 0o644, "chmod 600"}, "of another": {"b-=sk-secret", 0o600,
		"line 1: write PREFIX=KEY"}} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(keyFile, []byte(c.text), c.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(keyFile, c.mode); err != nil {
				t.Fatal(err)
			}
			d := &daemontest.Daemon{Dir: t.TempDir(), Flags: []string{"--upstream", "http://127.0.0.1:1",
				"--upstream-keys", keyFile}}
			err := d.Start()
			if err == nil {
				d.Stop(syscall.SIGTERM)
			}
			if err == nil || !strings.Contains(err.Error()+d.Log(), c.want) ||
				strings.Contains(err.Error()+d.Log(), "secret") {
				t.Errorf("%v\n%s", err, d.Log())
			}
		})
	}
}

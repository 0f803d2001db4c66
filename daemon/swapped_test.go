package daemon_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"berth/code"
	"berth/proto"
	"berth/tools/toolstore"
)

// networkSecret is the secret that must not appear anywhere but at its host.
const networkSecret = "sk-live-0123456789abcdefghij"

// A bank is a host in an internet. It requires a key and records the keys that it received.
type bank struct {
	*internet
	mu   sync.Mutex
	keys []string
}

func newBank(t *testing.T) *bank {
	b := &bank{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Authorization")
		b.mu.Lock()
		b.keys = append(b.keys, key)
		b.mu.Unlock()
		if key != "Bearer "+networkSecret {
			w.WriteHeader(http.StatusUnauthorized)
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d bytes, key %s", len(body), key)
	})
	secure := httptest.NewTLSServer(handler)
	t.Cleanup(secure.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pemOf(secure.Certificate()), 0o600); err != nil {
		t.Fatal(err)
	}
	b.internet = newInternet(t, "--egress-ca", ca)
	b.secure = secure.Listener.Addr().String()
	b.secure = b.secure[strings.LastIndexByte(b.secure, ':')+1:]
	return b
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// shown returns the keys received since the last call.
func (b *bank) shown() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := b.keys
	b.keys = nil
	return keys
}

// request returns a request for a container with the secret, as JSON.
func (b *bank) request(class proto.RuntimeClass) string {
	return fmt.Sprintf(
		`{"runtime_class":%q,"limits":{"memory_bytes":536870912},"network":{"allow":["example.com:%s","web.test:%s"]},"network_secrets":{"BANK_KEY":{"value":%q,"hosts":["example.com:%s"]}}}`,
		class, b.secure, b.plain, networkSecret, b.secure)
}

// TestSecretsAtTheProxy checks that commands get a placeholder, and that the host gets the secret from any client
// program. The secret is in no file, log or answer.
func TestSecretsAtTheProxy(t *testing.T) {
	b := newBank(t)
	t.Run("clients", func(t *testing.T) { eachClass(t, b.testClients) })
	t.Run("restarts", b.testRestarts)
	t.Run("code", b.testRunCode)
	t.Run("tool", b.testTool)
	t.Run("refused", b.testRefused)
	t.Run("nowhere", b.testNowhere)
}

func (b *bank) testClients(t *testing.T, class proto.RuntimeClass) {
	c := call[proto.Container](t, b.server, 201, "POST", "/v1/containers", b.request(class))
	t.Cleanup(func() { _, _, _ = b.Do("DELETE", "/v1/containers/"+c.ID, nil) })
	if s := c.NetworkSecrets["BANK_KEY"]; s.Value != "" || len(s.Hosts) != 1 || s.Hosts[0] != "example.com:"+b.secure {
		t.Errorf("described as %+v", c.NetworkSecrets)
	}
	placeholder := strings.TrimSpace(bash(t, b.server, c.ID, `echo $BANK_KEY`).Result.Result.Stdout)
	if !regexp.MustCompile(`^berth-secret-[0-9A-Za-z]{22}$`).MatchString(placeholder) {
		t.Fatalf("commands have %q", placeholder)
	}
	b.shown()
	for script, want := range map[string]string{
		`curl -sS -H "Authorization: Bearer $BANK_KEY" https://example.com:SECURE/`:                                                                                                              "0 bytes",
		`curl -sS -H "Authorization: Bearer $BANK_KEY" --data-binary @/usr/bin/python3 https://example.com:SECURE/ | sed 's/^[0-9]*/many/'`:                                                      "many bytes",
		`curl -sS -x socks5h://127.0.0.1:3128 -H "Authorization: Bearer $BANK_KEY" https://example.com:SECURE/`:                                                                                  "0 bytes",
		`env -u CURL_CA_BUNDLE -u SSL_CERT_FILE curl -sS -H "Authorization: Bearer $BANK_KEY" https://example.com:SECURE/`:                                                                       "0 bytes",
		`python3 -c 'import os, requests; print(requests.get("https://example.com:SECURE/", headers={"Authorization": "Bearer " + os.environ["BANK_KEY"]}).text)'`:                               "0 bytes",
		`python3 -c 'import os, urllib.request as u; print(u.urlopen(u.Request("https://example.com:SECURE/", headers={"Authorization": "Bearer " + os.environ["BANK_KEY"]})).read().decode())'`: "0 bytes",
		`node -e 'const s = require("http").request({host: "127.0.0.1", port: 3128, method: "CONNECT", path: "example.com:SECURE", headers: {Host: "example.com:SECURE"}}); s.on("connect", (r, socket) => require("https").get({host: "example.com", port: SECURE, socket, agent: false, headers: {Authorization: "Bearer " + process.env.BANK_KEY, Host: "example.com:SECURE"}}, (r) => r.pipe(process.stdout))); s.end()'`: "0 bytes",
	} {
		b.says(t, c.ID, script, want+", key Bearer "+placeholder)
		if keys := b.shown(); len(keys) != 1 || keys[0] != "Bearer "+networkSecret {
			t.Errorf("%s: the host was shown %q", script, keys)
		}
	}
	// Another host gets the placeholder, and the proxy does not decrypt the tunnel to it.
	b.says(
		t, c.ID,
		`curl -sS -H "Host: web.test:PLAIN" "http://web.test:PLAIN/to?http://web.test:PLAIN/$BANK_KEY" -o /dev/null -w '%{redirect_url}'`, "http://web.test:PLAIN/"+placeholder)
	b.says(
		t, c.ID,
		`grep -c BEGIN /etc/ssl/berth-proxy.pem; ls -l /etc/ssl/berth-*.pem | cut -c1-10; grep -l PRIVATE /etc/ssl/berth-*`, "1\n-rw-r--r--\n-rw-r--r--")
}

// testRestarts checks the same placeholder in the next generation and under the next daemon.
func (b *bank) testRestarts(t *testing.T) {
	c := call[proto.Container](t, b.server, 201, "POST", "/v1/containers", b.request(proto.ClassRunc))
	t.Cleanup(func() { _, _, _ = b.Do("DELETE", "/v1/containers/"+c.ID, nil) })
	const ask = `curl -sS -o /dev/null -w "%{http_code} $BANK_KEY" -H "Authorization: Bearer $BANK_KEY" https://example.com:SECURE/`
	first := bash(t, b.server, c.ID, strings.ReplaceAll(ask, "SECURE", b.secure)).Result.Result.Stdout
	if !strings.HasPrefix(first, "200 ") {
		t.Fatal(first)
	}
	call[proto.Container](t, b.server, 200, "POST", "/v1/containers/"+c.ID+"/stop", "")
	b.says(t, c.ID, ask, first)
	b.Stop(syscall.SIGKILL)
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	b.says(t, c.ID, ask, first)
}

func (b *bank) testRunCode(t *testing.T) {
	req := fmt.Sprintf(
		`{"code":"import os, requests\nrequests.get('https://example.com:%s/', headers={'Authorization': 'Bearer ' + os.environ['K']}).status_code","network":{"allow":["example.com:%s"]},"network_secrets":{"K":{"value":%q,"hosts":["example.com:%s"]}}}`,
		b.secure, b.secure, networkSecret, b.secure)
	out := call[code.Outcome](t, b.server, 200, "POST", "/v1/run_code", req)
	if len(out.Results) != 1 || out.Results[0] != "200" {
		t.Errorf("%+v", out)
	}
}

// testTool checks that a stored tool gets placeholders for the variables bound to hosts.
func (b *bank) testTool(t *testing.T) {
	source := fmt.Sprintf("import os, requests\ndef run(input): return {'status': "+
		"requests.get('https://example.com:%s/', headers={'Authorization': 'Bearer ' + "+
		"os.environ['K']}).status_code, 'key': os.environ['K'], 'other': os.environ['OTHER']}", b.secure)
	cfg := toolstore.Configuration{Code: source, AllowNetwork: true, EnvVariables: map[string]string{"K": networkSecret,
		"OTHER": "x"}, EnvHosts: map[string][]string{"K": {"example.com:" + b.secure}}}
	store(t, b.server, toolstore.NewTool{Name: "ask_bank", Configuration: cfg})
	run := call[toolstore.Run](t, b.server, 200, "POST", "/v1/tools/ask_bank/run", "{}")
	if out := string(run.Output); !strings.Contains(out, `"status":200`) ||
		!strings.Contains(out, `"key":"berth-secret-`) || !strings.Contains(out, `"other":"x"`) {
		t.Errorf("%s %+v", out, run.Error)
	}
	c := call[proto.Container](t, b.server, 201, "POST", "/v1/containers", `{"network":"open"}`)
	call[any](t, b.server, 409, "POST", "/v1/tools/ask_bank/run", `{"container":"`+c.ID+`"}`)
	call[any](t, b.server, 200, "DELETE", "/v1/containers/"+c.ID, "")
	for name, change := range map[string]string{
		"no such variable": fmt.Sprintf(
			`{"configuration":{"type":"CodeRunner","runtime":"python","code":%q,"allow_network":true,"env_hosts":{"NOPE":["example.com"]}}}`, source),
		"no host": fmt.Sprintf(
			`{"configuration":{"type":"CodeRunner","runtime":"python","code":%q,"allow_network":true,"env_hosts":{"K":["https://example.com"]}}}`, source),
	} {
		if status, out, err := b.Do("PATCH", "/v1/tools/ask_bank", strings.NewReader(change)); err != nil ||
			status != 400 || !strings.Contains(string(out), "configuration.env_hosts") {
			t.Errorf("%s: %d %s %v", name, status, out, err)
		}
	}
}

func (b *bank) testRefused(t *testing.T) {
	for name, body := range map[string]string{
		"no network": fmt.Sprintf(`{"network_secrets":{"K":{"value":%q,"hosts":["example.com"]}}}`, networkSecret),
		"not allowed": fmt.Sprintf(
			`{"network":{"allow":["web.test"]},"network_secrets":{"K":{"value":%q,"hosts":["example.com"]}}}`,
			networkSecret),
		"twice": fmt.Sprintf(
			`{"network":"open","env":{"K":"x"},"network_secrets":{"K":{"value":%q,"hosts":["example.com"]}}}`,
			networkSecret),
		"no host": fmt.Sprintf(`{"network":"open","network_secrets":{"K":{"value":%q,"hosts":[]}}}`, networkSecret),
	} {
		status, out, err := b.Do("POST", "/v1/containers", strings.NewReader(body))
		if err != nil || status != 400 || strings.Contains(string(out), networkSecret) ||
			!strings.Contains(string(out), "K") && name != "no network" {
			t.Errorf("%s: %d %s %v", name, status, out, err)
		}
	}
}

// testNowhere searches the daemon's files and answers for the secret.
func (b *bank) testNowhere(t *testing.T) {
	_, list, err := b.Do("GET", "/v1/containers", nil)
	if err != nil || strings.Contains(string(list), networkSecret) {
		t.Errorf("containers: %s, %v", list, err)
	}
	if strings.Contains(b.Log(), networkSecret) {
		t.Error("the daemon's log has it")
	}
	var named bool
	err = filepath.WalkDir(b.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.Contains(path, "/runtime/") {
			return nil // sockets may be deleted meanwhile
		}
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), networkSecret) {
			t.Errorf("%s has it", path)
		}
		if strings.HasPrefix(e.Name(), "audit") {
			named = named || strings.Contains(string(text), `"secrets":["BANK_KEY"]`)
		}
		return nil
	})
	if err != nil || !named {
		t.Errorf("the audit log does not say which secret was used: %v, %v", named, err)
	}
	fi, err := os.Stat(filepath.Join(b.Dir, "egress-authority.pem"))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the authority's key: %v, %v", fi, err)
	}
}

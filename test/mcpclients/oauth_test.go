package mcpclients_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"berth/test/clients"
	"berth/test/daemontest"
	"berth/test/needs"
	"berth/test/oauthtest"
)

// TestOAuth has clients get a token by themselves: they know the address of the daemon alone.
func TestOAuth(t *testing.T) {
	needs.Containers(t)
	node, python, python1 := install(t, "ts", clients.Node), install(t, "py", clients.Python), install(t, "py1",
		clients.Python)
	as := oauthtest.New(t)
	free, err := net.Listen("tcp", "127.0.0.1:0") // the daemon's address is in its flags
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	d, err := daemontest.New("--stop-on-exit", "--listen", address, "--oauth-issuer", as.URL, "--oauth-resource",
		"http://"+address, "--oauth-scope", oauthtest.Scope)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	status, body, err := d.Do("POST", "/v1/keys", strings.NewReader(`{"owner":"team","name":"oauth:`+oauthtest.Subject+
		`"}`))
	if err != nil || status != 201 {
		t.Fatalf("%d %s %v", status, body, err)
	}
	script := filepath.Join(python, "main.oauth.py")
	for i, c := range []struct {
		name string
		argv []string
	}{
		{"python1", []string{filepath.Join(python1, "venv", "bin", "python"), script}},
		{"python2", []string{filepath.Join(python, "venv", "bin", "python"), script}},
		{"typescript1", []string{"node", filepath.Join(node, "main.oauth.mjs"), "sdk"}},
		{"typescript2", []string{"node", filepath.Join(node, "main.oauth.mjs"), "client"}},
	} {
		t.Run(c.name, func(t *testing.T) { program(t, d, 1, c.argv[0], c.argv[1:]...) })
		if n := as.Tokens(); n != i+1 {
			t.Errorf("%s: %d tokens were given, want %d", c.name, n, i+1)
		}
	}
}

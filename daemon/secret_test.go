package daemon_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"berth/proto"
)

// A hunt searches for secrets in places where none may be.
type hunt struct {
	*server
	t       *testing.T
	needles map[string]string // encoded secrets, with a description of each encoding
}

// newHunt creates a secret of each kind of characters.
func newHunt(t *testing.T, s *server) (h *hunt, secret, plain string) {
	secret, plain = rand.Text()+`/+ "'&`, rand.Text()+"9"
	h = &hunt{server: s, t: t, needles: map[string]string{}}
	for name, v := range map[string]string{"secret": secret, "env": plain} {
		quoted, _ := json.Marshal(v)
		for form, needle := range map[string]string{
			"as it is": v, "base64": base64.StdEncoding.EncodeToString([]byte(v)),
			"base64url": base64.RawURLEncoding.EncodeToString([]byte(v)),
			"query":     url.QueryEscape(v), "path": url.PathEscape(v), "JSON": strings.Trim(string(quoted), `"`),
			"its letters": v[:26],
		} {
			h.needles[needle] = name + " " + form
		}
	}
	return h, secret, plain
}

// clean fails the test if a text contains a secret.
func (h *hunt) clean(where string, text []byte) {
	h.t.Helper()
	for needle, what := range h.needles {
		if i := bytes.Index(text, []byte(needle)); i >= 0 {
			h.t.Errorf("%s has the %s: …%.300q", where, what, text[max(0, i-100):])
		}
	}
}

// ask sends a request whose answer must contain no secret.
func (h *hunt) ask(want int, method, path, body string) []byte {
	h.t.Helper()
	status, out, err := h.Do(method, path, strings.NewReader(body))
	if err != nil || status != want {
		h.t.Errorf("%s %s: %d %v", method, path, status, err)
	}
	h.clean(method+" "+path, out)
	return out
}

// everywhere searches the daemon's files and answers, except the disk pool: commands may write secrets into their own
// files.
func (h *hunt) everywhere(container string) {
	h.t.Helper()
	err := filepath.WalkDir(h.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.Contains(path, "/runtime/") {
			return err
		}
		data, err := os.ReadFile(path)
		h.clean(path, data)
		return err
	})
	if err != nil {
		h.t.Error(err)
	}
	h.clean("the daemon's log", []byte(h.Log()))
	for _, path := range []string{"/metrics", "/v1/audit", "/v1/containers"} {
		h.ask(200, "GET", path, "")
	}
	if container != "" {
		for _, path := range []string{"", "/execs", "/jobs"} {
			h.ask(200, "GET", "/v1/containers/"+container+path, "")
		}
		job := call[struct{ Data []proto.Exec }](h.t, h.server, 200, "GET", "/v1/containers/"+container+"/execs",
			"").Data[0].JobID
		h.ask(200, "GET", "/v1/containers/"+container+"/jobs/"+job+"/manifest", "")
	}
}

func TestSecretsAreNowhere(t *testing.T) {
	h, secret, plain := newHunt(t, base)
	body, _ := json.Marshal(proto.CreateContainer{Secrets: map[string]string{"S": secret}, Env: map[string]string{
		"E": plain, "WHERE": "/workspace"}})
	made := h.ask(201, "POST", "/v1/containers", string(body))
	var c proto.Container
	if err := json.Unmarshal(made, &c); err != nil || !slices.Equal(c.SecretNames, []string{"S"}) {
		t.Fatalf("%v %s", err, made)
	}
	at := "/v1/containers/" + c.ID
	use := func() {
		t.Helper()
		if res := bash(t, base, c.ID, `printf %s "$S$E"`); res.Result.Result == nil ||
			res.Result.Result.Stdout != secret+plain {
			t.Fatalf("%+v", res.Result)
		}
	}
	use()
	h.run(c.ID, proto.Cmd{Argv: []string{"/bin/echo", secret, "x" + plain}})
	h.run(c.ID, proto.Cmd{Argv: []string{secret, plain}})
	h.run(c.ID, proto.Cmd{Command: "cat <<'EOF' >/dev/null\nuser:" + secret + "\nEOF\nexit 3"})
	h.run(
		c.ID,
		proto.Cmd{
			Command: `echo "$S $E" >&2; printf %s "$S" | base64 -w0 >&2; printf 'u:%s' "$S" | base64 -w0 >&2; head -c 3000 /dev/zero | tr '\0' x >&2; echo "$S" >&2; exit 1`})
	h.run(c.ID, proto.Cmd{Command: `cat "/nonexistent/$S"; cat "/nonexistent/$E"`})
	h.run(c.ID, proto.Cmd{Command: "echo " + url.QueryEscape(secret) + " " + base64.StdEncoding.EncodeToString(
		[]byte(secret)), Shell: "s"})
	own := rand.Text() + "own"
	h.needles[own] = "secret of one command"
	h.run(c.ID, proto.Cmd{Command: `: ` + own + `; echo "$T" >&2`, Secrets: map[string]string{"T": own}})
	for path, status := range map[string]int{"/fs/content?path=/nonexistent/" + url.QueryEscape(secret): 404,
		"/fs/list?path=" + url.QueryEscape("/x/"+plain): 404} {
		h.ask(status, "GET", at+path, "")
	}
	for _, cmd := range []proto.Cmd{{Command: "true", User: secret}, {Command: "true", Shell: plain + "!"},
		{Command: "true", JobID: secret}, {Command: "true", Secrets: map[string]string{"T": own}, OnOutputLimit: own}} {
		body, _ := json.Marshal(cmd)
		h.ask(400, "POST", at+"/exec", string(body))
	}
	bad, _ := json.Marshal(proto.CreateContainer{Secrets: map[string]string{"S": secret},
		RuntimeClass: proto.RuntimeClass(secret)})
	h.ask(400, "POST", "/v1/containers", string(bad))
	unknown, _ := json.Marshal(map[string]any{secret: 1})
	h.ask(400, "POST", at+"/extend", string(unknown))
	h.everywhere(c.ID)

	base.Stop(syscall.SIGKILL)
	if err := base.Start(); err != nil {
		t.Fatal(err)
	}
	use()
	h.everywhere(c.ID)
	h.ask(200, "DELETE", at, "")
	h.everywhere("")
}

// run runs a command. Except for its output, the result must contain no secret.
func (h *hunt) run(container string, cmd proto.Cmd) {
	h.t.Helper()
	body, _ := json.Marshal(cmd)
	res := call[proto.ExecResult](h.t, h.server, 200, "POST", "/v1/containers/"+container+"/exec", string(body))
	res.Result, res.Partial = proto.BashContent{}, nil
	text, _ := json.Marshal(res)
	h.clean(fmt.Sprintf("the result of %.60q", cmd.Command), text)
}

// TestSecretKeyThatIsGone removes the vault's key. A sealed container must report what to do, and others must work.
// All work again once the key is back.
func TestSecretKeyThatIsGone(t *testing.T) {
	s := base
	key := filepath.Join(s.Dir, "secret-key")
	sealed := call[proto.Container](t, s, 201, "POST", "/v1/containers", `{"secrets":{"S":"opensesame"}}`)
	open := call[proto.Container](t, s, 201, "POST", "/v1/containers", `{}`)
	good, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	run := func(id string, status int) string {
		t.Helper()
		got, out, err := s.Do("POST", "/v1/containers/"+id+"/exec", strings.NewReader(`{"command":"echo ${S:-none}"}`))
		if err != nil || got != status {
			t.Errorf("%d %v %s", got, err, out)
		}
		return string(out)
	}
	for name, spoil := range map[string]func() error{
		"missing": func() error { return os.Remove(key) },
		"garbled": func() error { return os.WriteFile(key, []byte("???"), 0o600) },
		"another": func() error {
			return os.WriteFile(key, []byte("berth-vault-1 "+strings.Repeat("ab", 32)+"\n"),
				0o600)
		},
	} {
		s.Stop(syscall.SIGTERM)
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		if out := run(sealed.ID, 503); !strings.Contains(out, "secret-key") || strings.Contains(out, s.Dir) {
			t.Errorf("%s: %s", name, out)
		}
		if out := run(open.ID, 200); !strings.Contains(out, "none") {
			t.Errorf("%s: %s", name, out)
		}
		if name != "another" {
			if status, out, _ := s.Do("POST", "/v1/containers", strings.NewReader(
				`{"env":{"A":"b"}}`)); status != 503 || !bytes.Contains(out, []byte("empty file")) {
				t.Errorf("%s: %d %s", name, status, out)
			}
		}
		if err := os.WriteFile(key, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.Stop(syscall.SIGTERM)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if out := run(sealed.ID, 200); !strings.Contains(out, "opensesame") {
		t.Error(out)
	}
	for _, id := range []string{sealed.ID, open.ID} {
		call[map[string]any](t, s, 200, "DELETE", "/v1/containers/"+id, "")
	}
}

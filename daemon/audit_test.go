package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"berth/proto"
	"berth/test/daemontest"
)

// auditCLI runs `berth audit` against a daemon and returns its output. It returns an error if the exit status is not
// 0.
func auditCLI(t *testing.T, s *server, args ...string) (string, error) {
	t.Helper()
	bin, err := daemontest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, append([]string{"audit"}, args...)...)
	cmd.Env = append(os.Environ(), "BERTH_HOST="+s.URL, "BERTH_API_KEY="+s.Key)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// since returns the audit entries after a number.
func since(t *testing.T, s *server, seq int64) (list []proto.AuditEntry) {
	t.Helper()
	status, out, err := s.Do("GET", "/v1/audit", nil)
	if err != nil || status != 200 {
		t.Fatalf("%d %v %s", status, err, out)
	}
	for line := range bytes.SplitSeq(bytes.TrimSpace(out), []byte("\n")) {
		var e proto.AuditEntry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if e.Seq > seq {
			list = append(list, e)
		}
	}
	return list
}

func auditHead(t *testing.T, s *server) proto.AuditHead {
	t.Helper()
	return call[proto.AuditHead](t, s, 200, "GET", "/v1/audit/head", "")
}

func TestWhatIsDoneIsAudited(t *testing.T) {
	s, head := base, auditHead(t, base)
	c := call[proto.Container](t, s, 201, "POST", "/v1/containers", "{}")
	at := "/v1/containers/" + c.ID
	bash(t, s, c.ID, "echo $'a\\nb\\e[2J' >made; export TOKEN=hunter2hunter2")
	call[map[string]any](t, s, 404, "POST", "/v1/containers/container_0000000000000000000000/exec",
		`{"command":"true"}`)
	for _, r := range []struct{ method, path, body string }{
		{"PUT", at + "/fs/content?path=/workspace/x%0Ay", "bytes"}, {"GET", at + "/fs/content?path=/workspace/x%0Ay",
			""}, {"POST", at + "/extend", "{}"},
		{"POST", at + "/stop", ""}, {"POST", at + "/start", ""}, {"DELETE", at, ""}, {"GET", at, ""},
	} {
		if status, out, err := s.Do(r.method, r.path, strings.NewReader(r.body)); err != nil || status >= 400 &&
			r.path != at {
			t.Fatalf("%s %s: %d %v %s", r.method, r.path, status, err, out)
		}
	}
	req, _ := http.NewRequest("POST", s.URL+"/v1/containers", nil)
	req.Header.Set("X-Api-Key", "wrong")
	if res, err := http.DefaultClient.Do(req); err != nil || res.StatusCode != 401 {
		t.Fatal(err, res)
	}
	var got []string
	entries := since(t, s, head.Seq)
	for _, e := range entries {
		if e.ContainerID == c.ID || e.Outcome != proto.AuditOK {
			got = append(got, e.Act+" "+e.Outcome)
			if e.Outcome == proto.AuditOK && (!strings.HasPrefix(e.Actor, "key_") || e.RequestID == "" ||
				e.Owner == "") {
				t.Errorf("who did it? %+v", e)
			}
		}
	}
	want := []string{"container.start ok", "container.create ok", "exec.begin ok", "exec.end ok",
		"exec.begin not_found", "fs.write ok", "fs.read ok",
		"container.extend ok", "container.stop ok", "container.start ok", "container.delete ok",
		"auth.refuse unauthenticated"}
	if !slices.Equal(got, want) {
		t.Errorf("audited %q", got)
	}
	if text := fmt.Sprintf("%+v", entries); strings.Contains(text, "hunter2") {
		t.Error("a secret is in the log")
	}
	n := min(50, len(since(t, s, 0))+1) // this query is an entry too
	if out, err := auditCLI(t, s, "tail", "-n", "50"); err != nil || strings.Contains(out, "\x1b") ||
		strings.Count(out, "\n") != n {
		t.Errorf("%v, %d lines: %q", err, n, out)
	}
}

// checker returns the program in docs/operations.md.
func checker(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(doc, []byte("```python\n"))
	text, _, ok := bytes.Cut(rest, []byte("```"))
	path := filepath.Join(t.TempDir(), "check.py")
	if err := os.WriteFile(path, text, 0o600); err != nil || !ok {
		t.Fatal(err)
	}
	return path
}

// TestAuditCanBeVerified checks the log of a real daemon with every verifier: beside the daemon, after SIGKILL, and
// with the documented program.
func TestAuditCanBeVerified(t *testing.T) {
	s := base
	c := create(t, s)
	for i := range 20 {
		bash(t, s, c.ID, fmt.Sprintf("echo %d", i))
	}
	out, err := auditCLI(t, s, "verify", "--data", s.Dir)
	if err != nil || !strings.Contains(out, "checked against the running daemon") {
		t.Errorf("%v %s", err, out)
	}
	noted, err := auditCLI(t, s, "head")
	if err != nil {
		t.Fatal(err)
	}
	s.Stop(syscall.SIGKILL)
	out, err = auditCLI(t, s, "verify", "--data", s.Dir, "--head", strings.TrimSpace(noted))
	if err != nil || !strings.Contains(out, "checked against the ledger and the head") {
		t.Errorf("%v %s", err, out)
	}
	segments, _ := filepath.Glob(filepath.Join(s.Dir, "audit*.log"))
	slices.Sort(segments)
	python, err := exec.Command("python3", append([]string{checker(t)}, segments...)...).CombinedOutput()
	if err != nil || !strings.Contains(out, strings.TrimSpace(string(python))) {
		t.Errorf("%v %s", err, python)
	}
	tampered(t, s, segments, checker(t))
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	for _, e := range since(t, s, 0) {
		if e.Act == "log.open" && e.Outcome != proto.AuditOK {
			t.Errorf("%+v", e)
		}
	}
}

// tampered checks that the verifiers find a change to a copy.
func tampered(t *testing.T, s *server, segments []string, check string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range append(segments, filepath.Join(s.Dir, "ledger.db"), filepath.Join(s.Dir, "ledger.db.log")) {
		data, err := os.ReadFile(name)
		if err == nil && filepath.Base(name) == "audit.log" {
			data = bytes.Replace(data, []byte(`"command":"echo 7"`), []byte(`"command":"echo 8"`), 1)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(name)), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if out, err := auditCLI(t, s, "verify", "--data", dir); err == nil || !strings.Contains(out, "BAD: edited") {
		t.Errorf("%v %s", err, out)
	}
	if out, err := exec.Command("python3", check, filepath.Join(dir, "audit.log")).CombinedOutput(); err == nil {
		t.Errorf("the documented program finds nothing: %s", out)
	}
}

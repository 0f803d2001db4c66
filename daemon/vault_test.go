package daemon_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/client"
	"berth/proto"
	"berth/test/daemontest"
	"berth/tools/toolstore"
)

// TestKeysOfSecretsAreChanged changes the vault's keys with and without a running daemon, and checks that all sealed
// records still work.
func TestKeysOfSecretsAreChanged(t *testing.T) {
	s := base
	body, _ := json.Marshal(proto.CreateContainer{Secrets: map[string]string{"S": "kept-in-a-container"}})
	c := call[proto.Container](t, s, 201, "POST", "/v1/containers", string(body))
	t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/containers/"+c.ID, nil) })
	store(t, s, toolstore.NewTool{Name: "sealed", Configuration: toolstore.Configuration{
		Code: "import os\ndef run(input): return len(os.environ['T'])", EnvVariables: map[string]string{
			"T": "kept-with-a-tool"}}})
	call[proto.Exec](t, s, 202, "POST", "/v1/containers/"+c.ID+"/exec",
		`{"command":"sleep 500","background":true,"secrets":{"E":"kept-with-an-exec"}}`)
	works := func(when string) {
		t.Helper()
		if res := bash(t, s, c.ID, `printf %s "$S"`); res.Result.Result == nil ||
			res.Result.Result.Stdout != "kept-in-a-container" {
			t.Errorf("%s: %+v", when, res.Result)
		}
		if run := call[toolstore.Run](t, s, 200, "POST", "/v1/tools/sealed/run", "{}"); string(run.Output) != "16" {
			t.Errorf("%s: %s %+v", when, run.Output, run.Error)
		}
	}
	keys := func() []string {
		data, err := os.ReadFile(filepath.Join(s.Dir, "secret-key"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(data)), "\n")
	}
	// The secret of a webhook is one more.
	without := call[client.Rotation](t, s, 200, "POST", "/v1/vault/rotate", "")
	hook := call[proto.NewWebhook](t, s, 201, "POST", "/v1/webhooks", `{"url":"https://receiver.invalid/"}`)
	t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/webhooks/"+hook.ID, nil) })
	if with := call[client.Rotation](t, s, 200, "POST", "/v1/vault/rotate", ""); with.Resealed != without.Resealed+1 {
		t.Errorf("%d records were sealed again with a webhook, %d without", with.Resealed, without.Resealed)
	}
	first := keys()
	if done := call[client.Rotation](t, s, 200, "POST", "/v1/vault/rotate", ""); done.Resealed < 3 ||
		done.Keys != len(first)+1 || done.Closed != 0 {
		t.Errorf("%+v", done)
	}
	works("after a rotation")
	if done := call[client.Rotation](t, s, 200, "POST", "/v1/vault/forget", ""); done.Keys != 1 || done.Closed != 0 ||
		done.Resealed != 0 {
		t.Errorf("%+v", done)
	}
	works("after the old keys are forgotten")
	s.Stop(syscall.SIGKILL)
	now := keys()
	if len(now) != 1 || now[0] == first[0] {
		t.Errorf("%d keys", len(now))
	}
	bin, err := daemontest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, act := range []string{"rotate", "forget"} {
		out, err := exec.Command(bin, "vault", act, "--data", s.Dir, "--json").CombinedOutput()
		var done client.Rotation
		if err != nil || json.Unmarshal(out, &done) != nil || done.Closed != 0 || act == "rotate" && done.Resealed < 3 {
			t.Errorf("%s: %v %s", act, err, out)
		}
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	works("after a rotation without the daemon")
	if last := keys(); len(last) != 1 || last[0] == now[0] {
		t.Errorf("%d keys", len(last))
	}
	if out, err := exec.Command(bin, "vault", "rotate", "--data", s.Dir).CombinedOutput(); err == nil ||
		!bytes.Contains(out, []byte("another berth daemon uses this data directory")) {
		t.Errorf("beside a daemon: %v %s", err, out)
	}
}

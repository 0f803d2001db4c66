package anthropic

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"berth/test/clients"
	"berth/test/needs"
	"berth/test/sessiontest"
)

// TestClaudeCode lets the newest Claude Code run a command of the model, over an upstream of each dialect.
func TestClaudeCode(t *testing.T) {
	needs.Time(t)
	tool(t, "npm")
	dir, version := clients.InstallNewest(t, clients.NPM("@anthropic-ai/claude-code"))
	found, _ := filepath.Glob(filepath.Join(dir, "node_modules", "@anthropic-ai", "claude-code-linux-*", "claude"))
	if len(found) == 0 {
		t.Fatalf("Claude Code %s has no program for this machine", version)
	}
	talk := newStudio(t)
	for _, model := range []string{"claude-code", "chat/claude-code"} {
		t.Run(model+" "+version, func(t *testing.T) {
			home, work := t.TempDir(), t.TempDir()
			cmd := exec.CommandContext(t.Context(), found[0], "-p", "Keep a note.", "--model", model, "--allowedTools",
				"Bash", "--output-format", "json")
			cmd.Dir = work
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "ANTHROPIC_BASE_URL=" + talk.URL,
				"ANTHROPIC_API_KEY=" + sessiontest.Secret, "DISABLE_AUTOUPDATER=1"}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, out, stderr.String())
			}
			var said struct {
				Result  string
				IsError bool `json:"is_error"`
			}
			if err := json.Unmarshal(out, &said); err != nil || said.IsError || said.Result != "It is kept." {
				t.Errorf("%v %s", err, out)
			}
			if note, err := os.ReadFile(filepath.Join(work, "note")); string(note) != "kept\n" {
				t.Errorf("the command left %q: %v", note, err)
			}
			if err := talk.model.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

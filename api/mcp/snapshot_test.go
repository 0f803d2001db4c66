package mcp

import (
	"regexp"
	"strings"
	"testing"
)

// TestSnapshotTools checks that a model can keep the state of its container and go back to it.
func TestSnapshotTools(t *testing.T) {
	s := newSite(t, nil)
	cs := s.session(t)
	ask := func(tool string, args map[string]any, want string) string {
		t.Helper()
		res, text := use(t, cs, tool, args)
		if res.IsError || !strings.Contains(text, want) {
			t.Errorf("%s %v: %q, want %q", tool, args, text, want)
		}
		return text
	}
	ask("list_snapshots", nil, "(none)")
	ask("bash", map[string]any{"command": "echo old >/workspace/a; echo old >/tmp/b"}, "")
	ask("save_snapshot", map[string]any{"name": "before"}, "Saved as before.")
	ask("save_snapshot", nil, "Saved as snapshot_")
	if list := ask("list_snapshots", nil, "  before\n"); len(regexp.MustCompile(
		`(?m)Z  snapshot_\w+  [1-9]\d*  (before)?$`).FindAllString(list, -1)) != 2 || strings.Count(list, "\n") != 2 {
		t.Errorf("%q", list)
	}
	ask("bash", map[string]any{"command": "echo new >/workspace/a; echo new >/tmp/b; cat /workspace/a /tmp/b"}, "new\nnew")
	ask("restore_snapshot", map[string]any{"snapshot": "before"}, "has the files of before")
	ask("bash", map[string]any{"command": "cat /workspace/a /tmp/b"}, "old\nold")
}

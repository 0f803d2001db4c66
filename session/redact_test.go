package session

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	hidden := []string{
		"export OPENAI_API_KEY=hunter2secret", "MY_TOKEN='hunter2secret' ./x", `curl -H "Authorization: Bearer hunter2secret"`,
		"mysql --password hunter2secret", "git clone https://me:hunter2secret@host/x", "echo sk-hunter2secretABCDEFGH",
		`{"client_secret": "hunter2secret"}`, "docker login --token=hunter2secret", "PGPASSWORD=hunter2secret psql",
	}
	for _, c := range hidden {
		if got := Redact(c); strings.Contains(got, "hunter2secret") || !strings.Contains(got, "[redacted]") {
			t.Errorf("%q became %q", c, got)
		}
	}
	for _, c := range []string{"ls -la /workspace", "python3 train.py --epochs 3", "echo a:b=c; cat x | wc -l", "git log --author me"} {
		if got := Redact(c); got != c {
			t.Errorf("%q became %q", c, got)
		}
	}
}

package code_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"berth/code"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// took is the part of the text that differs between runs.
var took = regexp.MustCompile(`\d+ ms`)

func (b bench) script(t *testing.T, language, text string) (out string) {
	t.Helper()
	err := b.run.Execute(context.Background(), sessiontest.Owner, code.Script{Language: language, Code: text},
		func(text string, _ bool) error { out = text; return nil })
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return took.ReplaceAllString(out, "N ms")
}

func TestExecutor(t *testing.T) {
	b := newBench(t, session.Config{})
	for _, c := range []struct{ language, text, want string }{
		{"python", "print('hi')\n1+1", "## Code Execution Result\n\n**Language:** python | **Exit code:** 0 | " +
			"**Time:** N ms\n\n### stdout\n\n```\nhi\n```\n"},
		{"node", "console.log('hi'); console.error('```'); process.exit(3)",
			"## Code Execution Result\n\n**Language:** node | **Exit code:** 3 | **Time:** N ms\n\n### " +
				"stdout\n\n```\nhi\n```\n\n### stderr\n\n````\n```\n````\n"},
		{"python", "x = 1", "## Code Execution Result\n\n**Language:** python | **Exit code:** 0 | **Time:** N " +
			"ms\n\n### stdout\n\n*(empty)*\n"},
	} {
		if got := b.script(t, c.language, c.text); got != c.want {
			t.Errorf("%s: %s gives\n%q, want\n%q", c.language, c.text, got, c.want)
		}
	}
	if c := b.Sessions.Counts(); len(c.ByState) != 0 || c.Workspaces != 0 {
		t.Errorf("left: %+v", c)
	}
	for _, bad := range []code.Script{{Language: "ruby", Code: "1"}, {Language: "python"}, {Code: "1"}} {
		if err := b.run.Execute(context.Background(), sessiontest.Owner, bad, nil); proto.CodeOf(
			err) != proto.InvalidArgument {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestExecutorsLimits(t *testing.T) {
	b := newBench(t, session.Config{})
	began := time.Now()
	got := b.script(t, "python", "import sys\nwhile True: sys.stdout.write('0123456\\n')")
	if after := time.Since(began); after > 10*time.Second {
		t.Errorf("a program without end took %v", after)
	}
	body, _, _ := strings.Cut(strings.SplitN(got, "```\n", 2)[1], "```")
	if body != strings.Repeat("0123456\n", 8192)+"[OUTPUT TRUNCATED]\n" {
		t.Errorf("%d bytes, ending in %q", len(body), body[max(0, len(body)-40):])
	}
	began = time.Now()
	got = b.script(t, "python", "print('begun', flush=True)\nimport time\ntime.sleep(600)")
	if after := time.Since(began); after < 15*time.Second || after > 25*time.Second ||
		!strings.Contains(got, "**Timed out** after 15 s") || !strings.Contains(got, "```\nbegun\n```") {
		t.Errorf("after %v: %s", after, got)
	}
}

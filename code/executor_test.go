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
var took = regexp.MustCompile(`\d+ms`)

func (b bench) script(t *testing.T, language, text string) (out string) {
	t.Helper()
	err := b.run.Execute(context.Background(), sessiontest.Owner, code.Script{Language: language, Code: text},
		func(r code.Report) error { out = r.Text; return nil })
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return took.ReplaceAllString(out, "Nms")
}

func TestExecutor(t *testing.T) {
	b := newBench(t, session.Config{})
	head := func(language, code string) string {
		return "## Code Execution Result\n**Language:** " + language + "  |  **Exit Code:** " + code +
			"  |  **Time:** Nms\n\n### stdout\n"
	}
	for _, c := range []struct{ language, text, want string }{
		{"python", "print('hi')\n1+1", head("python", "0") + "```\nhi\n```"},
		{"python", "x = 1", head("python", "0") + "*(empty)*"},
		{"python", "print(' \\t\\n\\xa0\\ufeff')", head("python", "0") + "*(empty)*"},
		{"python", "print('a\\n\\n b  \\n\\n')", head("python", "0") + "```\na\n\n b\n```"},
		{"python", "import sys\nprint(' \\n', file=sys.stderr)\nsys.exit(7)", head("python", "7") + "*(empty)*"},
		{"node", "console.log('hi'); console.error('```'); process.exit(3)",
			head("node", "3") + "```\nhi\n```\n\n### stderr\n````\n```\n````"},
		{"node", "console.error('e\\n')", head("node", "0") + "*(empty)*\n\n### stderr\n```\ne\n```"},
		{"python", "import os, signal\nprint('x', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)",
			head("python", "N/A") + "```\nx\n```"},
		// a script whose standard error is full goes on
		{"python", "import sys\nsys.stderr.write('e' * 70_000)\nsys.stderr.flush()\nprint('after')\nsys.exit(4)",
			head("python", "4") + "```\nafter\n```\n\n### stderr\n```\n" + strings.Repeat("e", 65536) +
				"\n[STDERR TRUNCATED]\n```"},
		{"python", "import sys\nsys.stderr.write('e' * 3_000_000)\nprint('o' * 65_536, end='')",
			head("python", "0") + "```\n" + strings.Repeat("o", 65536) + "\n```\n\n### stderr\n```\n" +
				strings.Repeat("e", 65536) + "\n[STDERR TRUNCATED]\n```"},
		// one whose standard output is full is killed
		{"python", "import sys, time\nsys.stderr.write('e')\nsys.stderr.flush()\nprint('ä' * 40_000, flush=True)\n" +
			"time.sleep(100)", head("python", "N/A") + "```\n" + strings.Repeat("ä", 32768) +
			"\n[OUTPUT TRUNCATED]\n```\n\n### stderr\n```\ne\n```"},
		{"python", "import time\nprint('a' + 'ä' * 40_000, flush=True)\ntime.sleep(100)", head("python", "N/A") +
			"```\na" + strings.Repeat("ä", 32767) + "\n[OUTPUT TRUNCATED]\n```"},
		{"python", "import sys\nsys.stdout.buffer.write(b'a\\xffb')", head("python", "0") + "```\na\uFFFDb\n```"},
		{"node", "process.stdout.write(Buffer.from('fffe61f09f9862e4bdc3', 'hex'))", head("node", "0") +
			"```\n\uFFFD\uFFFDa\uFFFDb\uFFFD\uFFFD\n```"},
	} {
		if got := b.script(t, c.language, c.text); got != c.want {
			t.Errorf("%s: %s gives\n%.400q, want\n%.400q", c.language, c.text, got, c.want)
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
	if body != strings.Repeat("0123456\n", 8192)+"\n[OUTPUT TRUNCATED]\n" {
		t.Errorf("%d bytes, ending in %q", len(body), body[max(0, len(body)-40):])
	}
	began = time.Now()
	got = b.script(t, "python", "print('begun', flush=True)\nimport time\ntime.sleep(600)")
	if after := time.Since(began); after < 15*time.Second || after > 25*time.Second ||
		got != "## Code Execution Result\n**Language:** python  |  **Exit Code:** N/A  |  **Time:** Nms\n\n"+
			"⚠️ **TIMED OUT** after 15 seconds.\n\n### stdout\n```\nbegun\n```" {
		t.Errorf("after %v: %s", after, got)
	}
}

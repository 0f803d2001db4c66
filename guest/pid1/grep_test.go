package pid1

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// grepped returns what a search finds, as grep prints it, and its summary.
func (w *world) grepped(as, path string, o proto.GrepOptions) (text string, sum proto.GrepSummary) {
	w.t.Helper()
	g, err := w.Grep(short(w.t), as, path, o)
	must(w.t, err)
	defer g.Close()
	for {
		ev, err := g.Next()
		if err == io.EOF {
			return text, sum
		}
		must(w.t, err)
		rel, _ := filepath.Rel(w.workspace, ev.Path)
		switch ev.Type {
		case proto.GrepMatch:
			text += fmt.Sprintf("%s:%d:%d+%d:%s\n", rel, ev.Line, ev.Column, ev.Length, ev.Text)
		case proto.GrepContext:
			text += fmt.Sprintf("%s-%d-%s\n", rel, ev.Line, ev.Text)
		case proto.GrepEnd:
			sum = *ev.Summary
		}
	}
}

// TestGrepSelects checks patterns, files, context and bounds.
func TestGrepSelects(t *testing.T) {
	w := newWorld(t, false)
	w.put("a.py", "import os\ndef one(x):\r\n  return x\n\ndef two(y):\n  pass\nlast def")
	w.put("sub/b.txt", "a.b\naxb\nDEF\n")
	w.put("sub/empty", "")
	must(t, os.WriteFile(filepath.Join(w.workspace, "bin"), []byte("def\x00def\n"), 0o644))
	for _, c := range []struct {
		o    proto.GrepOptions
		want string
	}{
		{proto.GrepOptions{Pattern: `def \w+\(`}, "a.py:2:1+8:def one(x):\na.py:5:1+8:def two(y):\n"},
		{proto.GrepOptions{Pattern: `^def.*:$`}, "a.py:2:1+11:def one(x):\na.py:5:1+11:def two(y):\n"},
		{proto.GrepOptions{Pattern: `\Alast|s$`}, "a.py:1:9+1:import os\na.py:6:6+1:  pass\na.py:7:1+4:last def\n"},
		{proto.GrepOptions{Pattern: `^$`}, "a.py:4:1+0:\n"},
		{proto.GrepOptions{Pattern: `a.b`}, "sub/b.txt:1:1+3:a.b\nsub/b.txt:2:1+3:axb\n"},
		{proto.GrepOptions{Pattern: `a.b`, Fixed: true}, "sub/b.txt:1:1+3:a.b\n"},
		{proto.GrepOptions{Pattern: "def\nlast"}, ""},
		{proto.GrepOptions{Pattern: `def$`, FindOptions: proto.FindOptions{IgnoreCase: true}},
			"a.py:7:6+3:last def\nsub/b.txt:3:1+3:DEF\n"},
		{proto.GrepOptions{Pattern: "def", FindOptions: proto.FindOptions{IgnoreCase: true, Names: []string{"*.TXT"}}},
			"sub/b.txt:3:1+3:DEF\n"},
		{proto.GrepOptions{Pattern: "def", FindOptions: proto.FindOptions{Exclude: []string{"*.py"}}}, ""},
		{proto.GrepOptions{Pattern: "(?i)def", FindOptions: proto.FindOptions{Depth: 1}, MaxPerFile: 1},
			"a.py:2:1+3:def one(x):\n"},
		{proto.GrepOptions{Pattern: "return|two", LinesBefore: 1, LinesAfter: 1}, "a.py-2-def one(x):\na.py:3:3+6:  " +
			"return x\na.py-4-\na.py:5:5+3:def two(y):\na.py-6-  pass\n"},
		{proto.GrepOptions{Pattern: "return", LinesBefore: 20}, "a.py-1-import os\na.py-2-def one(x):\na.py:3:3+6:  " +
			"return x\n"},
		{proto.GrepOptions{Pattern: "one", LinesAfter: 20}, "a.py:2:5+3:def one(x):\na.py-3-  return x\na.py-4-\n" +
			"a.py-5-def two(y):\na.py-6-  pass\na.py-7-last def\n"},
	} {
		if got, _ := w.grepped("user", ".", c.o); got != c.want {
			t.Errorf("%+v:\n%q, not\n%q", c.o, got, c.want)
		}
	}
	_, sum := w.grepped("user", ".", proto.GrepOptions{Pattern: "def"})
	if sum != (proto.GrepSummary{Matches: 3, Files: 1, Searched: 3, BinaryFiles: 1}) {
		t.Errorf("%+v", sum)
	}
	if got, sum := w.grepped("user", ".", proto.GrepOptions{Pattern: "def", MaxMatches: 2}); !sum.Truncated ||
		strings.Count(got, "\n") != 2 {
		t.Errorf("%q %+v", got, sum)
	}
	if got, _ := w.grepped("user", "sub/b.txt", proto.GrepOptions{Pattern: "x"}); got != "sub/b.txt:2:2+1:axb\n" {
		t.Errorf("one file: %q", got)
	}
	for path, code := range map[string]proto.Code{"missing": proto.NotFound, "/dev/null": proto.InvalidArgument} {
		_, err := w.Grep(short(t), "user", path, proto.GrepOptions{Pattern: "x"})
		wantCode(t, err, code)
	}
	for _, o := range []proto.GrepOptions{{}, {Pattern: "a("}, {Pattern: `(a{1000}){1000}`},
		{Pattern: "a", LinesAfter: 21}} {
		_, err := w.Grep(short(t), "user", ".", o)
		wantCode(t, err, proto.InvalidArgument)
	}
}

// TestGrepAgreesWithLineByLine compares searches of files with lines around the size of the buffer to a plain one.
func TestGrepAgreesWithLineByLine(t *testing.T) {
	w := newWorld(t, false)
	var lines []string
	for i := range 3000 {
		lines = append(lines, strings.Repeat("x", (i*7919)%700)+fmt.Sprintf(" needle%d end", i%11))
	}
	for _, end := range []string{"", "\n"} {
		w.put("f", strings.Join(lines, "\n")+end) // 1 MB: some buffers full
		for _, pattern := range []string{"needle7", "(?i)NEEDLE7 E", "x{20} needle1.*d"} {
			re, want := regexp.MustCompile(pattern), ""
			for i, line := range lines {
				if at := re.FindStringIndex(line); at != nil {
					want += fmt.Sprintf("f:%d:%d+%d:%s\n", i+1, at[0]+1, at[1]-at[0], line)
				}
			}
			if got, _ := w.grepped("user", "f", proto.GrepOptions{Pattern: pattern}); got != want {
				t.Errorf("%s: %d bytes, not %d", pattern, len(got), len(want))
			}
		}
		got, sum := w.grepped("user", "f", proto.GrepOptions{Pattern: "needle7", LinesBefore: 20, LinesAfter: 20})
		if n := strings.Count(got, "\n"); n != 3000 || sum.Matches != 273 { // each line once
			t.Errorf("%d lines, %d matches", n, sum.Matches)
		}
	}
	// A line of 3 MiB is told around its match.
	w.put("f", strings.Repeat("ü", 1<<20)+" needle "+strings.Repeat("ü", 1<<19)+"\nneedle\n")
	g, err := w.Grep(short(t), "user", "f", proto.GrepOptions{Pattern: "needle"})
	must(t, err)
	defer g.Close()
	ev, err := g.Next()
	if err != nil || ev.Line != 1 || ev.Column != 2<<20+2 || !ev.Cut || ev.TextColumn < 2<<20-500 || len(ev.Text) > 2000 ||
		!strings.Contains(ev.Text, " needle ") {
		t.Errorf("%+v %v", ev, err)
	}
	if ev, err = g.Next(); err != nil || ev.Line != 2 || ev.Column != 1 || ev.TextColumn != 0 {
		t.Errorf("%+v %v", ev, err)
	}
}

// TestGrepInHostileFiles checks that a search passes files that would hold it up, or never end.
func TestGrepInHostileFiles(t *testing.T) {
	w := newWorld(t, false)
	if r := w.bash(`cd ` + w.workspace + `
		echo needle >$'new\nline'; echo needle >$'bad\xff'; echo $'needle \xff\xfe' >latin1
		echo needle >closed; chmod 0 closed; mkfifo pipe; ln -s latin1 link; ln -s loop loop; ln -s / root
		truncate -s 1T sparse; echo needle >late; truncate -s 1T late`); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	got, sum := w.grepped("user", ".", proto.GrepOptions{Pattern: "needle"})
	if sum.Matches != 3 || sum.SkippedFiles != 1 || sum.BinaryFiles != 2 || !strings.Contains(got, "needle \uFFFD") {
		t.Errorf("%q %+v", got, sum)
	}
	if _, sum := w.grepped("root", "/proc/self", proto.GrepOptions{Pattern: "."}); sum.Matches != 0 {
		t.Errorf("in /proc: %+v", sum)
	}
}

// TestGrepEndsWithItsClient checks that a search of much ends soon after its client has gone.
func TestGrepEndsWithItsClient(t *testing.T) {
	w := newWorld(t, false)
	w.put("big", strings.Repeat(strings.Repeat("x", 100)+"\n", 1<<19)) // 53 MB
	for i := range 200 {
		must(t, unix.Link(filepath.Join(w.workspace, "big"), filepath.Join(w.workspace, fmt.Sprint(i))))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all []io.Closer
	for range 8 { // as many as there may be; each would take minutes
		g, err := w.Grep(ctx, "user", ".", proto.GrepOptions{Pattern: `(x+x+)+y`})
		must(t, err)
		all = append(all, g)
	}
	one := func() error {
		g, err := w.Grep(short(t), "user", "1", proto.GrepOptions{Pattern: "x", MaxMatches: 1})
		if err == nil {
			_ = g.Close()
		}
		return err
	}
	wantCode(t, one(), proto.TooMany)
	cancel()
	for _, g := range all {
		_ = g.Close()
	}
	eventually(t, "the searches have ended", func() bool { return one() == nil })
}

package term

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"berth/proto"
)

// TestProgressOfTwo shows an upload and the daemon's steps from two goroutines.
func TestProgressOfTwo(t *testing.T) {
	p := &Progress{o: &Output{Stderr: io.Discard}, terminal: true}
	var wg sync.WaitGroup
	for _, step := range []string{"sending", "importing"} {
		wg.Go(func() {
			for i := range int64(200) {
				p.At(step, "", i, 200, true)
			}
		})
	}
	wg.Wait()
	p.End()
	if p.At("sending", "", 200, 200, true); p.bar != nil {
		t.Error("there is a bar again after the end")
	}
}

// TestProgressOfAnImport checks that the upload is not shown once the daemon reports its own steps, and that a
// removed bar is not drawn again.
func TestProgressOfAnImport(t *testing.T) {
	p := &Progress{o: &Output{Stderr: io.Discard}, terminal: true}
	in := p.Reader(strings.NewReader("archive"), "sending", 0)
	io.CopyN(io.Discard, in, 3)
	sending := p.bar
	if p.step != "sending" || sending == nil {
		t.Fatalf("the step is %q", p.step)
	}
	p.Image(proto.ImageProgress{Stage: "unpacking", Done: 1})
	unpacking := p.bar
	io.Copy(io.Discard, in)
	if p.step != "unpacking" || p.bar != unpacking {
		t.Errorf("the step is %q again", p.step)
	}
	p.End()
	if !sending.IsFinished() || !unpacking.IsFinished() {
		t.Error("a bar that was taken away goes on")
	}
}

// TestTable checks that columns are as wide as a terminal shows them.
func TestTable(t *testing.T) {
	var out bytes.Buffer
	o := &Output{Stdout: &out}
	if err := o.Table([]string{"NAME", "SIZE"}, [][]string{{"plain", "1"}, {"\U0001F600.csv", "22"}, {"漢字", ""},
		{"e\u0301", "3"}}); err != nil {
		t.Fatal(err)
	}
	if want := "NAME     SIZE\nplain    1\n\U0001F600.csv   22\n漢字\ne\u0301        3\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestQuoteForBash checks that bash reads back what Quote writes.
func TestQuoteForBash(t *testing.T) {
	args := []string{"a b", "it's", `"`, "$HOME", "`id`", "", "*", "a\nb", "~", "-n", "x;y", `\`, "ä", "!", "#c",
		"{1..3}", "=", "a=b"}
	out, err := exec.Command("bash", "-c", "printf '%s\\0' "+Quote(args)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); fmt.Sprintf("%q", got) != fmt.Sprintf(
		"%q", args) {
		t.Errorf("%q became %q", args, got)
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain ä 漢":        "plain ä 漢",
		"a\x1b[31mb":       "a\uFFFD[31mb",
		"a\nb\tc\rd":       "a\uFFFDb\uFFFDc\uFFFDd",
		"a\u009bb\x7f":     "a\uFFFDb\uFFFD",
		"abc\u202edef":     "abc\uFFFDdef",
		"bad\xff":          "bad\uFFFD",
		"sep\u2028\u2066x": "sep\uFFFD\uFFFDx",
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestPrinter checks that gaps count from the reader's offset in their stream.
func TestPrinter(t *testing.T) {
	var out, err bytes.Buffer
	p := &Printer{Stdout: &out, Stderr: &err}
	for _, ev := range []proto.Event{
		{Type: proto.EventStdout, Data: "ab"}, {Type: proto.EventStderr, DataBase64: []byte("\xff")},
		{Type: proto.EventGap, Stream: "stdout", Offset: 2, Until: 10}, {Type: proto.EventStdout, Offset: 10,
			Data: "c"},
		{Type: proto.EventGap, Stream: "stderr", Offset: 1, Until: 4}, {Type: proto.EventReady},
	} {
		if e := p.Print(ev); e != nil {
			t.Fatal(e)
		}
	}
	if out.String() != "abc" || err.String() != "\xff" || p.Had != [2]int64{11, 4} ||
		p.Missed() != "8 bytes of stdout and 3 of stderr are missing" {
		t.Errorf("%q %q %v %q", out.String(), err.String(), p.Had, p.Missed())
	}
}

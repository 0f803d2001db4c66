package term

import (
	"bytes"
	"io"
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

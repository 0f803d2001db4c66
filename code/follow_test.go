package code_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"berth/code"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// A client that follows a cell sees each display when the code shows it, between the output before and after it.
func TestDisplaysAreFollowed(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	const text = "print('bé', end='')\ndisplay('x')\nprint('after')\ndisplay(2)\ndisplay(3)\n" +
		"from pathlib import Path\nimport time\nwhile not Path('go').exists(): time.sleep(0.01)\n" +
		"print('end')\n'main'"
	for range 2 { // the second is another cell of the interpreter
		var got []string
		res, err := b.run.Cell(t.Context(), sessiontest.Owner, s.ID(), "main", code.Cell{Code: text},
			func(p proto.Progress) error {
				switch p.Type {
				case proto.ProgressStart:
					got = append(got, fmt.Sprint("cell ", p.ExecutionCount))
				case proto.ProgressDisplay:
					got = append(got, fmt.Sprintf("%s %v %s", p.Display.Text, p.Display.Main, p.Display.Rich["text/plain"]))
					if p.Display.Text == "3" { // the code goes on only when this has been seen
						b.once(t, proto.Program{Code: "open('go', 'w')", Container: s.ID()})
					}
				default:
					if last := len(got) - 1; strings.HasPrefix(got[last], p.Type+":") {
						got[last] += p.Data
					} else {
						got = append(got, p.Type+":"+p.Data)
					}
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{fmt.Sprint("cell ", res.ExecutionCount), "stdout:bé", `'x' false "'x'"`, "stdout:after\n",
			`2 false "2"`, `3 false "3"`, "stdout:end\n", `'main' true "'main'"`}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		if len(res.Results) != 4 || *res.MainResult != 3 {
			t.Errorf("the outcome has %q", res.Results)
		}
	}
}

// Displays keep their order among much output, and a program's are followed as a cell's are. Node writes later what a
// pipe has no room for, so its output fits into one.
func TestDisplaysAmongMuchOutput(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	for language, c := range map[string]struct {
		text  string
		times int // each number is printed so often
	}{
		"python": {"for i in range(100):\n  print(f'{i}' * 500)\n  display(i)\n", 500},
		"js":     {"for (let i = 0; i < 100; i++) { console.log(`${i}`.repeat(20)); display(i) }", 20},
	} {
		stdout, shown := 0, 0
		err := b.run.Once(t.Context(), sessiontest.Owner, proto.Program{Code: c.text, Language: language,
			Container: s.ID()}, func(p proto.Progress) error {
			switch p.Type {
			case string(proto.EventStdout):
				stdout += len(p.Data)
			case proto.ProgressDisplay:
				lines := 0
				for i := range shown + 1 {
					lines += c.times*len(fmt.Sprint(i)) + 1
				}
				if p.Display.Text != fmt.Sprint(shown) || stdout != lines {
					return fmt.Errorf("display %s is number %d, after %d bytes; want %d", p.Display.Text, shown, stdout, lines)
				}
				shown++
			}
			return nil
		}, func(code.Outcome) error { return nil })
		if err != nil || shown != 100 {
			t.Errorf("%s: %d displays, %v", language, shown, err)
		}
	}
}

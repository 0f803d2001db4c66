package build

import (
	"strings"
	"testing"

	"berth/proto"
)

// The end of a step's output has whole lines, whatever pieces the two streams came in.
func TestLastLines(t *testing.T) {
	type piece struct {
		from proto.Stream
		text string
	}
	for _, c := range []struct {
		pieces []piece
		want   string
	}{
		{nil, ""},
		{[]piece{{proto.Stdout, "1\n2"}, {proto.Stderr, "why\n"}, {proto.Stdout, "\n3\n"}}, "1\nwhy\n2\n3\n"},
		{[]piece{{proto.Stdout, "no"}, {proto.Stderr, "ne "}, {proto.Stderr, "ends"}}, "no\nne ends\n"},
		{[]piece{{proto.Stdout, strings.Repeat("x", maxLastLines) + "\nlast\n"}}, "last\n"},
		{[]piece{{proto.Stdout, "first\n"}, {proto.Stdout, strings.Repeat("y\n", maxLastLines/2)}},
			strings.Repeat("y\n", maxLastLines/2-1)},
		{[]piece{{proto.Stdout, "a\xff\n"}}, "a\uFFFD\n"},
	} {
		var s buildStep
		for _, p := range c.pieces {
			s.write(p.from, []byte(p.text))
		}
		if got := s.lastLines(); got != c.want {
			t.Errorf("%.60v gives %.60q, want %.60q", c.pieces, got, c.want)
		}
	}
}

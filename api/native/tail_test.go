package native

import (
	"net/http"
	"strings"
	"testing"

	"berth/proto"
)

func TestLineTail(t *testing.T) {
	long := strings.Repeat("x", tailBytes)
	for _, tt := range []struct {
		in    []string
		lines int
		want  string
	}{
		{nil, 3, ""},
		{[]string{"a\nb\nc\n"}, 2, "b\nc\n"},
		{[]string{"a\nb", "b\nc"}, 2, "bb\nc"},
		{[]string{"a\n", "\n", "\n"}, 2, "\n\n"},
		{[]string{"a\n"}, 9, "a\n"},
		{[]string{"\n"}, 1, "\n"},
		{[]string{"a\n", long, "\nb\nc"}, 3, long[4:] + "\nb\nc"},
		{[]string{long, long, long, "\nb"}, 1, "b"},
	} {
		tail := lineTail{lines: tt.lines}
		for _, in := range tt.in {
			tail.add([]byte(in))
		}
		if got := string(tail.last()); got != tt.want {
			t.Errorf("%d lines of %.20q: %.20q (%d bytes), want %.20q (%d)", tt.lines, tt.in, got, len(got), tt.want,
				len(tt.want))
		}
	}
}

// The last lines of a log say where they begin, and are followed by what comes.
func TestLogsTail(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	ended := s.run(t, at, "seq 5; seq 10 12 >&2").Exec
	for query, want := range map[string]string{
		"tail=2&stream=stdout": "4\n5\n at 6", "tail=1&stream=stderr": "12\n at 6", "tail=9&stream=stdout": "1\n2\n3\n4\n5\n at ", "tail=0&stream=stderr": "10\n11\n12\n at ", "tail=3&stream=stdout&follow=true": "3\n4\n5\n at 4",
	} {
		res, text := s.do(t, "GET", at+"/execs/"+ended.ID+"/logs?"+query, nil)
		if got := text + " at " + res.Header.Get(logStart); res.StatusCode != 200 || got != want {
			t.Errorf("%s: %d %q, want %q", query, res.StatusCode, got, want)
		}
	}
	s.want(t, "GET", at+"/execs/"+ended.ID+"/logs?stream=stdout&offset=1&tail=1", nil, http.StatusBadRequest, nil)
	x := s.launch(t, at, proto.Cmd{Command: "seq 4; read x; echo $x; exit 0", OpenStdin: true, Background: true})
	got := make(chan string)
	waitFor := at + "/execs/" + x.ID + "/logs?stream=stdout"
	for text := ""; text != "1\n2\n3\n4\n"; {
		_, text = s.do(t, "GET", waitFor, nil)
	}
	go func() {
		_, text := s.do(t, "GET", waitFor+"&tail=1&follow=true", nil)
		got <- text
	}()
	s.want(t, "POST", at+"/execs/"+x.ID+"/stdin?close=true", strings.NewReader("end\n"), http.StatusOK, nil)
	if text := <-got; text != "4\nend\n" && text != "end\n" { // the second if the request came later
		t.Errorf("%q", text)
	}
}

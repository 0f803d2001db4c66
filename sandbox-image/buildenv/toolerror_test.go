package buildenv

import (
	"errors"
	"slices"
	"testing"
)

// TestFirstError checks that the error of a failed tool names the cause, and contains neither a password nor a path of
// the host.
func TestFirstError(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  string
	}{
		{[]string{"W: old", "E: Failed to fetch http://me:secret@mirror.example/x.deb  404", "E: Unable"},
			"Failed to fetch http://mirror.example/x.deb  404"},
		{[]string{"E: cannot open /var/cache/x/y (2)"}, "cannot open … (2)"},
		{[]string{"E: something", "dpkg: error processing package foo (--configure):",
			"dpkg: error processing package bar (--configure):"},
			"dpkg failed processing package foo (--configure):"},
		{nil, "exit status 1"},
	} {
		var e firstError
		for _, line := range c.lines {
			e.see(line)
		}
		if got := e.or(errors.New("exit status 1")); got != c.want {
			t.Errorf("%q: %q, want %q", c.lines, got, c.want)
		}
	}
}

func TestLineWriter(t *testing.T) {
	var got []string
	w := &lineWriter{f: func(line string) { got = append(got, line) }}
	for _, part := range []string{"on", "e\ntwo\rth", "ree\n", "rest"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
	}
	if want := []string{"one", "two", "three"}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
	for range 100 {
		w.Write(make([]byte, 4096))
	}
	if len(w.part) > maxLine {
		t.Errorf("a line without end holds %d bytes", len(w.part))
	}
}

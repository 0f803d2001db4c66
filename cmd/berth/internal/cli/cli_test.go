package cli

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"berth/cmd/berth/internal/client"
	"berth/proto"
)

func TestPick(t *testing.T) {
	all := []candidate{
		{"container_0000000000000000000abc", "web"}, {"container_0000000000000000001abd", ""},
		{"container_0000000000000000001abe", "abd"}, {"container_1111111111111111111abc", "dup"}, {"container_2222222222222222222fff", "dup"},
	}
	tests := []struct{ text, id, err string }{
		{"container_0000000000000000000abc", all[0].id, ""},
		{"web", all[0].id, ""},
		{"abd", all[2].id, ""}, // a name counts more than the end of an ID
		{"container_1", all[3].id, ""},
		{"2222", all[4].id, ""},
		{"0abc", all[0].id, ""},
		{"fff", "", "no container is called"}, // too short for an end
		{"dup", "", "may be any of several containers: container_1111111111111111111abc, container_2222222222222222222fff"},
		{"0000", "", "may be any of several"},
		{"nosuch", "", "no container is called"},
		{"", "", "empty"},
	}
	for _, tt := range tests {
		id, err := pick("container", proto.ContainerPrefix, tt.text, all)
		if id != tt.id || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %q, %v", tt.text, id, err)
		}
	}
}

func TestParsePlace(t *testing.T) {
	for arg, want := range map[string]place{
		"c:/a":         {"c", "/a"},
		"c:":           {"c", ""},
		"c:a:b":        {"c", "a:b"},
		"./c:a":        {"", "./c:a"},
		"/c:a":         {"", "/c:a"},
		"dir/c:a":      {"", "dir/c:a"},
		"plain":        {"", "plain"},
		"-":            {"", "-"},
		":a":           {"", ":a"},
		"container_x:": {"container_x", ""},
	} {
		if got := parsePlace(arg); got != want {
			t.Errorf("%q: %+v", arg, got)
		}
	}
}

// What quote writes, bash reads back.
func TestQuoteForBash(t *testing.T) {
	args := []string{"a b", "it's", `"`, "$HOME", "`id`", "", "*", "a\nb", "~", "-n", "x;y", `\`, "ä", "!", "#c", "{1..3}", "=", "a=b"}
	out, err := exec.Command("bash", "-c", "printf '%s\\0' "+quote(args)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", args) {
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
		if got := printable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestParseEnv(t *testing.T) {
	t.Setenv("BERTH_TEST_HAS", "it")
	env, err := parseEnv([]string{"A=b=c", "E=", "BERTH_TEST_HAS", "BERTH_TEST_HAS_NOT"})
	if err != nil || fmt.Sprint(env) != "map[A:b=c BERTH_TEST_HAS:it E:]" {
		t.Errorf("%v, %v", env, err)
	}
	if _, err := parseEnv([]string{"=x"}); err == nil {
		t.Error("a variable without a name was taken")
	}
}

func TestEnded(t *testing.T) {
	for _, tt := range []struct {
		end    *proto.End
		status int
	}{
		{&proto.End{Reason: proto.EndExit}, 0},
		{&proto.End{Reason: proto.EndExit, ReturnCode: 7}, 7},
		{&proto.End{Reason: proto.EndSignal, ReturnCode: 139}, 139},
		{&proto.End{Reason: proto.EndNotStarted, ReturnCode: 127}, 127},
		{&proto.End{Reason: proto.EndLost, ReturnCode: -1}, 125},
		{&proto.End{Reason: proto.EndTimeout, ReturnCode: 0}, 125}, // a command that was cut short did not succeed
		{nil, 125},
	} {
		status := 0
		var exit exitError
		if errors.As(ended(proto.Exec{End: tt.end}), &exit) {
			status = exit.status
		}
		if status != tt.status {
			t.Errorf("%+v: %d, want %d", tt.end, status, tt.status)
		}
	}
}

// Gaps count from where the reader was, in the stream they are in.
func TestPrinter(t *testing.T) {
	var out, err bytes.Buffer
	p := &printer{out: &out, err: &err}
	for _, ev := range []proto.Event{
		{Type: proto.EventStdout, Data: "ab"}, {Type: proto.EventStderr, DataBase64: []byte("\xff")},
		{Type: proto.EventGap, Stream: "stdout", Offset: 2, Until: 10}, {Type: proto.EventStdout, Offset: 10, Data: "c"},
		{Type: proto.EventGap, Stream: "stderr", Offset: 1, Until: 4}, {Type: proto.EventReady},
	} {
		if e := p.event(ev); e != nil {
			t.Fatal(e)
		}
	}
	if out.String() != "abc" || err.String() != "\xff" || p.had != [2]int64{11, 4} || p.missed() != "8 bytes of stdout and 3 of stderr are missing" {
		t.Errorf("%q %q %v %q", out.String(), err.String(), p.had, p.missed())
	}
}

func TestPack(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a": "1", "d/b": "22"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("/etc/passwd", filepath.Join(dir, "l")), syscall.Mkfifo(filepath.Join(dir, "p"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	var skipped []string
	if err := pack(&buf, dir, func(name string) { skipped = append(skipped, name) }); err != nil {
		t.Fatal(err)
	}
	var got []string
	for tr := tar.NewReader(&buf); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(tr)
		got = append(got, fmt.Sprintf("%s %c %o %s%s", h.Name, h.Typeflag, h.Mode, text, h.Linkname))
	}
	if want := "[a 0 640 1 d/ 5 755  d/b 0 640 22 l 2 777 /etc/passwd]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if fmt.Sprint(skipped) != "[p]" {
		t.Errorf("left out %v", skipped)
	}
}

// What is sent and what becomes of it are shown from two goroutines.
func TestProgressOfTwo(t *testing.T) {
	p := &progress{a: &app{stderr: io.Discard}, terminal: true}
	var wg sync.WaitGroup
	for _, step := range []string{"sending", "importing"} {
		wg.Go(func() {
			for i := range int64(200) {
				p.at(step, "", i, 200, true)
			}
		})
	}
	wg.Wait()
	p.end()
	if p.at("sending", "", 200, 200, true); p.bar != nil {
		t.Error("there is a bar again after the end")
	}
}

// An error says what to do, in a line of its own, and cannot steer the terminal.
func TestReport(t *testing.T) {
	dial := &client.DialError{Host: "http://h", Err: syscall.ECONNREFUSED}
	for _, tt := range []struct {
		err    error
		status int
		want   string
	}{
		{nil, 0, ""},
		{exitError{3}, 3, ""},
		{errInterrupted, 130, "berth: interrupted\n"},
		{dial, 125, "berth: no daemon answers at http://h: connection refused\nhint: start it with `berth serve`, or name a running one with --host or BERTH_HOST\n"},
		{errors.Join(errors.New("a"), errors.New("b\x1b[1m")), 125, "berth: a\nberth: b\uFFFD[1m\n"},
	} {
		var buf bytes.Buffer
		a := &app{stderr: &buf}
		if status := a.report(tt.err); status != tt.status || buf.String() != tt.want {
			t.Errorf("%v: %d %q", tt.err, status, buf.String())
		}
	}
}

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/cli/term"
	"berth/client"
	"berth/proto"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestPick(t *testing.T) {
	all := []candidate{
		{"container_0000000000000000000abc", "web"}, {"container_0000000000000000001abd", ""},
		{"container_0000000000000000001abe", "abd"}, {"container_1111111111111111111abc", "dup"},
		{"container_2222222222222222222fff", "dup"},
	}
	tests := []struct{ text, id, err string }{
		{"container_0000000000000000000abc", all[0].id, ""},
		{"web", all[0].id, ""},
		{"abd", all[2].id, ""}, // a name counts more than the end of an ID
		{"container_11111111", all[3].id, ""},
		{"22222222", all[4].id, ""},
		{"0abc", all[0].id, ""},
		// Everything begins so, and the next command may be rm.
		{"container_", "", "too little of an ID"},
		{"c", "", "too little of an ID"},
		{"container_1", "", "too little of an ID"},
		{"2222222", "", "too little of an ID"},
		{"fff", "", "no container is called"}, // too short for an end
		{"dup", "", "may be any of several containers: container_1111111111111111111abc, " +
			"container_2222222222222222222fff"},
		{"00000000", "", "may be any of several"},
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

// The newest command is not an interpreter, whatever became of that.
func TestNewest(t *testing.T) {
	list := []proto.Exec{
		{ID: "a", Command: "sleep 9"}, {ID: "b", Command: "python context main"},
		{ID: "c", Command: "js interpreter for run_code"},
	}
	if id, err := newest("container_x", list); id != "a" || err != nil {
		t.Errorf("%q, %v", id, err)
	}
	if _, err := newest("container_x", list[1:]); proto.CodeOf(err) != proto.NotFound {
		t.Error(err)
	}
	for _, e := range []proto.Exec{
		{Command: "python context main", Background: true}, {Command: "python: context main"},
		{Command: "make context main"}, {Command: "python context a b"}, {Argv: []string{"python"}},
	} {
		if interpreter(e) {
			t.Errorf("%+v was taken for an interpreter", e)
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
	args := []string{"a b", "it's", `"`, "$HOME", "`id`", "", "*", "a\nb", "~", "-n", "x;y", `\`, "ä", "!", "#c",
		"{1..3}", "=", "a=b"}
	out, err := exec.Command("bash", "-c", "printf '%s\\0' "+term.Quote(args)).Output()
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
		if got := term.Printable(in); got != want {
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
		{Type: proto.EventGap, Stream: "stdout", Offset: 2, Until: 10}, {Type: proto.EventStdout, Offset: 10,
			Data: "c"},
		{Type: proto.EventGap, Stream: "stderr", Offset: 1, Until: 4}, {Type: proto.EventReady},
	} {
		if e := p.event(ev); e != nil {
			t.Fatal(e)
		}
	}
	if out.String() != "abc" || err.String() != "\xff" || p.had != [2]int64{11, 4} ||
		p.missed() != "8 bytes of stdout and 3 of stderr are missing" {
		t.Errorf("%q %q %v %q", out.String(), err.String(), p.had, p.missed())
	}
}

// What an interrupted examination found says nothing of the machine.
func TestInterruptedDoctor(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	var out bytes.Buffer
	a := &app{Output: term.Output{Stdout: &out}, cfg: Config{Doctor: func(ctx context.Context, _ DoctorOptions, report func(Finding)) error {
		report(Finding{Name: "kernel", Grade: GradeOK})
		interrupt()
		report(Finding{Name: "trial", Grade: GradeFail, Found: ctx.Err().Error()})
		return nil
	}}, host: "127.0.0.1:1"}
	cmd := a.doctorCommand()
	cmd.SetArgs([]string{})
	if err := cmd.ExecuteContext(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(out.String(), "kernel") ||
		strings.Contains(out.String(), "FAIL") || strings.Contains(out.String(), "daemon") {
		t.Errorf("%v; %s", err, out.String())
	}
}

// What cannot be printed is no clean bill of health.
func TestDoctorThatNobodyCanRead(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"--quick"}, {"--quick", "--json"}} {
		a := &app{Output: term.Output{Stdout: full, Stderr: io.Discard}, cfg: Config{Doctor: func(_ context.Context, _ DoctorOptions,
			report func(Finding)) error {
			report(Finding{Name: "kernel", Grade: GradeOK})
			return nil
		}}, host: "127.0.0.1:1"}
		cmd := a.doctorCommand()
		cmd.SetArgs(args)
		if err := cmd.Execute(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// The longest time is for who sits in front of it; all else has what the daemon gives.
func TestTimeoutOfACommand(t *testing.T) {
	for _, tt := range []struct {
		flags execFlags
		want  float64
	}{
		{execFlags{}, 0},
		{execFlags{interactive: true}, 0},
		{execFlags{detach: true}, 0},
		{execFlags{tty: true}, 24 * 3600},
		{execFlags{tty: true, timeout: time.Minute}, 60},
		{execFlags{timeout: time.Minute}, 60},
	} {
		if cmd, err := tt.flags.command([]string{"true"}); err != nil || cmd.TimeoutSeconds != tt.want {
			t.Errorf("%+v: %v s, %v", tt.flags, cmd.TimeoutSeconds, err)
		}
	}
}

// Backquotes in the usage of a flag name its value, and a command that is quoted so is none.
func TestUsagesNameOneWord(t *testing.T) {
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); strings.Contains(name, " ") {
				t.Errorf("the help of %s has --%s %s", cmd.CommandPath(), f.Name, name)
			}
		})
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(New(Config{}))
}

// Figures that cannot be written take nothing else away, nor the status of code that failed.
func TestFiguresThatCannotBeWritten(t *testing.T) {
	for _, failed := range []bool{false, true} {
		var out, said bytes.Buffer
		a := &app{Output: term.Output{Stdout: &out, Stderr: &said}}
		res := proto.Outcome{Results: []string{"42"}, Rich: []proto.Bundle{
			{"image/svg+xml": json.RawMessage(`"<svg/>"`)}}}
		if failed {
			res.Error, res.ErrorDetail = "ZeroDivisionError", &proto.ErrorDetail{}
		}
		err := a.outcome(res, filepath.Join(t.TempDir(), "gone"), nil)
		if status := a.report(err); status != map[bool]int{false: 125, true: 1}[failed] || out.String() != "42\n" ||
			!strings.Contains(said.String(), "figure-1.svg: no such file") {
			t.Errorf("%v: status %d, %q, %q", failed, status, out.String(), said.String())
		}
	}
}

// An error says what to do, in a line of its own, and cannot steer the terminal.
func TestReport(t *testing.T) {
	dial := &client.DialError{Host: "http://h", Err: syscall.ECONNREFUSED}
	http := proto.Errorf(proto.NotFound, "", "", "gone; GET it")
	for _, tt := range []struct {
		err    error
		status int
		want   string
	}{
		{nil, 0, ""},
		{exitError{3}, 3, ""},
		{errInterrupted, 130, "berth: interrupted\n"},
		{dial, 125, "berth: no daemon answers at http://h: connection refused\nhint: start it with `berth serve`, " +
			"or name a running one with --host or BERTH_HOST\n"},
		{errors.Join(errors.New("a"), errors.New("b\x1b[1m")), 125, "berth: a\nberth: b\uFFFD[1m\n"},
		{&hintError{errInterrupted, "go on"}, 130, "berth: interrupted\nhint: go on\n"},
		{interruption{syscall.SIGINT}, 130, "berth: interrupted\n"},
		{&hintError{interruption{syscall.SIGTERM}, "go on"}, 143, "berth: terminated\nhint: go on\n"},
		{fmt.Errorf("%w: %w", interruption{syscall.SIGHUP}, context.Canceled), 129, "berth: hangup\n"},
		{&client.MissingError{Err: http, Kind: "skills", Name: "s"}, 125, "berth: skill \"s\" does not exist\nhint: " +
			"`berth skills ls` lists those that there are\n"},
		{&client.MissingError{Err: http, Kind: "versions", Name: "v", In: "s t"}, 125, "berth: version \"v\" does " +
			"not exist in s t\nhint: `berth skills show 's t'` lists those that there are\n"},
		{&client.MissingError{Err: http, Kind: "execs", Name: "e", In: "c"}, 125, "berth: gone; GET it\nhint: " +
			"`berth ps c` lists those that there are\n"},
		{fmt.Errorf("reading: %w", &client.MissingError{Err: http, Kind: "skills", Name: "s"}), 125,
			"berth: reading: gone; GET it\nhint: `berth skills ls` lists those that there are\n"},
	} {
		var buf bytes.Buffer
		a := &app{Output: term.Output{Stderr: &buf}}
		if status := a.report(tt.err); status != tt.status || buf.String() != tt.want {
			t.Errorf("%v: %d %q", tt.err, status, buf.String())
		}
	}
}

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/cli/app"
	"berth/cli/term"
	"berth/proto"
)

// TestQuoteForBash checks that bash reads back what Quote writes.
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
		var exit app.ExitError
		if errors.As(ended(proto.Exec{End: tt.end}), &exit) {
			status = exit.Status
		}
		if status != tt.status {
			t.Errorf("%+v: %d, want %d", tt.end, status, tt.status)
		}
	}
}

// TestPrinter checks that gaps count from the reader's offset in their stream.
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

// TestTimeoutOfACommand checks that a command with a terminal gets the longest timeout and others get the daemon's.
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

// TestUsagesNameOneWord checks that backquotes in a flag's usage enclose its value and not a command.
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
	look(New(app.Config{}))
}

// TestFiguresThatCannotBeWritten checks that unwritable figures hide neither other output nor the status of failed
// code.
func TestFiguresThatCannotBeWritten(t *testing.T) {
	for _, failed := range []bool{false, true} {
		var out, said bytes.Buffer
		a := &app.App{Output: term.Output{Stdout: &out, Stderr: &said}}
		res := proto.Outcome{Results: []string{"42"}, Rich: []proto.Bundle{
			{"image/svg+xml": json.RawMessage(`"<svg/>"`)}}}
		if failed {
			res.Error, res.ErrorDetail = "ZeroDivisionError", &proto.ErrorDetail{}
		}
		err := reportOutcome(a, res, filepath.Join(t.TempDir(), "gone"), nil)
		if status := a.ReportError(err); status != map[bool]int{false: 125, true: 1}[failed] ||
			out.String() != "42\n" ||
			!strings.Contains(said.String(), "figure-1.svg: no such file") {
			t.Errorf("%v: status %d, %q, %q", failed, status, out.String(), said.String())
		}
	}
}

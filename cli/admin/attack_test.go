package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"berth/cli/app"
	"berth/cli/term"
	"berth/proto"
	"berth/test/attack"
)

// someReports returns the reports of a run with every verdict.
func someReports() []attack.Report {
	return []attack.Report{
		{Group: 1, Name: "paths/dots", Tries: "go up", Wants: "a refusal", Happened: "refused", Verdict: attack.Held},
		{Group: 30, Name: "escape/sysrq", Class: proto.ClassRunc, Tries: "write", Wants: "a refusal",
			Happened: "it went\x1b[2J\nthrough", Verdict: attack.Through},
		{Group: 31, Name: "syscalls/x32", Class: proto.ClassGVisor, Tries: "call", Wants: "ENOSYS",
			Happened: "no compiler", Verdict: attack.Untried},
		{Group: 40, Name: "net/arp", Tries: "spoof", Wants: "nothing", Happened: "no network",
			Verdict: attack.Unneeded},
	}
}

func TestAttackTable(t *testing.T) {
	var out bytes.Buffer
	a := &app.App{Output: term.Output{Stdout: &out}}
	if err := printAttacks(a, someReports(), 3*time.Second); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"GROUP", "escape/sysrq", "syscalls/x32", "net/arp", "paths/dots"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %d is %q, want %s", i, lines[i], want)
		}
	}
	if !strings.Contains(lines[1], "THROUGH") || strings.Contains(out.String(), "\x1b") {
		t.Errorf("what got through is not marked, or steers the terminal:\n%s", out.String())
	}
	if !strings.Contains(out.String(), "1 held, 1 got through, 1 could not be tried, 1 do not apply") ||
		!strings.Contains(out.String(), "wanted:   ENOSYS") {
		t.Errorf("no sum, or no explanation:\n%s", out.String())
	}
}

func TestAttackStatus(t *testing.T) {
	all := someReports()
	for i, want := range []int{0, app.StatusThrough, app.StatusUntried, 0} {
		got := 0
		var exit app.ExitError
		if errors.As(attackStatus(all[i:i+1]), &exit) {
			got = exit.Status
		}
		if got != want {
			t.Errorf("%s alone: status %d, want %d", all[i].Verdict, got, want)
		}
	}
	if err := attackStatus(all); err != (app.ExitError{Status: app.StatusThrough}) {
		t.Errorf("all of them: %v", err)
	}
}

func TestAttackJSON(t *testing.T) {
	var out bytes.Buffer
	a := &app.App{Output: term.Output{Stdout: &out, JSON: true}}
	if err := printAttacks(a, someReports(), 0); err != nil {
		t.Fatal(err)
	}
	var got []attack.Report
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got) != 4 || got[0].Wants != "a refusal" {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestCutLast(t *testing.T) {
	rows := [][]string{{"1", "paths/dots", strings.Repeat("x", 100)}}
	cutLast([]string{"GROUP", "NAME", "WHAT"}, rows, 60)
	if n := len([]rune(rows[0][2])); n != 60-(5+3)-(10+3) {
		t.Errorf("%d characters are left", n)
	}
	cutLast([]string{"GROUP", "NAME", "WHAT"}, rows, 0)
	cutLast([]string{"GROUP", "NAME", "WHAT"}, rows, 10) // too narrow: the minimum width is kept
	if n := len([]rune(rows[0][2])); n != minCell {
		t.Errorf("%d characters are left of a narrow terminal", n)
	}
}

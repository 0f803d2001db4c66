package attack_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"berth/client"
	"berth/proto"
	"berth/test/attack"
	"berth/test/attacktest"
	"berth/test/daemontest"
	"berth/test/needs"
)

var (
	full   = flag.Bool("attack.full", false, "also try what is slow, and race as many rounds as berth attack does")
	rounds = flag.Int("attack.rounds", 2000, "rounds of each race")
)

var (
	target  *daemontest.Daemon
	program string // that is copied into containers: this test itself need not be static
)

func TestMain(m *testing.M) {
	needs.Main("attack a daemon with real containers")
	os.Exit(func() int {
		var err error
		if program, err = daemontest.Binary(); err == nil {
			target, err = attacktest.Start()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "preparing the attacks:", err)
			return 1
		}
		defer target.Close()
		return m.Run()
	}())
}

// options are those of the tests.
func options() attack.Options {
	c, err := client.New(client.Config{Host: target.URL, Key: target.Key})
	if err != nil {
		panic(err) // the URL is the daemon's own
	}
	o := attack.Options{Client: c, Quick: !*full, Rounds: *rounds, Program: program}
	if *full {
		o.Rounds = 0
	}
	return o
}

// Every attack is held, in every runtime class.
func TestAttacks(t *testing.T) {
	for _, step := range options().Plan([]proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor}) {
		t.Run(strings.TrimSuffix(step.Name+"/"+string(step.Class), "/"), func(t *testing.T) {
			if !step.Alone {
				t.Parallel()
			}
			o := options()
			o.Cases = []attack.Case{step.Case}
			if step.Class != "" {
				o.Classes = []proto.RuntimeClass{step.Class}
			}
			err := attack.Run(t.Context(), o, func(r attack.Report) {
				if r.Verdict != attack.Held && r.Verdict != attack.Unneeded {
					t.Errorf("%s: %s", r.Verdict, r.Happened)
				}
				t.Logf("%s in %.1f s: %.300s", r.Verdict, r.Seconds, r.Happened)
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Each case says what it is.
func TestCasesAreDescribed(t *testing.T) {
	for _, c := range attack.Cases() {
		if area, what, ok := strings.Cut(c.Name, "/"); !ok || area == "" || what == "" ||
			strings.ContainsAny(c.Name, " _") {
			t.Errorf("%q is not an area and what is tried there", c.Name)
		}
		if c.Group < 1 || c.Group > 52 || c.Tries == "" || c.Wants == "" || c.Run == nil {
			t.Errorf("%s lacks something", c.Name)
		}
	}
}

// verdictOf runs one made-up case.
func verdictOf(t *testing.T, run func(context.Context, *attack.Target) (string, error)) attack.Report {
	t.Helper()
	o := options()
	o.Cases = []attack.Case{{Group: 1, Name: "test/made-up", Tries: "nothing", Wants: "nothing", Run: run}}
	var got []attack.Report
	if err := attack.Run(t.Context(), o, func(r attack.Report) { got = append(got, r) }); err != nil || len(got) != 1 {
		t.Fatalf("%v, %d reports", err, len(got))
	}
	return got[0]
}

// Only what was seen to hold counts as held.
func TestVerdicts(t *testing.T) {
	for name, tt := range map[string]struct {
		happened string
		err      error
		want     attack.Verdict
	}{
		"held":         {"it was refused", nil, attack.Held},
		"says nothing": {"", nil, attack.Untried},
		"got through":  {"", attack.Breached("it came out"), attack.Through},
		"wrapped":      {"", fmt.Errorf("then: %w", attack.Breached("it came out")), attack.Through},
		"not here":     {"", &attack.NotHere{Why: "no such thing"}, attack.Unneeded},
		"went wrong":   {"it was refused", errors.New("no daemon"), attack.Untried},
		"typed error":  {"", proto.Errorf(proto.NotFound, "", "", "nothing there"), attack.Untried},
		"out of time":  {"", context.DeadlineExceeded, attack.Untried},
	} {
		t.Run(name, func(t *testing.T) {
			got := verdictOf(t, func(context.Context, *attack.Target) (string, error) { return tt.happened, tt.err })
			if got.Verdict != tt.want {
				t.Errorf("%s: %s", got.Verdict, got.Happened)
			}
		})
	}
}

// A refusal must be the right one.
func TestRefused(t *testing.T) {
	refusal := proto.Errorf(proto.InvalidArgument, "", "mounts", "no such field")
	var breach *attack.Breach
	if _, err := attack.Refused(nil, proto.NotFound); !errors.As(err, &breach) {
		t.Errorf("what was accepted: %v", err)
	}
	if _, err := attack.Refused(refusal, proto.NotFound, proto.Expired); !errors.As(err, &breach) ||
		!strings.Contains(err.Error(), "not_found or expired") {
		t.Errorf("the wrong code: %v", err)
	}
	if _, err := attack.Refused(proto.Errorf(proto.Unavailable, "", "", "gone"), proto.NotFound); err == nil ||
		errors.As(err, &breach) {
		t.Errorf("no answer: %v", err)
	}
	if happened, err := attack.Refused(refusal, proto.InvalidArgument); err != nil ||
		!strings.Contains(happened, "no such field") {
		t.Errorf("the right code: %q, %v", happened, err)
	}
}

// A case leaves nothing behind, and an interruption ends the run and removes what the case had made.
func TestTidyAndInterrupt(t *testing.T) {
	var made, neighbours string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := options()
	undone := false
	o.Cases = []attack.Case{{Group: 1, Name: "test/interrupted", Tries: "nothing", Wants: "nothing",
		Run: func(ctx context.Context, t *attack.Target) (string, error) {
			t.Later(func(context.Context) error { undone = true; return nil })
			con, err := t.Container(ctx, proto.CreateContainer{})
			if err != nil {
				return "", err
			}
			neighbour, err := t.Neighbour(ctx)
			if err != nil {
				return "", err
			}
			other, err := neighbour.Container(ctx, proto.CreateContainer{})
			made, neighbours = con.ID, other.ID
			cancel()
			return "interrupted", err
		}}, {Group: 1, Name: "test/after", Tries: "nothing", Wants: "nothing", Run: func(context.Context,
		*attack.Target) (
		string, error) {
		return "it was tried after the interruption", nil
	}}}
	err := attack.Run(ctx, o, func(r attack.Report) { t.Errorf("%s was reported: %s", r.Name, r.Happened) })
	if !errors.Is(err, context.Canceled) || !undone || made == "" || neighbours == "" {
		t.Errorf("%v, undone %v, containers %q and %q", err, undone, made, neighbours)
	}
	for _, id := range []string{made, neighbours} {
		if status, body, err := target.Do("GET", "/v1/containers/"+id, nil); err != nil || status != 410 &&
			status != 404 {
			t.Errorf("%s is still there: %d %s %v", id, status, body, err)
		}
	}
}

func TestPlan(t *testing.T) {
	both := []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor}
	o := attack.Options{Cases: []attack.Case{{Name: "a/1", Inside: true}, {Name: "a/2", Slow: true}, {Name: "b/1"}}}
	for want, o := range map[string]attack.Options{
		"a/1 runc, a/1 gvisor, a/2 , b/1 ": o,
		"a/1 runc, a/1 gvisor, b/1 ":       {Cases: o.Cases, Quick: true},
		"a/2 , b/1 ":                       {Cases: o.Cases, Only: []string{"b", "a/2"}},
		"a/1 gvisor":                       {Cases: o.Cases, Only: []string{"a/1"}, Classes: both[1:]},
	} {
		var got []string
		for i, s := range o.Plan(both) {
			if got = append(got, s.Name+" "+string(s.Class)); s.N != i+1 || s.Of < s.N {
				t.Errorf("%s is the %d-th of %d", s.Name, s.N, s.Of)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

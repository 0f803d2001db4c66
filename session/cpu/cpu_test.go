package cpu

import (
	"fmt"
	"testing"
)

// TestCharges checks who pays, call by call.
func TestCharges(t *testing.T) {
	var m Meter
	m.Restore(State{Generation: 1, Charged: 5, Key: "a"})
	for i, c := range []struct {
		generation int64
		count      float64
		ended      *Command
		running    []string
		want       string
	}{
		{1, 8, nil, nil, "[{a 3}]"},                                         // the next daemon goes on
		{1, 8.001, nil, nil, "[]"},                                          // a ping
		{1, 9.001, &Command{"b", 0.25}, nil, "[{b 0.25} {b 0.75}]"},         // with what it left behind
		{1, 10.001, nil, nil, "[{b 1}]"},                                    // which goes on
		{1, 11.001, &Command{"b", 50}, nil, "[{b 1}]"},                      // a false report is not believed
		{1, 13.001, &Command{"a", 0.5}, []string{"b"}, "[{a 0.5} {b 1.5}]"}, // others run
		{1, 15.001, nil, []string{"a", "b"}, "[{a 1} {b 1}]"},               // none ended
		{1, -1, &Command{"b", 2}, []string{"a"}, "[{b 2}]"},                 // the count is unknown
		{1, 18.001, nil, nil, "[{b 1}]"},
		{2, 3, &Command{"a", 1}, nil, "[{a 1} {a 2}]"}, // a sandbox that nobody saw begin
		{2, 2, nil, nil, "[]"},                         // never less
	} {
		due, now := m.Charge(c.generation, c.count, c.ended, c.running)
		if got := fmt.Sprintf("%.4v", due); got != c.want {
			t.Errorf("call %d: %s, not %s", i, got, c.want)
		}
		if now.Generation != c.generation || now.Charged < c.count {
			t.Errorf("call %d: %+v", i, now)
		}
	}
	m.Begin(3, 4)
	if due, _ := m.Charge(3, 5, nil, nil); fmt.Sprint(due) != "[{a 1}]" {
		t.Errorf("after a start that used 4 s: %v", due)
	}
}

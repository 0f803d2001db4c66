package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A fakeTimer is a clock and the one timer of an alarm.
type fakeTimer struct {
	at   time.Time
	due  time.Time // of the timer; zero: there is none
	fn   func()
	sets int
}

func (f *fakeTimer) now() time.Time { return f.at }

func (f *fakeTimer) after(d time.Duration, fn func()) func() bool {
	f.due, f.fn = f.at.Add(d), fn
	f.sets++
	return func() bool { f.due = time.Time{}; return true }
}

// pass lets time pass and runs the timer each time it is due.
func (f *fakeTimer) pass(d time.Duration) {
	end := f.at.Add(d)
	for !f.due.IsZero() && !f.due.After(end) {
		f.at, f.due = f.due, time.Time{}
		f.fn()
	}
	f.at = end
}

func TestAlarm(t *testing.T) {
	f := &fakeTimer{at: time.Unix(1e9, 0)}
	var rung []string
	a := NewAlarm(f.now, f.after, func(ids []string) { rung = append(rung, ids...) })
	in := func(d time.Duration) time.Time { return f.at.Add(d) }
	expect := func(want ...string) {
		t.Helper()
		if !slices.Equal(rung, want) {
			t.Errorf("it rang for %q, not for %q", rung, want)
		}
		rung = nil
	}
	a.Set("early", in(time.Second))
	f.pass(time.Minute)
	expect() // before Start
	a.Start()
	f.pass(0)
	expect("early")
	a.Set("late", in(time.Hour))
	a.Set("shortened", in(time.Hour))
	a.Set("extended", in(time.Second))
	a.Set("removed", in(time.Second))
	a.Set("shortened", in(2*time.Second))
	a.Set("extended", in(30*time.Minute))
	a.Set("removed", time.Time{})
	f.pass(2*time.Second - 1)
	expect()
	f.pass(1)
	expect("shortened")
	f.at = f.at.Add(-time.Hour) // the clock ran slower than the timer, for whatever reason
	f.pass(90 * time.Minute)
	expect("extended")
	f.pass(time.Hour)
	expect("late")
	sets := f.sets
	if f.pass(time.Hour); f.sets != sets {
		t.Error("a timer runs for nothing")
	}
	a.Set("closed", in(time.Second))
	a.Close()
	f.pass(time.Hour)
	expect()
}

// TestAlarmOfMany sets, moves and removes many times at random, and compares with a plain map.
func TestAlarmOfMany(t *testing.T) {
	f := &fakeTimer{at: time.Unix(1e9, 0)}
	want := map[string]time.Time{}
	a := NewAlarm(f.now, f.after, func(ids []string) {
		for _, id := range ids {
			if !want[id].Equal(f.at) {
				t.Errorf("%s rang at %v, not at %v", id, f.at, want[id])
			}
			delete(want, id)
		}
	})
	a.Start()
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		id, at := fmt.Sprint(random.IntN(200)), f.at.Add(time.Duration(1+random.IntN(300))*time.Second)
		switch random.IntN(4) {
		case 0:
			a.Set(id, time.Time{})
			delete(want, id)
		case 1:
			f.pass(time.Duration(random.IntN(5)) * time.Second)
		default:
			a.Set(id, at)
			want[id] = at
		}
		for id, at := range want {
			if at.Before(f.at) {
				t.Fatalf("%s has not rung", id)
			}
		}
	}
	if f.pass(time.Hour); len(want) != 0 || len(a.byID) != 0 {
		t.Errorf("never rung: %v, kept: %d", want, len(a.byID))
	}
}

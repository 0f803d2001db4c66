package approval

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"berth/proto"
)

// A request takes one decision, before its deadline, and only while its command runs.
func TestDecide(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	soon, past := proto.At(now.Add(time.Second)), proto.At(now)
	for name, tt := range map[string]struct {
		r    Request
		want proto.Code
	}{
		"in time": {Request{Parked: true, ExpiresAt: &soon}, ""},
		"late":    {Request{Parked: true, ExpiresAt: &past}, proto.Expired},
		"gone":    {Request{Parked: true, ExpiresAt: &soon, Gone: true}, proto.Expired},
		"second":  {Request{Decision: &proto.Decision{By: "key_1"}}, proto.Conflict},
		"running": {Request{}, proto.Conflict},
	} {
		d, err := tt.r.Decide(context.Background(), now, "because")
		if tt.want == "" && (err != nil || d.Reason != "because" || d.At != proto.At(now)) ||
			tt.want != "" && proto.CodeOf(err) != tt.want {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
}

func TestSurplus(t *testing.T) {
	list := []Candidate[int]{{Record: 1, Pinned: true}, {Record: 2}, {Record: 3, Bytes: 7}, {Record: 4, Bytes: 3},
		{Record: 5, Old: true}}
	for _, tt := range []struct {
		limits Limits
		want   []int
	}{
		{Limits{Count: 9}, []int{5}},
		{Limits{Count: 3}, []int{5, 2}},
		{Limits{Count: 9, Bytes: 9}, []int{5, 3, 2}},
	} {
		if got := Surplus(tt.limits, list); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %v, not %v", tt.limits, got, tt.want)
		}
	}
}

// Records are pruned every ten minutes, and not after a failed pass.
func TestSweep(t *testing.T) {
	var s Sweeper
	now, failed := time.Now(), error(nil)
	end := func() (int, error) { return 2, failed }
	prune := func(time.Time) (int, error) { return 3, nil }
	for i, want := range []int{3, 0, 3} {
		ended, forgotten, err := s.Sweep(now.Add(time.Duration(i)*5*time.Minute), end, prune)
		if ended != 2 || forgotten != want || err != nil {
			t.Errorf("sweep %d: %d, %d, %v", i, ended, forgotten, err)
		}
	}
	failed = errors.New("no disk")
	if _, forgotten, err := s.Sweep(now.Add(time.Hour), end, prune); forgotten != 0 || !errors.Is(err, failed) {
		t.Errorf("%d, %v", forgotten, err)
	}
}

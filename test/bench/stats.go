package bench

import (
	"math"
	"slices"
)

// A Role says what a measure is in its row.
type Role string

// The roles.
const (
	Ours       Role = "berth"
	Floor      Role = "floor"      // what the machine itself takes
	Comparator Role = "comparator" // another way to run containers
)

// A Measure is what one of a row's participants gave, in all rounds.
type Measure struct {
	Name     string  `json:"name"`
	Role     Role    `json:"role"`
	Unit     string  `json:"unit"` // "ms", "1/s", "MiB/s", …
	N        int     `json:"n"`    // of samples
	P50      float64 `json:"p50"`
	P90      float64 `json:"p90"` // the worse tail: of a rate it is a low one
	P99      float64 `json:"p99"`
	Failures int     `json:"failures,omitempty"`
	Failure  string  `json:"failure,omitempty"` // the first
}

// higher tells units of which more is better.
var higher = []string{"1/s", "MiB/s"}

// summarize makes percentiles of samples, by nearest rank. The tail is the worse end.
func (m *Measure) summarize(samples []float64) {
	m.N = len(samples)
	if m.N == 0 {
		return
	}
	sorted := slices.Clone(samples)
	slices.Sort(sorted)
	if slices.Contains(higher, m.Unit) {
		slices.Reverse(sorted)
	}
	m.P50, m.P90, m.P99 = rank(sorted, 50), rank(sorted, 90), rank(sorted, 99)
}

// rank is the nearest-rank percentile of what is sorted from better to worse.
func rank(sorted []float64, percent float64) float64 {
	i := int(math.Ceil(percent/100*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// A Ratio compares two measures, or two percentiles of one.
type Ratio struct {
	Name   string  `json:"name"` // "berth / bare spawn"
	Value  float64 `json:"value"`
	Higher bool    `json:"higher,omitempty"` // more is better
	Target float64 `json:"target,omitempty"` // to be held; 0: none
	Gated  bool    `json:"gated,omitempty"`  // an earlier run's value is compared with it
}

// A goal is what a ratio ought to be.
type goal struct {
	at     float64
	higher bool
	// not compared with earlier runs: tails, what settles differently each time, what stands on one sample, and what
	// holds nothing of ours
	loose bool
}

func atMost(v float64) goal  { return goal{at: v} }
func atLeast(v float64) goal { return goal{at: v, higher: true} }

// lower and more are goals without a number.
var (
	lower = goal{}
	more  = goal{higher: true}
)

// untracked is the goal without the comparison to earlier runs.
func (g goal) untracked() goal {
	g.loose = true
	return g
}

// Held says whether a ratio is where it ought to be. One without a target is.
func (r Ratio) Held() bool {
	switch {
	case r.Target == 0:
		return true
	case r.Higher:
		return r.Value >= r.Target
	}
	return r.Value <= r.Target
}

// worse says whether r is worse than an earlier run's, by more than the factor slack.
func (r Ratio) worse(earlier Ratio, slack float64) bool {
	if r.Higher {
		return r.Value < earlier.Value/slack
	}
	return r.Value > earlier.Value*slack
}

// better is the better of two values of the same ratio.
func (r Ratio) better(other Ratio) Ratio {
	if other.Value != 0 && (r.Value == 0 || r.worse(other, 1)) {
		return other
	}
	return r
}

// sum is the sum of medians, for floors that are made of parts.
func sum(ms ...*Measure) (total float64) {
	for _, m := range ms {
		if m != nil {
			total += m.P50
		}
	}
	return total
}

package bench

import (
	"math"
	"slices"
)

// A Role is the role of a measure in its row.
type Role string

// The roles.
const (
	Ours       Role = "berth"
	Floor      Role = "floor"      // the cost on the machine itself
	Comparator Role = "comparator" // another way to run containers
)

// A Measure summarizes the samples of one participant in all rounds.
type Measure struct {
	Name     string  `json:"name"`
	Role     Role    `json:"role"`
	Unit     string  `json:"unit"` // "ms", "1/s", "MiB/s", …
	N        int     `json:"n"`    // number of samples
	P50      float64 `json:"p50"`
	P90      float64 `json:"p90"` // of the worse tail: for a rate, a low value
	P99      float64 `json:"p99"`
	Failures int     `json:"failures,omitempty"`
	Failure  string  `json:"failure,omitempty"` // the first one
}

// higher lists the units for which a higher value is better.
var higher = []string{"1/s", "MiB/s"}

// summarize computes percentiles by nearest rank. The tail is the worse end.
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

// rank returns a nearest-rank percentile of samples that are sorted from better to worse.
func rank(sorted []float64, percent float64) float64 {
	i := int(math.Ceil(percent/100*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// A Ratio compares two measures, or two percentiles of one.
type Ratio struct {
	Name   string  `json:"name"` // "berth / bare spawn"
	Value  float64 `json:"value"`
	Higher bool    `json:"higher,omitempty"` // higher is better
	Target float64 `json:"target,omitempty"` // required value; 0: none
	Gated  bool    `json:"gated,omitempty"`  // compared with the value of an earlier run
}

// A goal is the goal for a ratio.
type goal struct {
	at     float64
	higher bool
	// Not compared with earlier runs: tails, values that settle differently each time, values from one sample, and
	// ratios that do not involve berth.
	loose bool
}

func atMost(v float64) goal  { return goal{at: v} }
func atLeast(v float64) goal { return goal{at: v, higher: true} }

// Goals without a required value.
var (
	lower = goal{}
	more  = goal{higher: true}
)

// untracked returns the goal without the comparison with earlier runs.
func (g goal) untracked() goal {
	g.loose = true
	return g
}

// Held reports whether a ratio meets its target. A ratio without a target does.
func (r Ratio) Held() bool {
	switch {
	case r.Target == 0:
		return true
	case r.Higher:
		return r.Value >= r.Target
	}
	return r.Value <= r.Target
}

// worse reports whether r is worse than in an earlier run by more than the factor slack.
func (r Ratio) worse(earlier Ratio, slack float64) bool {
	if r.Higher {
		return r.Value < earlier.Value/slack
	}
	return r.Value > earlier.Value*slack
}

// better returns the better of two values of the same ratio.
func (r Ratio) better(other Ratio) Ratio {
	if other.Value != 0 && (r.Value == 0 || r.worse(other, 1)) {
		return other
	}
	return r
}

// sum returns the sum of medians, for floors that have several parts.
func sum(ms ...*Measure) (total float64) {
	for _, m := range ms {
		if m != nil {
			total += m.P50
		}
	}
	return total
}

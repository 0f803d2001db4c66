package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// slack is how much worse a ratio may be than the committed one, as a factor.
const slack = 1.2

// A Regression is a ratio that got worse than slack allows, or what does not hold without a number: a row that fails
// now, or something of the earlier run that was not measured.
type Regression struct {
	Row, Ratio string // Row is "" if it is of the whole run
	Was, Is    float64
	Failed     string // instead of numbers
}

func (r Regression) String() string {
	switch {
	case r.Row == "":
		return r.Failed
	case r.Failed != "":
		return r.Row + ": " + r.Failed
	}
	return fmt.Sprintf("%s: %s was %.3g and is %.3g", r.Row, r.Ratio, r.Was, r.Is)
}

// Compare looks for ratios that are worse than an earlier run's. A row or a ratio that the earlier run has and this
// one lacks is worse too: what is not measured does not hold. What the options left out is not compared, nor is what
// has no past; the second list names it.
func Compare(earlier, now Report, o Options) (worse []Regression, alone []string) {
	c := comparison{alone: o.Alone}
	for _, res := range now.Rows {
		c.row(earlier.row(res.Row), res)
	}
	for _, was := range earlier.Rows {
		if len(o.Rows) == 0 && was.measured() && now.row(was.Row) == nil {
			c.lacks(was.Row, "it was not measured")
		}
	}
	if c.compared == 0 && len(c.worse) == 0 {
		c.lacks("", "nothing was compared")
	}
	return c.worse, c.uncompared
}

// A comparison is one of two runs.
type comparison struct {
	alone      bool // without comparators
	worse      []Regression
	uncompared []string
	compared   int // ratios
}

// lacks is for what does not hold without a number.
func (c *comparison) lacks(row, why string) {
	c.worse = append(c.worse, Regression{Row: row, Failed: why})
}

// row compares one with its past, which is nil if it has none.
func (c *comparison) row(was *Result, is Result) {
	switch {
	case is.Failed != "":
		c.lacks(is.Row, "it failed: "+is.Failed)
		return
	case was == nil || !was.measured():
		c.uncompared = append(c.uncompared, is.Row+" (nothing to compare with)")
		return
	case is.Skipped != "":
		c.lacks(is.Row, "it was not measured: "+is.Skipped)
		return
	}
	for _, r := range was.Ratios {
		if r.Gated {
			c.ratio(*was, r, is)
		}
	}
	for _, r := range is.Ratios {
		if r.Gated && was.ratioOf(r.Name) == nil {
			c.uncompared = append(c.uncompared, is.Row+": "+r.Name)
		}
	}
}

// ratio compares one of the earlier run.
func (c *comparison) ratio(was Result, r Ratio, is Result) {
	switch now := is.ratioOf(r.Name); {
	case now == nil && c.alone && was.compares(r), now != nil && !now.Gated:
		c.uncompared = append(c.uncompared, is.Row+": "+r.Name)
	case now == nil:
		c.lacks(is.Row, r.Name+" was not measured"+is.whyMissing(r))
	default:
		if c.compared++; now.worse(r, slack) {
			c.worse = append(c.worse, Regression{Row: is.Row, Ratio: r.Name, Was: r.Value, Is: now.Value})
		}
	}
}

// compares says whether a ratio is one to a comparator, by whose name it ends.
func (r Result) compares(ratio Ratio) bool {
	return slices.ContainsFunc(r.Measures, func(m Measure) bool {
		return m.Role == Comparator &&
			strings.HasSuffix(ratio.Name, " "+m.Name)
	})
}

// whyMissing is what the result says of the comparator of a ratio that it has not, in parentheses; "" if nothing.
func (r Result) whyMissing(ratio Ratio) string {
	for _, m := range r.Missing {
		if strings.Contains(ratio.Name, " "+m.Name) {
			return fmt.Sprintf(" (%s: %s)", m.Name, m.Reason)
		}
	}
	return ""
}

// moreTries is how often a row with a ratio that got worse is measured again: other work on the machine makes numbers
// worse and never better, so the best of the tries counts.
const moreTries = 2

// Check measures like Run and compares with an earlier run. Rows with a ratio that is worse are measured again, and
// of each ratio the best counts. What failed or is missing is not tried again: that is no other work's doing.
func Check(ctx context.Context, o Options, earlier Report) (Report, []Regression, []string, error) {
	now, err := Run(ctx, o)
	if err != nil {
		return now, nil, nil, err
	}
	for range moreTries {
		worse, _ := Compare(earlier, now, o)
		again := o
		if again.Rows = slower(worse); len(again.Rows) == 0 {
			break
		}
		more, err := Run(ctx, again)
		if err != nil {
			return now, nil, nil, err
		}
		now = bestOf(now, more)
	}
	worse, alone := Compare(earlier, now, o)
	return now, worse, alone, nil
}

// slower are the rows with a ratio that got worse, and which did not fail beside it.
func slower(worse []Regression) (names []string) {
	for _, w := range worse {
		if w.Failed == "" && !slices.Contains(names, w.Row) {
			names = append(names, w.Row)
		}
	}
	return names
}

// bestOf takes from two runs the best of each ratio. A row that failed in one of them has failed: a leak or a lost
// container is not made good by a try without.
func bestOf(first, second Report) Report {
	best := Merge(first, second)
	for i, res := range best.Rows {
		if was := first.row(res.Row); was != nil {
			best.Rows[i] = was.bestWith(res)
		}
	}
	return best
}

// bestWith is a row after another try.
func (r Result) bestWith(again Result) Result {
	switch {
	case r.Failed != "" || again.Skipped != "":
		return r
	case again.Failed != "":
		return again
	}
	again.Ratios = slices.Clone(again.Ratios)
	for _, was := range r.Ratios {
		if now := again.ratioOf(was.Name); now != nil {
			*now = now.better(was)
		} else {
			again.Ratios = append(again.Ratios, was)
		}
	}
	return again
}

package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/proto"
)

// slack is the factor by which a ratio may be worse than the committed one.
const slack = 1.2

// A Regression is a ratio that got worse by more than slack. It can also be a failure without a number: a row that
// now fails, or something in the earlier run that was not measured.
type Regression struct {
	Row, Ratio string             // Row is "" if it concerns the whole run
	Class      proto.RuntimeClass // of the row, as in Result
	Was, Is    float64
	Failed     string // instead of numbers
}

func (r Regression) String() string {
	name := Result{Row: r.Row, Class: r.Class}.name()
	switch {
	case r.Row == "":
		return r.Failed
	case r.Failed != "":
		return name + ": " + r.Failed
	}
	return fmt.Sprintf("%s: %s was %.3g and is %.3g", name, r.Ratio, r.Was, r.Is)
}

// Compare returns the ratios that are worse than in an earlier run. A row or a ratio that only the earlier run has
// counts as worse. Compare ignores what the options exclude. alone names what only the new run has.
func Compare(earlier, now Report, o Options) (worse []Regression, alone []string) {
	c := comparison{alone: o.Alone, class: classOf(o.Class)}
	for _, res := range now.Rows {
		c.row(earlier.row(res.Row, res.Class), res)
	}
	for _, was := range earlier.Rows {
		if len(o.Rows) == 0 && was.Class == c.class && was.measured() && now.row(was.Row, was.Class) == nil {
			c.lacks(was.Row, "it was not measured")
		}
	}
	if c.compared == 0 && len(c.worse) == 0 {
		c.lacks("", "nothing was compared")
	}
	return c.worse, c.uncompared
}

// A comparison is the state of one call of Compare.
type comparison struct {
	alone      bool // without comparators
	class      proto.RuntimeClass
	worse      []Regression
	uncompared []string
	compared   int // number of compared ratios
}

// lacks records a regression without a number.
func (c *comparison) lacks(row, why string) {
	c.worse = append(c.worse, Regression{Row: row, Class: c.class, Failed: why})
}

// row compares a row with its earlier result, which may be nil.
func (c *comparison) row(was *Result, is Result) {
	switch {
	case is.Failed != "":
		c.lacks(is.Row, "it failed: "+is.Failed)
		return
	case was == nil || !was.measured():
		c.uncompared = append(c.uncompared, is.name()+" (nothing to compare with)")
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
			c.uncompared = append(c.uncompared, is.name()+": "+r.Name)
		}
	}
}

// ratio compares one ratio of the earlier run.
func (c *comparison) ratio(was Result, r Ratio, is Result) {
	switch now := is.ratioOf(r.Name); {
	case now == nil && c.alone && was.compares(r), now != nil && !now.Gated:
		c.uncompared = append(c.uncompared, is.name()+": "+r.Name)
	case now == nil:
		c.lacks(is.Row, r.Name+" was not measured"+is.whyMissing(r))
	default:
		if c.compared++; now.worse(r, slack) {
			c.worse = append(c.worse, Regression{Row: is.Row, Class: c.class, Ratio: r.Name,
				Was: r.Value, Is: now.Value})
		}
	}
}

// compares reports whether a ratio compares with a comparator, whose name is its suffix.
func (r Result) compares(ratio Ratio) bool {
	return slices.ContainsFunc(r.Measures, func(m Measure) bool {
		return m.Role == Comparator &&
			strings.HasSuffix(ratio.Name, " "+m.Name)
	})
}

// whyMissing returns why the comparator of a ratio is missing, in parentheses, or "" if the result does not say.
func (r Result) whyMissing(ratio Ratio) string {
	for _, m := range r.Missing {
		if strings.Contains(ratio.Name, " "+m.Name) {
			return fmt.Sprintf(" (%s: %s)", m.Name, m.Reason)
		}
	}
	return ""
}

// moreTries is how many times a row with a worse ratio is measured again. Other work on the machine only makes
// numbers worse, so the best try counts.
const moreTries = 2

// Check measures like Run and compares the result with an earlier run. It measures rows with a worse ratio again, and
// the best value of each ratio counts. It does not repeat rows that failed or are missing: other work does not cause
// that.
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

// slower returns the rows that have a worse ratio and did not fail.
func slower(worse []Regression) (names []string) {
	for _, w := range worse {
		if w.Failed == "" && !slices.Contains(names, w.Row) {
			names = append(names, w.Row)
		}
	}
	return names
}

// bestOf merges two runs and keeps the better value of each ratio. A row that failed in one run has failed: a second
// try does not excuse a leak or a lost container.
func bestOf(first, second Report) Report {
	best := Merge(first, second)
	for i, res := range best.Rows {
		if was := first.row(res.Row, res.Class); was != nil {
			best.Rows[i] = was.bestWith(res)
		}
	}
	return best
}

// bestWith merges a row with another try.
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

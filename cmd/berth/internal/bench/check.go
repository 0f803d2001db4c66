package bench

import (
	"context"
	"slices"
)

// slack is how much worse a ratio may be than the committed one, as a factor.
const slack = 1.2

// A Regression is a ratio that got worse than slack allows, or a row that fails now.
type Regression struct {
	Row, Ratio string
	Was, Is    float64
	Failed     string // instead of numbers
}

// Compare looks for ratios that are worse than an earlier run's. What only one of the two runs has is not compared, and named in the
// second list: a comparator may be missing here, and new rows have no past.
func Compare(earlier, now Report) (worse []Regression, alone []string) {
	for _, res := range now.Rows {
		if res.Failed != "" {
			worse = append(worse, Regression{Row: res.Row, Failed: res.Failed})
			continue
		}
		if res.Skipped != "" {
			alone = append(alone, res.Row+" (skipped: "+res.Skipped+")")
			continue
		}
		i := slices.IndexFunc(earlier.Rows, func(r Result) bool { return r.Row == res.Row && len(r.Ratios) > 0 })
		if i < 0 {
			alone = append(alone, res.Row+" (nothing to compare with)")
			continue
		}
		was := earlier.Rows[i].Ratios
		for _, r := range was {
			if !r.Gated {
				continue
			}
			j := slices.IndexFunc(res.Ratios, func(n Ratio) bool { return n.Name == r.Name })
			switch {
			case j < 0:
				alone = append(alone, res.Row+": "+r.Name)
			case res.Ratios[j].worse(r, slack):
				worse = append(worse, Regression{Row: res.Row, Ratio: r.Name, Was: r.Value, Is: res.Ratios[j].Value})
			}
		}
	}
	return worse, alone
}

// moreTries is how often a row that got worse is measured again: other work on the machine makes numbers worse and never better, so the
// best of the tries counts.
const moreTries = 2

// Check measures like Run and compares with an earlier run. Rows that are worse are measured again, and of each ratio the best counts.
func Check(ctx context.Context, o Options, earlier Report) (Report, []Regression, []string, error) {
	now, err := Run(ctx, o)
	if err != nil {
		return now, nil, nil, err
	}
	for range moreTries {
		worse, _ := Compare(earlier, now)
		if len(worse) == 0 {
			break
		}
		again := o
		again.Rows = nil
		for _, w := range worse {
			if !slices.Contains(again.Rows, w.Row) {
				again.Rows = append(again.Rows, w.Row)
			}
		}
		more, err := Run(ctx, again)
		if err != nil {
			return now, nil, nil, err
		}
		now = bestOf(now, more)
	}
	worse, alone := Compare(earlier, now)
	return now, worse, alone, nil
}

// bestOf takes from two runs the best of each ratio. A row that failed once and then did not has not failed.
func bestOf(first, second Report) Report {
	best := Merge(first, second)
	for i, res := range best.Rows {
		j := slices.IndexFunc(first.Rows, func(r Result) bool { return r.Row == res.Row })
		if j < 0 {
			continue
		}
		if res.Failed != "" && first.Rows[j].Failed == "" {
			best.Rows[i] = first.Rows[j]
			continue
		}
		best.Rows[i].Ratios = slices.Clone(res.Ratios)
		for k, r := range res.Ratios {
			if n := slices.IndexFunc(first.Rows[j].Ratios, func(o Ratio) bool { return o.Name == r.Name }); n >= 0 {
				best.Rows[i].Ratios[k] = r.better(first.Rows[j].Ratios[n])
			}
		}
	}
	return best
}

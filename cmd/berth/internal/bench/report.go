package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// A Report is one run, or the newest results of several.
type Report struct {
	Stamp Stamp    `json:"stamp"`
	Rows  []Result `json:"rows"`
}

// A Result is what one row gave.
type Result struct {
	Row      string    `json:"row"`
	Does     string    `json:"does"`
	At       time.Time `json:"at"`
	Version  string    `json:"version"` // of berth
	Load     string    `json:"load"`    // average of the last minute when it began
	Seconds  float64   `json:"seconds"` // that it took
	Quick    bool      `json:"quick,omitempty"`
	Measures []Measure `json:"measures,omitempty"`
	Ratios   []Ratio   `json:"ratios,omitempty"`
	Missing  []Missing `json:"missing,omitempty"`
	Notes    []string  `json:"notes,omitempty"`
	Skipped  string    `json:"skipped,omitempty"` // why it was not measured
	Failed   string    `json:"failed,omitempty"`
}

// A Missing is a comparator that did not take part.
type Missing struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// measure is the one of that name; nil if it did not take part.
func (r *Result) measure(name string) *Measure {
	i := slices.IndexFunc(r.Measures, func(m Measure) bool { return m.Name == name })
	if i < 0 || r.Measures[i].N == 0 {
		return nil
	}
	return &r.Measures[i]
}

// add adds a measure that was not taken in turns.
func (r *Result) add(name string, role Role, unit string, samples ...float64) *Measure {
	m := Measure{Name: name, Role: role, Unit: unit}
	m.summarize(samples)
	r.Measures = append(r.Measures, m)
	return &r.Measures[len(r.Measures)-1]
}

// against adds the ratio of ours to each of the others that took part. The goal is that of each.
func (r *Result) against(ours string, g goal, others ...string) {
	for _, other := range others {
		if m := r.measure(other); m != nil {
			r.ratio(ours+" / "+other, r.measure(ours), m.P50, g)
		}
	}
}

// ratio adds one: m's median to something.
func (r *Result) ratio(name string, m *Measure, to float64, g goal) {
	if m != nil && to > 0 {
		r.number(name, m.P50/to, g)
	}
}

// tail adds what the slowest one in a hundred takes, to the median.
func (r *Result) tail(name string, g goal) {
	if m := r.measure(name); m != nil && m.P50 > 0 {
		r.number("p99 / p50 of "+name, m.P99/m.P50, g.untracked())
	}
}

// number adds a ratio that was made elsewhere.
func (r *Result) number(name string, value float64, g goal) {
	r.Ratios = append(r.Ratios, Ratio{Name: name, Value: value, Higher: g.higher, Target: g.at, Gated: !g.loose})
}

// note adds a line that readers of the numbers need.
func (r *Result) note(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, line) {
		r.Notes = append(r.Notes, line)
	}
}

// Failed counts the rows that did.
func (r Report) Failed() (n int) {
	for _, row := range r.Rows {
		if row.Failed != "" {
			n++
		}
	}
	return n
}

// Load reads a report that Save wrote.
func Load(file string) (r Report, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("%s is no report of `berth bench`: %w", file, err)
	}
	return r, nil
}

// Merge puts the rows of a newer report into an older one, each in the place of its former result. So rows can be measured one by one,
// and each says when it was.
func Merge(older, newer Report) Report {
	merged := Report{Stamp: newer.Stamp}
	if merged.Stamp.Versions == nil {
		merged.Stamp.Versions = map[string]string{}
	}
	for name, v := range older.Stamp.Versions {
		if merged.Stamp.Versions[name] == "" {
			merged.Stamp.Versions[name] = v
		}
	}
	for _, r := range rows {
		for _, from := range []Report{newer, older} {
			if i := slices.IndexFunc(from.Rows, func(res Result) bool { return res.Row == r.name }); i >= 0 {
				merged.Rows = append(merged.Rows, from.Rows[i])
				break
			}
		}
	}
	return merged
}

// Save writes a report as JSON, whole or not at all, with the rows that an earlier one in the same file has and this one has not.
func Save(file string, r Report) (Report, error) {
	older, err := Load(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	r = Merge(older, r)
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return r, err
	}
	return r, write(file, append(data, '\n'))
}

// write puts a file in place at once, so that an interruption leaves the former one.
func write(file string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // it is gone after the rename
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

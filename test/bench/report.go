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

	"berth/proto"
)

// A Report holds the results of one run, or the newest results of several runs.
type Report struct {
	Stamp Stamp    `json:"stamp"`
	Rows  []Result `json:"rows"`
}

// A Result is the result of one row.
type Result struct {
	Row string `json:"row"`
	// Class is the runtime class of our containers; "" is runc.
	Class    proto.RuntimeClass `json:"class,omitempty"`
	Does     string             `json:"does"`
	At       time.Time          `json:"at"`
	Version  string             `json:"version"` // of berth
	Load     string             `json:"load"`    // load average of the last minute when the row began
	Seconds  float64            `json:"seconds"` // duration of the row
	Quick    bool               `json:"quick,omitempty"`
	Measures []Measure          `json:"measures,omitempty"`
	Ratios   []Ratio            `json:"ratios,omitempty"`
	Missing  []Missing          `json:"missing,omitempty"`
	Notes    []string           `json:"notes,omitempty"`
	Skipped  string             `json:"skipped,omitempty"` // why it was not measured
	Failed   string             `json:"failed,omitempty"`
}

// A Missing is a comparator that did not take part, or a form of the row that is not measured.
type Missing struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// measure returns the measure with that name, or nil if it did not take part.
func (r *Result) measure(name string) *Measure {
	if m := r.tried(name); m != nil && m.N > 0 {
		return m
	}
	return nil
}

// tried is measure, but also returns one that has always failed.
func (r *Result) tried(name string) *Measure {
	if r == nil {
		return nil
	}
	i := slices.IndexFunc(r.Measures, func(m Measure) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Measures[i]
}

// ratioOf returns the ratio with that name, or nil if there is none.
func (r *Result) ratioOf(name string) *Ratio {
	if r == nil {
		return nil
	}
	i := slices.IndexFunc(r.Ratios, func(o Ratio) bool { return o.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Ratios[i]
}

// measured reports whether the result has reliable numbers.
func (r *Result) measured() bool { return r.Failed == "" && r.Skipped == "" }

// add adds a measure that was not measured in turns.
func (r *Result) add(name string, role Role, unit string, samples ...float64) *Measure {
	m := Measure{Name: name, Role: role, Unit: unit}
	m.summarize(samples)
	r.Measures = append(r.Measures, m)
	return &r.Measures[len(r.Measures)-1]
}

// against adds the ratio of ours to each of the others that took part. Each ratio has the goal g.
func (r *Result) against(ours string, g goal, others ...string) {
	for _, other := range others {
		if m := r.measure(other); m != nil {
			r.ratio(ours+" / "+other, r.measure(ours), m.P50, g)
		}
	}
}

// ratio adds the ratio of m's median to a value.
func (r *Result) ratio(name string, m *Measure, to float64, g goal) {
	if m != nil && to > 0 {
		r.number(name, m.P50/to, g)
	}
}

// tail adds the ratio of the 99th percentile to the median.
func (r *Result) tail(name string, g goal) {
	if m := r.measure(name); m != nil && m.P50 > 0 {
		r.number("p99 / p50 of "+name, m.P99/m.P50, g.untracked())
	}
}

// median adds the median of a measure in its unit, for a target in time or memory. Such a number depends on the machine
// and is not compared with earlier runs.
func (r *Result) median(name string, g goal) {
	if m := r.measure(name); m != nil {
		r.number(name+", "+m.Unit, m.P50, g.untracked())
	}
}

// number adds a ratio that the caller has computed.
func (r *Result) number(name string, value float64, g goal) {
	r.Ratios = append(r.Ratios, Ratio{Name: name, Value: value, Higher: g.higher, Target: g.at, Gated: !g.loose})
}

// note adds a line that explains the numbers.
func (r *Result) note(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, line) {
		r.Notes = append(r.Notes, line)
	}
}

// name returns the name of the row, with the class unless that is runc.
func (r Result) name() string {
	if r.Class == "" {
		return r.Row
	}
	return r.Row + " with " + string(r.Class)
}

// row returns the result of a row in a runtime class, or nil if there is none.
func (r Report) row(name string, class proto.RuntimeClass) *Result {
	i := slices.IndexFunc(r.Rows, func(res Result) bool { return res.Row == name && res.Class == class })
	if i < 0 {
		return nil
	}
	return &r.Rows[i]
}

// classes are the runtime classes whose results a report can have, as in Result.
var classes = []proto.RuntimeClass{"", proto.ClassGVisor}

// classOf returns a runtime class as in Result.
func classOf(class proto.RuntimeClass) proto.RuntimeClass {
	if class == proto.ClassRunc {
		return ""
	}
	return class
}

// Failed returns the number of failed rows.
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

// Merge replaces the rows of an older report by those of a newer one. So rows can be measured one by one, and each
// has its own time.
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
	for _, class := range classes {
		for _, r := range rows {
			for _, from := range []Report{newer, older} {
				if res := from.row(r.name, class); res != nil {
					merged.Rows = append(merged.Rows, *res)
					break
				}
			}
		}
	}
	return merged
}

// Save writes a report as JSON, atomically. It keeps the rows that only the existing file has. It returns the merged
// report. A row that has less content than the existing one does not replace it; kept names such rows.
func Save(file string, r Report) (saved Report, kept []string, err error) {
	older, err := load(file)
	if err != nil {
		return r, nil, err
	}
	if !older.sameMachine(r) {
		if err := older.takes(r); err != nil {
			return r, nil, fmt.Errorf("%s %w", file, err)
		}
		older = Report{} // a row that failed here does not keep a number of the other machine
	}
	var replacing []Result
	for _, res := range r.Rows {
		if why := res.lessThan(older.row(res.Row, res.Class)); why != "" {
			kept = append(kept, fmt.Sprintf("%s (%s)", res.name(), why))
			continue
		}
		replacing = append(replacing, res)
	}
	if r.Rows = replacing; len(replacing) == 0 {
		return older, kept, nil
	}
	r = Merge(older, r)
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return r, kept, err
	}
	return r, kept, write(file, append(data, '\n'))
}

// load is Load for a file that may not exist.
func load(file string) (Report, error) {
	r, err := Load(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return r, err
}

// lessThan returns why a result must not replace an older one, or "" if it may. older is nil if there is none.
func (r *Result) lessThan(older *Result) string {
	switch {
	case older == nil || !older.measured():
		return ""
	case r.Failed != "":
		return "it failed"
	case r.Skipped != "":
		return "it was not measured"
	case r.Quick && !older.Quick:
		return "the new one is of a quick run"
	case older.Quick && !r.Quick:
		return ""
	}
	if r.Class != "" { // comparators take part beside runc
		return ""
	}
	for _, m := range older.Measures {
		if m.Role == Comparator && m.N > 0 && r.measure(m.Name) == nil {
			return "the new one lacks " + m.Name
		}
	}
	return ""
}

// takes returns an error if rows of a newer report cannot be merged with the remaining rows of an older one. Both
// must be of the same machine, since the report has one stamp.
func (r Report) takes(newer Report) error {
	if r.sameMachine(newer) {
		return nil
	}
	for _, res := range r.Rows {
		if newer.row(res.Row, res.Class) == nil {
			return fmt.Errorf("is of another machine (%s, Linux %s; this is %s, Linux %s), and its row %s would "+
				"stay: write a whole new file, at another path or after moving this one away",
				r.Stamp.CPU, r.Stamp.Kernel, newer.Stamp.CPU, newer.Stamp.Kernel, res.name())
		}
	}
	return nil
}

// sameMachine reports whether two reports are of one machine, as far as their stamps say.
func (r Report) sameMachine(other Report) bool {
	return r.Stamp.CPU == other.Stamp.CPU && r.Stamp.Kernel == other.Stamp.Kernel
}

// Fits returns an error if the reports of runs could not be saved to a file. Callers check this before they measure.
func Fits(file string, runs ...Options) error {
	older, err := load(file)
	if err != nil || len(older.Rows) == 0 {
		return err
	}
	newer := Report{Stamp: stampOf("/", "")}
	for _, o := range runs {
		chosen, err := o.chosen()
		if err != nil {
			return err
		}
		for _, r := range chosen {
			newer.Rows = append(newer.Rows, Result{Row: r.name, Class: classOf(o.Class)})
		}
	}
	if err := older.takes(newer); err != nil {
		return fmt.Errorf("%s %w", file, err)
	}
	return nil
}

// write replaces a file atomically, so that an interruption leaves the old one.
func write(file string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after the rename
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

package bench

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"berth/cmd/berth/internal/client"
	"berth/cmd/berth/internal/daemontest"
	"berth/proto"
)

func TestPercentiles(t *testing.T) {
	var up []float64
	for i := range 200 {
		up = append(up, float64(200-i))
	}
	for unit, want := range map[string]Measure{
		"ms":  {Unit: "ms", N: 200, P50: 100, P90: 180, P99: 198},
		"1/s": {Unit: "1/s", N: 200, P50: 101, P90: 21, P99: 3}, // the slow ones are the tail
	} {
		m := Measure{Unit: unit}
		if m.summarize(up); m != want {
			t.Errorf("%s: %+v, want %+v", unit, m, want)
		}
	}
	one, none := Measure{}, Measure{}
	one.summarize([]float64{7})
	none.summarize(nil)
	if one.P50 != 7 || one.P99 != 7 || none.N != 0 || none.P50 != 0 {
		t.Errorf("%+v, %+v", one, none)
	}
}

// report is a run with one ratio for which less is better, one for which more is, and one that nobody compares.
func report(less, more, tail float64) Report {
	res := Result{Row: "exec", Does: "run", Measures: []Measure{{Name: "berth", Role: Ours, Unit: "ms", N: 3, P50: less, P90: 2, P99: 3}}}
	res.number("berth / bare spawn", less, atMost(1.35))
	res.number("rate", more, atLeast(0.85))
	res.number("p99 / p50 of berth", tail, atMost(3).untracked())
	return Report{Stamp: Stamp{Version: "v1"}, Rows: []Result{res}}
}

// The gate lets through what is as good, better, or a little worse, and nothing else.
func TestGate(t *testing.T) {
	for _, tt := range []struct {
		name             string
		less, more, tail float64
		worse            []string
	}{
		{"same", 1, 1, 2, nil},
		{"better", 0.5, 2, 1, nil},
		{"a little worse", 1.19, 0.84, 2, nil},
		{"slower", 1.21, 1, 2, []string{"berth / bare spawn"}},
		{"less of it", 1, 0.82, 2, []string{"rate"}},
		{"a long tail", 1, 1, 9, nil},
		{"both", 3, 0.1, 2, []string{"berth / bare spawn", "rate"}},
	} {
		worse, alone := Compare(report(1, 1, 2), report(tt.less, tt.more, tt.tail))
		var got []string
		for _, w := range worse {
			got = append(got, w.Ratio)
		}
		if !reflect.DeepEqual(got, tt.worse) || len(alone) > 0 {
			t.Errorf("%s: %v, want %v; alone %v", tt.name, got, tt.worse, alone)
		}
	}
}

// A row that fails does not pass the gate, and what is in one run alone is said.
func TestGateSaysWhatItDoesNotCompare(t *testing.T) {
	failed, skipped, fewer := report(1, 1, 2), report(1, 1, 2), report(1, 1, 2)
	failed.Rows[0].Failed = "no answer"
	skipped.Rows[0].Skipped = "no root"
	fewer.Rows[0].Ratios = fewer.Rows[0].Ratios[:1]
	if worse, _ := Compare(report(1, 1, 2), failed); len(worse) != 1 || worse[0].Failed != "no answer" {
		t.Errorf("failed: %v", worse)
	}
	for name, tt := range map[string]struct{ earlier, now Report }{
		"exec (skipped: no root)":        {report(1, 1, 2), skipped},
		"exec: rate":                     {report(1, 1, 2), fewer},
		"exec (nothing to compare with)": {Report{}, report(1, 1, 2)},
	} {
		if worse, alone := Compare(tt.earlier, tt.now); len(worse) > 0 || !reflect.DeepEqual(alone, []string{name}) {
			t.Errorf("%s: %v, %v", name, worse, alone)
		}
	}
}

// Of several tries the best counts, ratio by ratio, and a failure only if all have it.
func TestBestOf(t *testing.T) {
	best := bestOf(report(3, 0.5, 1), report(2, 0.4, 1))
	if r := best.Rows[0].Ratios; r[0].Value != 2 || r[1].Value != 0.5 {
		t.Errorf("%+v", r)
	}
	broken := report(1, 1, 1)
	broken.Rows[0].Failed, broken.Rows[0].Ratios = "no", nil
	for _, best := range []Report{bestOf(broken, report(2, 1, 1)), bestOf(report(2, 1, 1), broken)} {
		if best.Rows[0].Failed != "" || best.Rows[0].Ratios[0].Value != 2 {
			t.Errorf("%+v", best.Rows[0])
		}
	}
}

// Rows that were measured one by one end up in one report.
func TestSaveMerges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	warm := report(4, 1, 1)
	warm.Rows[0].Row, warm.Stamp.Versions = "warm", map[string]string{"crun": "1"}
	for _, r := range []Report{warm, report(1, 1, 1), report(2, 1, 1)} {
		if _, err := Save(file, r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Load(file)
	if err != nil || len(got.Rows) != 2 || got.Rows[0].Row != "exec" || got.Rows[0].Ratios[0].Value != 2 || got.Rows[1].Ratios[0].Value != 4 || got.Stamp.Versions["crun"] != "1" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(file, []byte("no report"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Save(file, warm); err == nil {
		t.Error("a file that is no report was written over")
	}
}

func TestMarkdown(t *testing.T) {
	r := report(1.5, 0.9, 2)
	r.Rows[0].Missing = []Missing{{"docker", "none"}}
	r.Rows = append(r.Rows, Result{Row: "pause", Does: "wake", Skipped: "no | such"}, Result{Row: "warm", Does: "create", Failed: "boom"})
	text := r.Markdown()
	for _, want := range []string{
		"| exec | berth / bare spawn | 1.50 | ≤ 1.35 | **no** |", "| exec | rate | 0.9 | ≥ 0.85 | yes |",
		`| pause | not measured: no \| such |`, "| warm | failed: boom |", "Missing: docker (none).", "| exec | berth | ms | 3 | 1.50 | 2.00 | 3.00 | 0 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// The report goes between the marks of a document and leaves the rest; a document without them is not written over.
func TestSaveMarkdown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.md")
	if err := SaveMarkdown(file, report(1, 1, 1)); err != nil {
		t.Fatal(err)
	}
	first, _ := os.ReadFile(file)
	if err := os.WriteFile(file, append(append([]byte("before\n"), first...), "after\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SaveMarkdown(file, report(77, 1, 1)); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(file)
	if s := string(text); !strings.HasPrefix(s, "before\n") || !strings.HasSuffix(s, "after\n") || !strings.Contains(s, "77") || strings.Count(s, beginMark) != 1 {
		t.Errorf("%s", s)
	}
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SaveMarkdown(file, report(1, 1, 1)); err == nil {
		t.Error("a document without marks was written over")
	}
}

// The plot is XML, whatever names hold, with one bar for each ratio that has a target.
func TestSVG(t *testing.T) {
	r := report(5, 0.01, 2)
	r.Rows[0].Row = "<&"
	text := r.SVG()
	bars := 0
	for dec := xml.NewDecoder(strings.NewReader(text)); ; {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "rect" {
			bars++
		}
	}
	if bars != 1+3 { // the background is one
		t.Errorf("%d rectangles in %s", bars, text)
	}
}

func TestMetric(t *testing.T) {
	text := "# HELP a x\na 1\na_b 5\nm{image=\"i\",state=\"ready\"} 3\nm{image=\"j\",state=\"ready\"} 4\nm{image=\"j\",state=\"starting\"} 1e2\n"
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
		found  bool
	}{{"a", nil, 1, true}, {"m", []string{`state="ready"`}, 7, true}, {"m", nil, 107, true}, {"x", nil, 0, false}} {
		if got, found := metric(text, tt.name, tt.labels...); got != tt.want || found != tt.found {
			t.Errorf("%s %v: %v %v", tt.name, tt.labels, got, found)
		}
	}
}

func TestRowsAreNamed(t *testing.T) {
	if _, err := (Options{Rows: []string{"exec", "nonsense"}}).chosen(); proto.CodeOf(err) != proto.InvalidArgument {
		t.Errorf("%v", err)
	}
	got, err := Options{Rows: []string{"warm", "exec"}}.chosen()
	if err != nil || len(got) != 2 || got[0].name != "warm" {
		t.Errorf("%v, %v", got, err)
	}
}

// One row of each kind, on a real daemon that runs already; what it made is gone afterwards.
func TestRun(t *testing.T) {
	if _, err := daemontest.Binary(); err != nil {
		t.Skip(err)
	}
	d, err := daemontest.New("--stop-on-exit")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c, err := client.New(client.Config{Host: d.URL, Key: d.Key})
	if err != nil {
		t.Fatal(err)
	}
	bin, _ := daemontest.Binary()
	r, err := Run(t.Context(), Options{Client: c, Program: bin, Quick: true, Alone: true, Rows: []string{"exec", "exec-live", "warm"}})
	if err != nil || r.Failed() > 0 || len(r.Rows) != 3 {
		t.Fatalf("%v\n%s", err, r.Markdown())
	}
	for _, res := range r.Rows {
		if len(res.Ratios) == 0 || res.Ratios[0].Value <= 0 {
			t.Errorf("%s has no ratios: %+v", res.Row, res)
		}
	}
	left, err := c.Containers(t.Context(), client.Filter{})
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A row whose commands fail has failed, and says how.
func TestFailuresAreSaid(t *testing.T) {
	b := &bench{}
	res := Result{}
	bad := errors.New("boom")
	err := b.inTurns(t.Context(), &res, 3, []*turn{
		{name: "ours", role: Ours, op: failing(bad)}, {name: "other", role: Comparator, op: failing(bad)},
	})
	if err != nil || len(res.Measures) != 1 || res.Measures[0].Failures != 4 || res.Measures[0].Failure != "boom" {
		t.Errorf("%+v, %v", res.Measures, err)
	}
	if len(res.Missing) != 1 || res.Missing[0] != (Missing{"other", "boom"}) {
		t.Errorf("%+v", res.Missing)
	}
	if err := b.inTurns(t.Context(), &res, 3, []*turn{{name: "floor", role: Floor, op: failing(bad)}}); !errors.Is(err, bad) {
		t.Errorf("a floor that failed: %v", err)
	}
	if err := b.inTurns(t.Context(), &res, mostFailures, []*turn{{name: "ours", role: Ours, op: failing(bad)}}); !errors.Is(err, bad) {
		t.Errorf("too many failures: %v", err)
	}
}

func failing(err error) func(context.Context) (float64, error) {
	return func(context.Context) (float64, error) { return 0, err }
}

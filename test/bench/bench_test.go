package bench

import (
	"bufio"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/client"
	"berth/proto"
	"berth/test/daemontest"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"golang.org/x/sys/unix"
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
	res := Result{Row: "exec", Does: "run", Measures: []Measure{{Name: "berth", Role: Ours, Unit: "ms", N: 3, P50: less,
		P90: 2, P99: 3}}}
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
		worse, alone := Compare(report(1, 1, 2), report(tt.less, tt.more, tt.tail), Options{})
		var got []string
		for _, w := range worse {
			got = append(got, w.Ratio)
		}
		if !reflect.DeepEqual(got, tt.worse) || len(alone) > 0 {
			t.Errorf("%s: %v, want %v; alone %v", tt.name, got, tt.worse, alone)
		}
	}
}

// compared is a report with a comparator.
func compared() Report {
	r := report(1, 1, 2)
	r.Rows[0].add("ctr task exec", Comparator, "ms", 20)
	r.Rows[0].number("berth / ctr task exec", 0.05, atMost(0.1))
	return r
}

// What is not measured does not hold, and what has no past or was left out is said.
func TestGateSaysWhatItDoesNotCompare(t *testing.T) {
	failed, skipped, fewer, lacking, loose, other := report(1, 1, 2), report(1, 1, 2), report(1, 1, 2), report(1, 1, 2),
		report(1, 1, 2), report(1, 1, 2)
	failed.Rows[0].Failed = "no answer"
	skipped.Rows[0].Skipped = "no root"
	fewer.Rows[0].Ratios = fewer.Rows[0].Ratios[:1]
	lacking.Rows[0].Missing = []Missing{{"ctr", "not built"}}
	loose.Rows[0].Ratios[1].Gated = false
	other.Rows[0].Row = "warm"
	both := Report{Rows: append(report(1, 1, 2).Rows, other.Rows...)}
	for _, tt := range []struct {
		name         string
		earlier, now Report
		o            Options
		worse, alone []string
	}{
		{"a row that fails", report(1, 1, 2), failed, Options{}, []string{"exec: it failed: no answer"}, nil},
		{"a row that is skipped", report(1, 1, 2), skipped, Options{}, []string{"exec: it was not measured: no root"},
			nil},
		{"a ratio that is not there", report(1, 1, 2), fewer, Options{}, []string{"exec: rate was not measured"}, nil},
		{"no comparator", compared(), lacking, Options{}, []string{"exec: berth / ctr task exec was not measured " +
			"(ctr: not built)"}, nil},
		{"comparators left out", compared(), report(1, 1, 2), Options{Alone: true}, nil,
			[]string{"exec: berth / ctr task exec"}},
		{"a floor is no comparator", compared(), fewer, Options{Alone: true}, []string{"exec: rate was not measured"},
			[]string{"exec: berth / ctr task exec"}},
		{"a row is not there", both, report(1, 1, 2), Options{}, []string{"warm: it was not measured"}, nil},
		{"a row that was not chosen", both, report(1, 1, 2), Options{Rows: []string{"exec"}}, nil, nil},
		{"a new row", report(1, 1, 2), both, Options{}, nil, []string{"warm (nothing to compare with)"}},
		{"a new ratio", fewer, report(1, 1, 2), Options{}, nil, []string{"exec: rate"}},
		{"a ratio that is not held to any more", report(1, 1, 2), loose, Options{}, nil, []string{"exec: rate"}},
		{"nothing", Report{}, report(1, 1, 2), Options{}, []string{"nothing was compared"},
			[]string{"exec (nothing to compare with)"}},
	} {
		worse, alone := Compare(tt.earlier, tt.now, tt.o)
		var got []string
		for _, w := range worse {
			got = append(got, w.String())
		}
		if !reflect.DeepEqual(got, tt.worse) || !reflect.DeepEqual(alone, tt.alone) {
			t.Errorf("%s: %q, not compared %q", tt.name, got, alone)
		}
	}
}

// Of several tries the best counts, ratio by ratio, also of one that not all have. A failure in one of them stays.
func TestBestOf(t *testing.T) {
	best := bestOf(report(3, 0.5, 1), report(2, 0.4, 1))
	if r := best.Rows[0].Ratios; r[0].Value != 2 || r[1].Value != 0.5 {
		t.Errorf("%+v", r)
	}
	fewer, skipped, broken := report(3, 1, 1), Report{Rows: []Result{{Row: "exec", Skipped: "no"}}}, report(1, 1, 1)
	fewer.Rows[0].Ratios = fewer.Rows[0].Ratios[:1]
	for _, best := range []Report{bestOf(fewer, report(2, 1, 1)), bestOf(report(2, 1, 1), fewer),
		bestOf(report(2, 1, 1), skipped)} {
		if r := best.Rows[0]; r.Skipped != "" || len(r.Ratios) != 3 || r.Ratios[0].Value != 2 {
			t.Errorf("%+v", r)
		}
	}
	broken.Rows[0].Failed = "leaked"
	for _, best := range []Report{bestOf(broken, report(2, 1, 1)), bestOf(report(2, 1, 1), broken)} {
		if best.Rows[0].Failed != "leaked" {
			t.Errorf("%+v", best.Rows[0])
		}
	}
}

// A number may be better the next time; what failed or is missing is not tried again.
func TestSlower(t *testing.T) {
	got := slower([]Regression{{Row: "warm", Failed: "it failed: leaked"}, {Row: "exec", Ratio: "a", Is: 2},
		{Row: "exec", Ratio: "b", Is: 2}})
	if !reflect.DeepEqual(got, []string{"exec"}) {
		t.Errorf("%v", got)
	}
}

// Rows that were measured one by one end up in one report.
func TestSaveMerges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	warm := report(4, 1, 1)
	warm.Rows[0].Row, warm.Stamp.Versions = "warm", map[string]string{"crun": "1"}
	for _, r := range []Report{warm, report(1, 1, 1), report(2, 1, 1)} {
		if _, _, err := Save(file, r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Load(file)
	if err != nil || len(got.Rows) != 2 || got.Rows[0].Row != "exec" || got.Rows[0].Ratios[0].Value != 2 ||
		got.Rows[1].Ratios[0].Value != 4 || got.Stamp.Versions["crun"] != "1" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(file, []byte("no report"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Save(file, warm); err == nil {
		t.Error("a file that is no report was written over")
	}
}

// A row that says less does not take the place of a good one, and the report stays as it was.
func TestSaveKeepsWhatIsBetter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	if _, _, err := Save(file, compared()); err != nil {
		t.Fatal(err)
	}
	failed, skipped, quick := compared(), Report{Rows: []Result{{Row: "exec", Skipped: "no root"}}}, compared()
	failed.Rows[0].Failed, quick.Rows[0].Quick = "leaked", true
	for _, tt := range []struct {
		now  Report
		kept string
	}{
		{failed, "exec (it failed)"}, {skipped, "exec (it was not measured)"},
		{quick, "exec (the new one is of a quick run)"},
		{report(7, 1, 1), "exec (the new one lacks ctr task exec)"},
	} {
		tt.now.Stamp.Version = "v2"
		saved, kept, err := Save(file, tt.now)
		got, lerr := Load(file)
		if err != nil || lerr != nil || !reflect.DeepEqual(kept, []string{tt.kept}) || !reflect.DeepEqual(saved, got) {
			t.Errorf("%s: %v, %+v, %v", tt.kept, kept, saved, errors.Join(err, lerr))
		}
		if r := got.Rows[0]; r.Failed != "" || r.Skipped != "" || r.Quick || r.Ratios[0].Value != 1 ||
			got.Stamp.Version != "v1" {
			t.Errorf("%s: the file has %+v", tt.kept, got)
		}
	}
	better := compared()
	better.Rows[0].Ratios[0].Value = 0.5
	if got, kept, err := Save(file, better); err != nil || len(kept) > 0 || got.Rows[0].Ratios[0].Value != 0.5 {
		t.Errorf("%+v, %v, %v", got, kept, err)
	}
}

// Rows of two machines do not stand below one stamp.
func TestSaveIsOfOneMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	older, elsewhere := report(1, 1, 1), report(2, 1, 1)
	older.Rows = append(older.Rows, Result{Row: "warm"})
	elsewhere.Stamp.CPU = "another"
	if _, _, err := Save(file, older); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Save(file, elsewhere); err == nil || !strings.Contains(err.Error(), "row warm would stay") {
		t.Errorf("%v", err)
	}
	if err := Fits(file, Options{Rows: []string{"exec"}}); err == nil { // no processor is called ""
		t.Error("it is not known before the measuring")
	}
	if err := errors.Join(Fits(file, Options{}), Fits(file+".new", Options{Rows: []string{"exec"}})); err != nil {
		t.Error(err)
	}
	if got, err := Load(file); err != nil || got.Rows[0].Ratios[0].Value != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	elsewhere.Rows = append(elsewhere.Rows, Result{Row: "warm", Failed: "leaked"})
	got, kept, err := Save(file, elsewhere)
	if err != nil || got.Stamp.CPU != "another" || len(kept) > 0 || len(got.Rows) != 2 || got.Rows[1].Failed != "leaked" {
		t.Errorf("%+v, %v, %v", got, kept, err)
	}
}

func TestMarkdown(t *testing.T) {
	r := report(1.5, 0.9, 2)
	r.Rows[0].Missing = []Missing{{"docker", "none"}}
	r.Rows = append(r.Rows, Result{Row: "pause", Does: "wake", Skipped: "no | such"},
		Result{Row: "warm", Does: "create", Failed: "boom"})
	text := r.Markdown()
	for _, want := range []string{
		"| exec | berth / bare spawn | 1.50 | ≤ 1.35 | **no** |", "| exec | rate | 0.9 | ≥ 0.85 | yes |",
		`| pause | not measured: no \| such |`, "| warm | failed: boom |", "Missing: docker (none).",
		"| exec | berth | ms | 3 | 1.50 | 2.00 | 3.00 | 0 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// gvisored returns a report whose row exec was measured in the class gvisor.
func gvisored(less float64) Report {
	r := report(less, 1, 2)
	r.Rows[0].Class = proto.ClassGVisor
	return r
}

// Results of the class gvisor are a column beside those of runc, and a row that has none has the reason.
func TestClassesAreColumns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b.json")
	first := report(1.5, 0.9, 2)
	first.Rows = append(first.Rows, Result{Row: "files", Does: "beside files"})
	other := gvisored(4.5)
	other.Rows = append(other.Rows, Result{Row: "files", Class: proto.ClassGVisor, Skipped: "it has both"})
	other.Rows[0].Measures[0].P50 = 3 * first.Rows[0].Measures[0].P50
	beside := gvisored(7) // of a run of this class alone, with a comparator
	beside.Rows[0].add("docker exec", Comparator, "ms", 20)
	if _, _, err := Save(file, beside); err != nil {
		t.Fatal(err)
	}
	other.Rows[0].number("only there", 7, lower)
	other.Rows[0].Missing = []Missing{{"200 containers", "each has a kernel"}}
	if _, _, err := Save(file, first); err != nil {
		t.Fatal(err)
	}
	got, kept, err := Save(file, other)
	if err != nil || len(kept) > 0 || len(got.Rows) != 4 {
		t.Fatalf("%+v, %v, %v", got, kept, err)
	}
	text := got.Markdown()
	for _, want := range []string{
		"| exec | berth / bare spawn | 1.50 | ≤ 1.35 | **no** | 4.50 |", "| exec | only there |  |  |  | 7.00 |",
		"With gvisor not measured: it has both.", " | 3.00 |\n", "Missing: 200 containers (each has a kernel).",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if worse, alone := Compare(got, gvisored(4.6), Options{Class: proto.ClassGVisor}); len(worse) > 1 || len(alone) > 0 {
		t.Errorf("%v, %v", worse, alone) // the ratio that is only there was not measured again
	}
	worse, _ := Compare(got, gvisored(9), Options{Class: proto.ClassGVisor})
	if len(worse) != 2 || worse[0].String() != "exec with gvisor: berth / bare spawn was 4.5 and is 9" {
		t.Errorf("a slower one: %v", worse)
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
	if s := string(text); !strings.HasPrefix(s, "before\n") || !strings.HasSuffix(s, "after\n") ||
		!strings.Contains(s, "77") || strings.Count(s, beginMark) != 1 {
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
	text := "# HELP a x\na 1\na_b 5\nm{image=\"i\",state=\"ready\"} 3\nm{image=\"j\",state=\"ready\"} " +
		"4\nm{image=\"j\",state=\"starting\"} 1e2\n"
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
	r, err := Run(t.Context(), Options{Client: c, Program: bin, Quick: true, Alone: true,
		Rows: []string{"exec", "exec-live", "warm"}})
	if err != nil || r.Failed() > 0 || len(r.Rows) != 3 {
		t.Fatalf("%v\n%s", err, r.Markdown())
	}
	for _, res := range r.Rows {
		if len(res.Ratios) == 0 || res.Ratios[0].Value <= 0 {
			t.Errorf("%s has no ratios: %+v", res.Row, res)
		}
		for _, ratio := range res.Ratios {
			if ratio.Gated && !strings.HasPrefix(ratio.Name, overHTTP) {
				t.Errorf("%s: %s holds nothing of ours and is gated", res.Row, ratio.Name)
			}
		}
	}
	if text := r.Markdown(); !strings.Contains(text, "Missing: byggflow") {
		t.Errorf("what is not measured is not said:\n%s", text)
	}
	left, err := c.Containers(t.Context(), client.Filter{})
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Rows of files, on a daemon that they start. What they have in memory is gone afterwards.
func TestTransfers(t *testing.T) {
	bin, err := daemontest.Binary()
	if err != nil {
		t.Skip(err)
	}
	base := os.Getenv("BERTH_BASE_IMAGE")
	if os.Geteuid() != 0 || base == "" {
		t.Skip("it starts a daemon, which needs root and BERTH_BASE_IMAGE")
	}
	r, err := Run(t.Context(), Options{Self: true, Program: bin, Base: base, Quick: true, Alone: true,
		Rows: []string{"upload", "download", "mebibyte", "many"}})
	if err != nil || r.Failed() > 0 || len(r.Rows) != 4 {
		t.Fatalf("%v\n%s", err, r.Markdown())
	}
	for _, res := range r.Rows {
		if len(res.Ratios) == 0 || res.Ratios[0].Value <= 0 || !res.Ratios[0].Higher {
			t.Errorf("%s: %+v", res.Row, res)
		}
	}
	if left, err := filepath.Glob(filepath.Join(sharedMemory, fmt.Sprintf("berth-bench-%d-*",
		os.Getpid()))); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// A transfer that loses a file, or a byte of one, is not whole; what is taken is gone either way.
func TestLostFilesAreFound(t *testing.T) {
	for _, files := range []int{1, 2*perDirectory + 1} {
		tr := &transfer{files: files, bytes: 4096, source: filepath.Join(t.TempDir(), "source")}
		if err := tr.fill(); err != nil {
			t.Fatal(err)
		}
		if err := command(t.Context(), "sh", "-c", tr.whole(tr.source)); err != nil {
			t.Error(err)
		}
		last := tr.source
		if files > 1 {
			last = filepath.Join(tr.source, "2", "0")
		}
		if err := os.Truncate(last, 4095); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%d of %d files came whole", files-1, files)
		if err := command(t.Context(), "sh", "-c", tr.taken(tr.source)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if _, err := os.Stat(tr.source); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it is still there: %v", err)
		}
	}
}

// What could not be prepared is tidied up, and not measured.
func TestTurnsPrepare(t *testing.T) {
	bad, did := errors.New("boom"), ""
	turn := &turn{
		before: func(context.Context) error { did += "b"; return bad },
		op:     func(context.Context) (float64, error) { did += "o"; return 1, nil },
		after:  func(context.Context) error { did += "a"; return nil },
	}
	if _, err := turn.once(t.Context()); !errors.Is(err, bad) || did != "ba" {
		t.Errorf("%v, did %s", err, did)
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
	if err := b.inTurns(t.Context(), &res, 3, []*turn{{name: "floor", role: Floor, op: failing(bad)}}); !errors.Is(
		err, bad) {
		t.Errorf("a floor that failed: %v", err)
	}
	if err := b.inTurns(t.Context(), &res, mostFailures,
		[]*turn{{name: "ours", role: Ours, op: failing(bad)}}); !errors.Is(err, bad) {
		t.Errorf("too many failures: %v", err)
	}
}

// Every other round is in reverse, also for one that takes part in few, so that nobody always follows the same one.
func TestTurnsAlternate(t *testing.T) {
	var order []string
	taking := func(name string, every int) *turn {
		return &turn{name: name, role: Ours, every: every, op: func(context.Context) (float64, error) {
			order = append(order, name)
			return 1, nil
		}}
	}
	b, res := &bench{}, Result{}
	if err := b.inTurns(t.Context(), &res, 2, []*turn{taking("a", 0), taking("b", 0), taking("c", 0)}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "abccba" {
		t.Error(got)
	}
	order = nil
	if err := b.inTurns(t.Context(), &res, 8, []*turn{taking("a", 0), taking("b", 2), taking("c", 3)}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "abccba"+"abc"+"a"+"a"+"cba"+"ab"+"a"+"ac"+"ba" {
		t.Error(got)
	}
}

// A command line that hangs is ended, also if what it left behind holds its output.
func TestLinesEnd(t *testing.T) {
	began := time.Now()
	err := plainly(os.Environ(), 100*time.Millisecond)(t.Context(), []string{"/bin/sh", "-c", "sleep 8 & sleep 8"})
	if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "it took more than 100ms") ||
		took > lineDrain+2*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}

// What a comparator runs from start to end is deleted if it was cut off, with what time that takes.
func TestWholeLivesAreTidied(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var lines []string
	c := &comparator{
		once:   func(id string) []string { return []string{"run", id} },
		remove: func(id string) [][]string { return [][]string{{"task rm", id}, {"rm", id}} },
		do: func(ctx context.Context, line []string) error {
			if line[0] == "run" {
				cancel()
			}
			if lines = append(lines, strings.Join(line, " ")); ctx.Err() == nil && line[0] != "task rm" {
				return nil
			}
			return errors.New("no")
		},
	}
	if err := c.whole(ctx, "x"); err == nil || !reflect.DeepEqual(lines, []string{"run x", "task rm x", "rm x"}) {
		t.Errorf("%v, %v", lines, err)
	}
	if !strings.Contains(fresh(), strconv.Itoa(os.Getpid())) {
		t.Errorf("%s may be another bench's", fresh())
	}
}

// A containerd's shims end with it, theirs alone.
func TestShimsEnd(t *testing.T) {
	dir := t.TempDir()
	shim := filepath.Join(dir, "containerd-shim-test")
	if err := os.WriteFile(shim, []byte("#!/bin/sh\nsleep 60 &\necho $!\nwait\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	begin := func(socket string) (*exec.Cmd, string) {
		cmd := exec.Command(shim, "-address", socket)
		cmd.Path, cmd.Args = "/bin/sh", []string{shim, shim, "-address", socket}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		child, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return cmd, strings.TrimSpace(child)
	}
	ours, child := begin(filepath.Join(dir, "s"))
	others, theirs := begin(filepath.Join(dir, "s2"))
	pid, err := strconv.Atoi(child)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	endShims(filepath.Join(dir, "s"))
	_ = ours.Wait()     // killed, as is wanted
	const most = 10_000 // ms
	ended := 0
	for err = unix.EINTR; err == unix.EINTR; {
		ended, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, most)
	}
	if err != nil || ended != 1 {
		t.Errorf("its container runs on: %v", err)
	}
	if err := syscall.Kill(others.Process.Pid, 0); err != nil {
		t.Errorf("another's shim ended: %v", err)
	}
	end(theirs)
}

// A Jupyter kernel ends with its client: asked to, when nobody is there to ask any more, and where the run was given
// up.
func TestKernelsEnd(t *testing.T) {
	b := &bench{tmp: t.TempDir(), parts: map[string]string{}}
	kernels := func() (n int) {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			if line, _ := os.ReadFile(file); strings.Contains(string(line), b.tmp) { // it has a file there
				n++
			}
		}
		return n
	}
	for name, over := range map[string]func(*kernel){
		"asked": (*kernel).end,
		"alone": func(k *kernel) { _ = k.ask.Close(); <-k.done },
		"given up": func(k *kernel) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := k.cell(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		},
	} {
		k, err := b.startKernel(t.Context())
		if err != nil && strings.Contains(err.Error(), "setup-bench") {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := kernels(); n != 1 {
			t.Errorf("%s: %d kernels", name, n)
		}
		over(k)
		if n := kernels(); n > 0 {
			t.Errorf("%s: %d kernels run on", name, n)
		}
		k.end()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // in the midst of the start
	defer cancel()
	if k, err := b.startKernel(ctx); err == nil {
		k.end()
	}
	if n := kernels(); n > 0 {
		t.Errorf("%d kernels that were about to start run on", n)
	}
}

// What a containerd's client was cut off from is deleted, at whatever point that was.
func TestLibraryLivesAreTidied(t *testing.T) {
	bin, err := daemontest.Binary()
	if err != nil {
		t.Skip(err)
	}
	b := &bench{Options: Options{Program: bin, Base: os.Getenv("BERTH_BASE_IMAGE")}, tmp: t.TempDir(),
		parts: map[string]string{}}
	c, err := b.startOther(t.Context(), "ctr")
	if err != nil {
		t.Skip(err) // it needs what `make test` does not build
	}
	defer c.stop()
	l, err := c.library(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.client.Close()
	took, err := timed(func() error { return l.whole(t.Context(), fresh()) })
	if err != nil {
		t.Fatal(err)
	}
	const steps = 10
	for i := range steps {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(took*float64(time.Millisecond))*time.Duration(
			i)/steps)
		_ = l.whole(ctx, fresh()) // the last may be in time
		cancel()
	}
	left, err := l.client.Containers(t.Context())
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	run, err := l.client.TaskService().List(t.Context(), &tasks.ListTasksRequest{})
	if err != nil || len(run.Tasks) > 0 {
		t.Errorf("left: %v, %v", run, err)
	}
}

// Rows are shorter in the class gvisor, and say what they leave out.
func TestGVisorRowsAreShorter(t *testing.T) {
	for class, want := range map[proto.RuntimeClass][2]int{"": {200, 100}, proto.ClassGVisor: {50, 50}} {
		b, res := &bench{Options: Options{Class: class}}, Result{}
		if got := [2]int{b.live(&res, 200, 5, 4), b.rounds(100)}; got != want || (len(res.Missing) > 0) != (class != "") {
			t.Errorf("%q: %v, %v", class, got, res.Missing)
		}
		b.Quick = true
		if n := b.live(&res, 200, 5, 4); n != 5 || b.rounds(100) != 5 || b.rounds(20) != 5 {
			t.Errorf("%q: %d in a quick run", class, n)
		}
	}
}

// What is not measured has a row.
func TestUnmeasuredIsOfRows(t *testing.T) {
	for name := range unmeasured {
		if _, err := (Options{Rows: []string{name}}).chosen(); err != nil {
			t.Error(err)
		}
	}
}

// One create of a burst is one of those that count.
func TestBurstLeavesWarmUpsOut(t *testing.T) {
	bin, err := daemontest.Binary()
	if err != nil {
		t.Skip(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("it starts a daemon, which needs root")
	}
	b := &bench{Options: Options{Program: bin, Base: os.Getenv("BERTH_BASE_IMAGE")}, tmp: t.TempDir(),
		parts: map[string]string{}}
	defer b.close()
	res := Result{}
	if err := b.burstOf(t.Context(), &res, overHTTP, 2, 2, 6); err != nil {
		t.Fatal(err)
	}
	if m := res.measure("one create of a burst, " + overHTTP); m == nil || m.N != 2*6 {
		t.Errorf("%+v", m)
	}
	if !strings.Contains(b.parts["runc"], "runc") {
		t.Errorf("versions: %v", b.parts)
	}
}

func failing(err error) func(context.Context) (float64, error) {
	return func(context.Context) (float64, error) { return 0, err }
}

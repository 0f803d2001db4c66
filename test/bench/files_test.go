package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"berth/cli/app"
	"berth/proto"
)

// A row that failed does not replace an earlier good one. The other files show the good one too.
func TestFilesKeepGoodRows(t *testing.T) {
	dir := t.TempDir()
	run := app.BenchRun{JSON: filepath.Join(dir, "r.json"), Markdown: filepath.Join(dir, "r.md")}
	good := Report{Rows: []Result{{Row: "exec", Does: "the good one"}}}
	if kept, err := saveReport(run, good); err != nil || len(kept) > 0 {
		t.Fatalf("%v, %v", kept, err)
	}
	was, _ := os.ReadFile(run.Markdown)
	kept, err := saveReport(run, Report{Rows: []Result{{Row: "exec", Failed: "leaked"}}})
	if err != nil || len(kept) != 1 || kept[0] != "exec (it failed)" {
		t.Errorf("%q, %v", kept, err)
	}
	if is, err := os.ReadFile(run.Markdown); err != nil || string(is) != string(was) {
		t.Errorf("%s, %v", is, err)
	}
}

// commanded runs Command over rows of the test's own, and returns what it printed and saved.
func commanded(t *testing.T, ctx context.Context, mine []row, classes ...proto.RuntimeClass) (string, Report, error) {
	t.Helper()
	before := rows
	rows = mine
	defer func() { rows = before }()
	var out strings.Builder
	run := app.BenchRun{Classes: classes, JSON: filepath.Join(t.TempDir(), "r.json"), Out: &out,
		ShowStatus: func(string) {}, ClearStatus: func() {}}
	_, err := Command(ctx, run)
	saved, lerr := load(run.JSON)
	if lerr != nil {
		t.Fatal(lerr)
	}
	return out.String(), saved, err
}

// Both runtime classes are measured one after the other and are columns of one report. Comparators take part once.
func TestCommandMeasuresClasses(t *testing.T) {
	var did []string
	mine := []row{{"exec", "run", func(b *bench, _ context.Context, res *Result) error {
		did = append(did, string(b.Class))
		if b.Alone {
			did = append(did, "alone")
		}
		res.add(overHTTP, Ours, "ms", float64(len(did)))
		return nil
	}}}
	for _, tt := range []struct {
		classes []proto.RuntimeClass
		did     []string
	}{
		{nil, []string{""}},
		{[]proto.RuntimeClass{proto.ClassGVisor}, []string{"gvisor"}},
		{[]proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor}, []string{"", "gvisor", "alone"}},
	} {
		did = nil
		printed, saved, err := commanded(t, t.Context(), mine, tt.classes...)
		if err != nil || !reflect.DeepEqual(did, tt.did) || len(saved.Rows) != max(1, len(tt.classes)) {
			t.Errorf("%v: did %q, saved %+v, %v", tt.classes, did, saved.Rows, err)
		}
		if len(tt.classes) == 2 && !strings.Contains(printed, "| exec | berth | ms | 1 | 1.00 | 1.00 | 1.00 | 0 | 3.00 | 3.00 |") {
			t.Error(printed)
		}
	}
}

// An interrupted run saves what it has finished, and nothing of the row in which it was interrupted.
func TestInterruptedCommandSavesRows(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	printed, saved, err := commanded(t, ctx, []row{
		{"exec", "run", func(_ *bench, _ context.Context, res *Result) error { res.add(overHTTP, Ours, "ms", 1); return nil }},
		{"warm", "create", func(*bench, context.Context, *Result) error { cancel(); return ctx.Err() }},
	})
	if !errors.Is(err, context.Canceled) || len(saved.Rows) != 1 || saved.Rows[0].Row != "exec" ||
		!strings.Contains(printed, "| exec | berth |") {
		t.Errorf("%+v, %v, %s", saved, err, printed)
	}
}

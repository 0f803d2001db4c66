package bench

import (
	"os"
	"path/filepath"
	"testing"

	"berth/cli/app"
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

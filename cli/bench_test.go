package cli

import (
	"os"
	"path/filepath"
	"testing"

	"berth/test/bench"
)

// A daemon is given the directory, and has another working directory than who named it may think.
func TestBenchDirIsAbsolute(t *testing.T) {
	o := bench.Options{Dir: "here"}
	if err := new(app).benchOptions(&o, nil); err != nil || !filepath.IsAbs(o.Dir) || filepath.Base(o.Dir) != "here" {
		t.Errorf("%q, %v", o.Dir, err)
	}
}

// What a file keeps is said, and the other forms show it.
func TestBenchFilesKeepGoodRows(t *testing.T) {
	dir := t.TempDir()
	files := benchFiles{json: filepath.Join(dir, "r.json"), markdown: filepath.Join(dir, "r.md")}
	good := bench.Report{Rows: []bench.Result{{Row: "exec", Does: "the good one"}}}
	if kept, err := files.save(good); err != nil || len(kept) > 0 {
		t.Fatalf("%v, %v", kept, err)
	}
	was, _ := os.ReadFile(files.markdown)
	kept, err := files.save(bench.Report{Rows: []bench.Result{{Row: "exec", Failed: "leaked"}}})
	if err != nil || len(kept) != 1 || kept[0] != "exec (it failed)" {
		t.Errorf("%q, %v", kept, err)
	}
	if is, err := os.ReadFile(files.markdown); err != nil || string(is) != string(was) {
		t.Errorf("%s, %v", is, err)
	}
}

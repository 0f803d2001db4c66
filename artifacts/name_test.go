package artifacts

import (
	"path"
	"strings"
	"testing"

	"berth/files"
	"berth/proto"
)

// Whatever a file in a container is called, it can be stored.
func FuzzPublishedName(f *testing.F) {
	for _, s := range []string{"a", "dir/b.txt", "new\nline", "bad\xff", `a:b?"|*\<>`, "\x7f\u0085", "\u202Ex", strings.Repeat("é", 127), " ", "-rf", "..."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, rel string) {
		base := path.Base(rel)
		if rel == "" || base == "/" || base == "." || base == ".." || len(base) > maxName {
			return // no file has such a name
		}
		name := publishedName(rel)
		if got, err := files.CleanName(name, ""); err != nil || got != name {
			t.Errorf("%q is stored as %q, which becomes %q: %v", rel, name, got, err)
		}
	})
}

// A path is below the directory of the job that it is said to belong to.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"/workspace/j/f", "j/f", "/workspace/../etc", "..", "/workspace", "/workspace/j/../k/f", "/workspaces/j/f", "\x00", "/workspace//j/./f/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		job, rel := split(p)
		if !proto.ValidJobID(job) {
			return
		}
		abs := p
		if !path.IsAbs(path.Clean(p)) {
			abs = path.Join(proto.WorkspaceDir, p)
		}
		if path.Join(proto.JobDir(job), rel) != path.Clean(abs) || rel == ".." || strings.HasPrefix(rel, "../") {
			t.Errorf("%q is %q of job %q", p, rel, job)
		}
	})
}

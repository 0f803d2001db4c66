package artifacts

import (
	"path"
	"strings"
	"testing"

	"berth/proto"
)

// FuzzSplit checks that a path is below the directory of the job that split returns.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"/workspace/j/f", "j/f", "/workspace/../etc", "..", "/workspace", "/workspace/j/../k/f",
		"/workspaces/j/f", "\x00", "/workspace//j/./f/"} {
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

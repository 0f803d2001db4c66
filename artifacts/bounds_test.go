package artifacts_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"berth/artifacts"
	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/test/sessiontest"
)

// recordSizes returns the size of the largest record of a bucket, and of all.
func recordSizes(t *testing.T, st *sessiontest.Stack, bucket string) (most, all int) {
	t.Helper()
	err := st.Ledger.Update(func(tx *ledger.Tx) error { // waits for all queued writes
		return tx.Scan(bucket, "", func(_ string, value []byte) (bool, error) {
			most, all = max(most, len(value)), all+len(value)
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return most, all
}

// TestLongPathsDoNotFillTheBooks checks that long paths, which code chooses, do not make the records large.
func TestLongPathsDoNotFillTheBooks(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	for job, script := range map[string]string{
		// Deeper than a path can name; only descriptors reach it. 200 files there have paths of 10 MB.
		"deep": `
import os
for i in range(195):
    os.mkdir("d" * 255)
    os.chdir("d" * 255)
for i in range(200):
    open(str(i), "w").close()
`,
		"wide": fmt.Sprintf(`
for i in range(%d):
    open(str(i).ljust(250, "w"), "w").close()
`, artifacts.MaxFiles),
	} {
		res, err := s.Run(ctx, proto.Cmd{Argv: []string{"python3", "-c", script}, JobID: job})
		if err != nil || res.Exec.End.Reason != proto.EndExit || res.Exec.End.ReturnCode != 0 || len(res.Notes) != 0 {
			t.Fatalf("%s: %+v notes %q %v", job, res.Result, res.Notes, err)
		}
		m := manifest(t, st, s, job)
		paths := 0
		for _, f := range m.Files {
			paths += len(f.Path)
		}
		if !m.Truncated || paths > artifacts.MaxPathBytes || job == "wide" && len(m.Files) < 1000 {
			t.Errorf("%s: %d files with %d bytes of paths are listed, truncated %v", job, len(m.Files), paths,
				m.Truncated)
		}
		if log := m.Execs[0].Produced; job == "wide" &&
			(len(log) < 10 || !strings.HasSuffix(log[len(log)-1], " more")) {
			t.Errorf("%d paths are logged, and then %q", len(log)-1, log[len(log)-1])
		}
	}
	if most, all := recordSizes(t, st, "job_files"); most > 8<<10 || all > 8<<20 {
		t.Errorf("a file takes %d bytes of the ledger, the files of both jobs %d", most, all)
	}
	if n, _ := recordSizes(t, st, "jobs"); n > 1<<10 {
		t.Errorf("a job takes %d bytes of the ledger beside its files", n)
	}
	if n, _ := recordSizes(t, st, "job_execs"); n > 16<<10 {
		t.Errorf("the line of one command takes %d bytes of the ledger", n)
	}
}

package artifacts_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/artifacts"
	"berth/files"
	"berth/proto"
	"berth/session"
	"berth/session/filework"
	"berth/test/sessiontest"
)

func artifact(t *testing.T, m proto.Manifest, path string) proto.Artifact {
	t.Helper()
	for _, f := range m.Files {
		if f.Path == path {
			return f
		}
	}
	t.Fatalf("the manifest has no %s but %+v", path, m.Files)
	return proto.Artifact{}
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func TestManifestSaysWhoMadeWhat(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	first, err := s.Run(ctx, proto.Cmd{Command: "mkdir -p sub; echo one >a.txt; echo two >sub/b.csv; ln -s " +
		"/etc/passwd link", JobID: "job1"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Run(ctx, proto.Cmd{Command: "echo more >>a.txt; rm sub/b.csv; echo oops >&2; exit 4",
		JobID: "job1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteFile(ctx, proto.UserDefault, "/workspace/job1/up.bin", session.WriteOptions{},
		strings.NewReader("uploaded")); err != nil {
		t.Fatal(err)
	}
	m, err := st.Jobs.Manifest(ctx, s, "job1")
	if err != nil {
		t.Fatal(err)
	}
	a := artifact(t, m, "a.txt")
	if a.SHA256 != sum("one\nmore\n") || a.SizeBytes != 9 || a.CreatedBy != first.Exec.ID ||
		a.ChangedBy != second.Exec.ID || a.Origin != "produced" || a.MediaType != "text/plain" {
		t.Errorf("a.txt: %+v", a)
	}
	if up := artifact(t, m, "up.bin"); up.Origin != "uploaded" || up.CreatedBy != "" || up.SHA256 != sum("uploaded") {
		t.Errorf("up.bin: %+v", up)
	}
	if l := artifact(t, m, "link"); l.Type != proto.TypeSymlink || l.SHA256 != "" {
		t.Errorf("a link's target was read: %+v", l)
	}
	if len(m.Files) != 3 {
		t.Errorf("files: %+v", m.Files)
	}
	if len(m.Execs) != 2 || m.Execs[1].ReturnCode != 4 || m.Execs[1].Stderr != "oops\n" ||
		m.Execs[0].Produced[0] != "a.txt" {
		t.Errorf("execs: %+v", m.Execs)
	}
	var inside proto.Manifest
	if err := json.Unmarshal([]byte(sessiontest.Bash(t, s, "cat /workspace/.berth/job1.json").Stdout),
		&inside); err != nil || len(inside.Files) != 3 {
		t.Errorf("the copy: %v %+v", err, inside.Files)
	}
}

func TestOutputsBecomeStoredFiles(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	r := sessiontest.Bash(
		t, s,
		`ls -A "$OUTPUT_DIR"; echo top >"$OUTPUT_DIR/r.txt"; mkdir "$OUTPUT_DIR/d"; echo n >"$OUTPUT_DIR/d/n"; ln -s /etc/passwd "$OUTPUT_DIR/l"; mkfifo "$OUTPUT_DIR/p"`)
	if r.Stdout != "" || len(r.Content) != 2 || r.Content[1].Type != proto.TypeBashOutput {
		t.Fatalf("%+v", r)
	}
	rd, f, err := st.Files.Open(ctx, sessiontest.Owner, r.Content[1].FileID)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	body, _ := io.ReadAll(rd)
	if string(body) != "top\n" || f.Filename != "r.txt" || !f.Downloadable || f.Scope != s.ID() {
		t.Errorf("%q %+v", body, f)
	}
	if next := sessiontest.Bash(t, s, `ls -A "$OUTPUT_DIR"`); next.Stdout != "" || len(next.Content) != 0 {
		t.Errorf("the next call's directory is not empty: %+v", next)
	}
	m, err := st.Jobs.Manifest(ctx, s, s.DefaultJob())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, a := range m.Files {
		found = found || a.FileID == f.ID && strings.HasSuffix(a.Path, "/r.txt")
	}
	if !found {
		t.Errorf("the manifest does not name the stored file: %+v", m.Files)
	}
}

func TestInputs(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	put := func(name, body string) string {
		f, err := st.Files.Put(ctx, files.Upload{Owner: sessiontest.Owner, Filename: name}, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return f.ID
	}
	one, twin := put("data.csv", "1"), put("data.csv", "2")
	s := st.Create(t, proto.CreateContainer{Files: []string{one}})
	if got := sessiontest.Bash(t, s, `cat "$INPUT_DIR/data.csv"`).Stdout; got != "1" {
		t.Fatalf("uploaded file reads %q", got)
	}
	res, err := s.Run(ctx, proto.Cmd{Command: `cd "$INPUT_DIR"; for f in *; do echo "$f=$(cat "$f")"; done`,
		Files: []string{twin, one, twin}})
	if err != nil || res.Result.Result.Stdout != "data (2).csv=2\ndata.csv=1\n" {
		t.Fatalf("%+v %v", res.Result.Result, err)
	}
	sessiontest.Bash(t, s, `cd "$INPUT_DIR"; echo ,more >>data.csv; rm "data (2).csv"`)
	res, err = s.Run(ctx, proto.Cmd{Command: `cd "$INPUT_DIR"; cat data.csv "data (2).csv"`, Files: []string{
		one, twin}})
	if err != nil || res.Result.Result.Stdout != "1,more\n2" {
		t.Fatalf("after one was changed and one removed: %+v %v", res.Result.Result, err)
	}
	_, err = s.Run(ctx, proto.Cmd{Command: "true", Files: []string{put("fresh", "x"), "file_0000000000000000000000"}})
	if proto.CodeOf(err) != proto.NotFound || !strings.Contains(err.Error(), "file_0000000000000000000000") {
		t.Fatalf("%v", err)
	}
	if got := sessiontest.Bash(t, s, `ls "$INPUT_DIR"`).Stdout; strings.Contains(got, "fresh") {
		t.Errorf("half of a failed upload stayed: %q", got)
	}
}

func TestPublishAndUnknownJobs(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, s, "echo hi >here")
	f, err := st.Jobs.Publish(ctx, s, s.DefaultJob(), "here")
	if err != nil || f.SizeBytes != 3 {
		t.Fatalf("%+v %v", f, err)
	}
	for _, rel := range []string{"../../etc/passwd", "", "/", "nope"} {
		if _, err := st.Jobs.Publish(ctx, s, s.DefaultJob(), rel); proto.CodeOf(err) != proto.NotFound &&
			proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("publishing %q: %v", rel, err)
		}
	}
	if _, err := st.Jobs.Manifest(ctx, s, "never"); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("manifest of a job that never was: %v", err)
	}
	list, err := st.Jobs.List(s)
	if err != nil || len(list) != 1 {
		t.Errorf("%+v %v", list, err)
	}
}

// TestSightSparesTheWalk checks that the directory is not listed if the guest's fingerprint equals the recorded one.
func TestSightSparesTheWalk(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	r, err := s.Run(ctx, proto.Cmd{Command: "echo one >a", JobID: "job1"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := filework.Walk(ctx, s.Files, proto.JobDir("job1"), 10, "")
	if err != nil {
		t.Fatal(err)
	}
	known := w.State
	// a file of another job, which does not change this one's record
	sessiontest.Bash(t, s, "echo two >/workspace/job1/b")
	if made := st.Jobs.End(ctx, s.Files, r.Exec, "", session.DirectoryState{Fingerprint: known}); made.Paths != nil ||
		made.Notes != nil {
		t.Errorf("the directory was walked: %+v", made)
	}
	for _, seen := range []string{"", "other"} {
		if made := st.Jobs.End(ctx, s.Files, r.Exec, "", session.DirectoryState{Fingerprint: seen}); seen == "" &&
			(len(made.Paths) != 1 || made.Paths[0] != "b") {
			t.Errorf("seen %q: %+v", seen, made)
		}
		sessiontest.Bash(t, s, "rm /workspace/job1/b")
	}
	if made := st.Jobs.End(ctx, s.Files, r.Exec, "", session.DirectoryState{Fingerprint: known}); made.Paths != nil {
		t.Errorf("removed again: %+v", made)
	}
}

// stored counts the stored files.
func stored(t *testing.T, st *sessiontest.Stack) int {
	t.Helper()
	page, err := st.Files.List(context.Background(), sessiontest.Owner, files.Query{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return len(page.Files)
}

// TestOutputsOfOneCommand checks that a command's outputs are the files of its own output directory, which is new and
// empty when the command starts.
func TestOutputsOfOneCommand(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	run := func(text string) (proto.BashResult, string) {
		t.Helper()
		r, err := s.Run(ctx, proto.Cmd{Command: `echo "$OUTPUT_DIR"; ls -A "$OUTPUT_DIR"; ` + text, JobID: "job1"})
		if err != nil || r.Result.Result == nil {
			t.Fatalf("%+v, %v", r, err)
		}
		return *r.Result.Result, strings.TrimSuffix(r.Result.Result.Stdout, "\n")
	}
	for i := range 20 {
		_, last := run("true")
		got, dir := run(fmt.Sprintf(`echo %d >"$OUTPUT_DIR/f"`, i))
		if dir == last {
			t.Errorf("%d: two commands have the output directory %s", i, dir)
		}
		path, ok := strings.CutPrefix(dir, proto.JobDir("job1")+"/")
		if !ok || strings.Contains(dir, "\n") || len(got.Content) != 1 {
			t.Fatalf("%d: %+v", i, got)
		}
		body, meta, err := st.Files.Open(ctx, sessiontest.Owner, got.Content[0].FileID)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(body)
		_ = body.Close()
		if err != nil || string(text) != fmt.Sprintln(i) || meta.Filename != "f" {
			t.Errorf("%d: %q, %v of %+v", i, text, err, meta)
		}
		m, err := st.Jobs.Manifest(ctx, s, "job1")
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Files) != i+1 || !slices.ContainsFunc(m.Files, func(f proto.Artifact) bool {
			return f.Path == path+
				"/f" && f.FileID == meta.ID
		}) {
			t.Errorf("%d: the manifest has %+v, not %s", i, m.Files, path)
		}
	}
}

// TestOutputsAreStoredOnce checks that files stored while an interpreter ran are not stored again when it ends.
func TestOutputsAreStoredOnce(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e, err := s.Exec(ctx, proto.Cmd{Command: `echo x >"$OUTPUT_DIR/a"; read -r l; echo y >"$OUTPUT_DIR/b"; read -r l`,
		OpenStdin: true})
	if err != nil {
		t.Fatal(err)
	}
	at := proto.OutputDir(e.Info().JobID, e.Info().ID)
	appears := func(name string) {
		for { // the loop uses stat, since a file system reports no events
			if fi, err := s.Stat(ctx, proto.UserDefault, at+"/"+name); err == nil && fi.SizeBytes == 2 {
				return
			}
		}
	}
	appears("a")
	made := st.Jobs.Made(ctx, s, e.Info(), time.Now().Add(-time.Minute))
	if len(made.FileIDs) != 1 || stored(t, st) != 1 {
		t.Fatalf("%+v", made)
	}
	if err := e.Write(ctx, []byte("\n")); err != nil {
		t.Fatal(err)
	}
	appears("b")
	_ = e.CloseStdin()
	res, err := e.Wait(ctx)
	if err != nil || res.Result.Result == nil {
		t.Fatalf("%+v %v", res.Result, err)
	}
	got := res.Result.Result.Content
	if n := stored(t, st); n != 2 || len(got) != 2 || got[0].FileID != made.FileIDs[0] {
		t.Errorf("%d files are stored; %+v after %+v", n, got, made)
	}
	// If a daemon dies before it has recorded the end, the next daemon records it again.
	next := artifacts.New(artifacts.Config{Files: st.Files, Ledger: st.Ledger})
	again := next.End(ctx, s.Files, res.Exec, "", session.DirectoryState{})
	if n := stored(t, st); n != 2 || len(again.FileIDs) != 2 || again.FileIDs[0] != got[0].FileID ||
		again.FileIDs[1] != got[1].FileID {
		t.Errorf("after a crash %d files are stored; %+v after %+v", n, again, got)
	}
}

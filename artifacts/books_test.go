package artifacts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/artifacts"
	"berth/files"
	"berth/proto"
	"berth/session"
	"berth/state/ledger"
	"berth/test/needs"
	"berth/test/sessiontest"

	"golang.org/x/sys/unix"
)

func records(t *testing.T, st *sessiontest.Stack, bucket, prefix string) (n int) {
	t.Helper()
	err := st.Ledger.View(func(tx *ledger.Tx) error {
		return tx.Scan(bucket, prefix, func(string, []byte) (bool, error) { n++; return true, nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func manifest(t *testing.T, st *sessiontest.Stack, s *session.Session, job string) proto.Manifest {
	t.Helper()
	m, err := st.Jobs.Manifest(context.Background(), s, job)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestRemovedJobDirectoryStaysRemoved(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	for _, job := range []string{"a", "b"} {
		if _, err := s.Run(ctx, proto.Cmd{Command: "echo x >f", JobID: job}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.RemoveFile(ctx, proto.UserDefault, "/workspace/a", true); err != nil {
		t.Fatal(err)
	}
	res,
		err := s.Run(ctx, proto.Cmd{Command: "rm -rf /workspace/b; ls -d /workspace/a /workspace/b 2>/dev/null | wc -l",
		JobID: "b"})
	if err != nil || res.Result.Result.Stdout != "0\n" || len(res.Notes) != 0 {
		t.Fatalf("%+v %q %v", res.Result.Result, res.Notes, err)
	}
	if out := sessiontest.Bash(t, s, "ls -d /workspace/a /workspace/b 2>/dev/null | wc -l").Stdout; out != "0\n" {
		t.Errorf("the books made a directory again: %q", out)
	}
	if m := manifest(t, st, s, "a"); len(m.Files) != 0 {
		t.Errorf("%+v", m.Files)
	}
}

func TestFilesThatAreNoJobsMakeNone(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	if _, err := s.WriteFile(ctx, proto.UserDefault, "/workspace/README", session.WriteOptions{}, strings.NewReader(
		"x")); err != nil {
		t.Fatal(err)
	}
	_ = s.RemoveFile(ctx, proto.UserDefault, "/workspace/never", true)
	for _, id := range []string{"README", "never", "..", "a/b", "inputs", ""} {
		if _, err := st.Jobs.Manifest(ctx, s, id); proto.CodeOf(err) != proto.NotFound {
			t.Errorf("%q is a job: %v", id, err)
		}
	}
}

func TestUploadIsNotBlamedForOthersFiles(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e, err := s.Exec(ctx, proto.Cmd{Command: "echo x >mine; read -r line", JobID: "j", OpenStdin: true})
	if err != nil {
		t.Fatal(err)
	}
	for { // until the command has written; the loop uses stat, since a file system reports no events
		if _, err := s.Stat(ctx, proto.UserDefault, "/workspace/j/mine"); err == nil {
			break
		}
	}
	if _, err := s.WriteFile(ctx, proto.UserDefault, "/workspace/j/theirs", session.WriteOptions{}, strings.NewReader(
		"y")); err != nil {
		t.Fatal(err)
	}
	if a := artifact(t, manifest(t, st, s, "j"), "mine"); a.Origin != "produced" {
		t.Errorf("what a running command made is told as %s", a.Origin)
	}
	if a := artifact(t, manifest(t, st, s, "j"), "theirs"); a.Origin != "uploaded" || a.CreatedBy != "" {
		t.Errorf("%+v", a)
	}
	_ = e.CloseStdin()
	if _, err := e.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestWeirdNames(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	res,
		err := s.Run(
		ctx,
		proto.Cmd{
			Command: `cd "$OUTPUT_DIR"; printf 1 >$'new\nline'; printf 2 >$'bad\xff'; printf 3 >'a:b?"|.txt'; printf 4 >-rf; printf 5 >' '; printf 6 >$'\e[31m'; printf 7 >$'del\x7f\xc2\x85'`})
	if err != nil || res.Result.Result == nil || res.Result.Result.ReturnCode != 0 {
		t.Fatalf("%+v %v", res.Result, err)
	}
	names := map[string]string{}
	for _, c := range res.Result.Result.Content {
		r, f, err := st.Files.Open(ctx, sessiontest.Owner, c.FileID)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r)
		r.Close()
		names[string(body)] = f.Filename
	}
	for body, want := range map[string]string{"1": "new_line", "3": "a_b___.txt", "4": "-rf", "6": "_[31m",
		"7": "del__"} {
		if names[body] != want {
			t.Errorf("file %s is stored as %q, want %q", body, names[body], want)
		}
	}
	if names["2"] == "" && !strings.Contains(strings.Join(res.Notes, "\n"), "bad") {
		t.Errorf("a file was neither stored nor reported: %v, notes %q", names, res.Notes)
	}
	data, err := json.Marshal(manifest(t, st, s, s.DefaultJob()))
	if err != nil || !json.Valid(data) {
		t.Error(err)
	}
}

func TestManyFilesDoNotHideOutputs(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	res, err := s.Run(ctx, proto.Cmd{Command: `mkdir a; (cd a; seq 1 10000 | xargs touch); echo out >"$OUTPUT_DIR/r"`})
	if err != nil || res.Result.Result == nil || len(res.Result.Result.Content) != 1 {
		t.Fatalf("%+v notes %q %v", res.Result.Result, res.Notes, err)
	}
	if m := manifest(t, st, s, s.DefaultJob()); !m.Truncated || len(m.Files) != artifacts.MaxFiles {
		t.Errorf("%d files, truncated %v", len(m.Files), m.Truncated)
	}
	res, err = s.Run(ctx, proto.Cmd{Command: `for i in $(seq 1 120); do echo $i >"$OUTPUT_DIR/$i"; done`,
		JobID: "many"})
	if err != nil || len(res.Result.Result.Content) != artifacts.MaxOutputs || len(res.Notes) != 1 {
		t.Errorf("%d files stored of 120, notes %q, %v", len(res.Result.Result.Content), res.Notes, err)
	}
}

// TestReplacedOutputsAreReadAsTheirUser runs a background command that replaces an output between listing and
// reading.
func TestReplacedOutputsAreReadAsTheirUser(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	if _, err := s.Run(ctx, proto.Cmd{Command: "printf secret >/root/key; chmod 600 /root/key", User: proto.UserRoot,
		JobID: "roots"}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		res, err := s.Run(ctx, proto.Cmd{Command: `cd "$OUTPUT_DIR"; echo x >f
			(while :; do ln -sf /root/key l; mv -T l f; rm -f p; mkfifo p; mv p f; echo x >r; mv r f; done) >/dev/null 2>&1 & true`, TimeoutSeconds: 60})
		if err != nil || res.Exec.End.Reason != proto.EndExit {
			t.Fatalf("%+v %v", res.Exec.End, err)
		}
		for _, c := range res.Result.Result.Content {
			r, _, err := st.Files.Open(ctx, sessiontest.Owner, c.FileID)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(r)
			r.Close()
			if strings.Contains(string(body), "secret") {
				t.Fatal("a file of root's was stored for a command of the user's")
			}
		}
		sessiontest.Bash(t, s, "pkill -f mkfifo; true")
	}
}

func TestJobOfRootHasItsManifest(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	res, err := s.Run(ctx, proto.Cmd{Command: "echo x >f", JobID: "j", User: proto.UserRoot})
	if err != nil || len(res.Notes) != 0 {
		t.Fatalf("notes %q %v", res.Notes, err)
	}
	if out := sessiontest.Bash(t, s, "cat /workspace/.berth/j.json").Stdout; !strings.Contains(out, `"path": "f"`) {
		t.Errorf("%q", out)
	}
}

// TestNothingOfOursAmongTheUsersFiles checks that the directories of jobs and others hold the user's files alone, that
// patterns find nothing else, and that git sees nothing of ours, wherever the repository is.
func TestNothingOfOursAmongTheUsersFiles(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	run := func(text, want string) {
		t.Helper()
		res, err := s.Run(ctx, proto.Cmd{Command: text, JobID: "j"})
		if err != nil || len(res.Notes) > 0 || res.Result.Result.Stdout != want {
			t.Errorf("%s: %+v %q %v, want %q", text, res.Result.Result, res.Notes, err, want)
		}
	}
	run("echo 1 >a.json; echo 2 >b.json; echo x >$OUTPUT_DIR/o.json", "")
	run("ls; echo *.json; find . -name '*.json' -not -path '*/.*'", "a.json\nb.json\na.json b.json\n./a.json\n./b.json\n")
	run("git init -q; git status --porcelain", "?? a.json\n?? b.json\n")
	run("cd ..; git init -q; rm -rf j/.git; git status --porcelain", "?? j/\n")
	run("cd ..; git status --porcelain -uall; rm -r .git", "?? j/a.json\n?? j/b.json\n")
	for _, path := range []string{"/workspace/repo/f", "/workspace/repo/g"} {
		if _, err := s.WriteFile(ctx, proto.UserDefault, path, session.WriteOptions{}, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := st.Jobs.Manifest(ctx, s, "repo"); err != nil {
		t.Error(err)
	}
	run("ls -A ../repo; ls ..; ls ../.berth", "f\ng\nj\nrepo\nj.json\n")
	run(`grep -c '"path": "a.json"' ../.berth/j.json`, "1\n")
}

// TestManifestJSONIsTheUsers checks that a file called manifest.json is like any other.
func TestManifestJSONIsTheUsers(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, s, "true") // a job that is not that of the file
	const at = "/workspace/j/manifest.json"
	if _, err := s.WriteFile(ctx, proto.UserDefault, at, session.WriteOptions{}, strings.NewReader("up")); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"true", "echo x >f", "echo own >manifest.json", "ln -sf f manifest.json"} {
		if _, err := s.Run(ctx, proto.Cmd{Command: text, JobID: "j"}); err != nil {
			t.Fatal(err)
		}
		m, err := st.Jobs.Manifest(ctx, s, "j")
		if err != nil || !slices.ContainsFunc(m.Files, func(a proto.Artifact) bool { return a.Path == "manifest.json" }) {
			t.Errorf("after %s, %+v, %v", text, m.Files, err)
		}
	}
}

// TestManifestOfAnEarlierVersion checks that the manifest goes that an earlier version wrote beside the files, and
// that nothing else of that name does.
func TestManifestOfAnEarlierVersion(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	run := func(job, text string) string {
		t.Helper()
		res, err := s.Run(ctx, proto.Cmd{Command: text, JobID: job})
		if err != nil || len(res.Notes) > 0 {
			t.Fatalf("notes %q %v", res.Notes, err)
		}
		return res.Result.Result.Stdout
	}
	for _, job := range []string{"a", "b", "c"} {
		run(job, "echo x >f")
	}
	run("a", "cp ../.berth/a.json manifest.json")
	run("b", "cp ../.berth/a.json manifest.json") // of another job
	run("c", "echo '{}' >manifest.json")
	st.Reopen(t)
	s, err := st.Sessions.Get(sessiontest.Owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	for job, want := range map[string]string{"a": "f\ng\n", "b": "f\ng\nmanifest.json\n", "c": "f\ng\nmanifest.json\n"} {
		run(job, "echo x >g")
		if out := run(job, "ls"); out != want {
			t.Errorf("job %s has %q", job, out)
		}
		m, err := st.Jobs.Manifest(ctx, s, job)
		if err != nil || len(m.Files) != strings.Count(want, "\n") {
			t.Errorf("job %s: %+v %v", job, m.Files, err)
		}
	}
}

func TestInputsLeaveTheCodesFilesAlone(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	put := func(name, body string) string {
		f, err := st.Files.Put(ctx, files.Upload{Owner: sessiontest.Owner, Filename: name}, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return f.ID
	}
	sessiontest.Bash(t, s, `mkdir -p "$INPUT_DIR"; echo own >"$INPUT_DIR/data.csv"; mkdir "$INPUT_DIR/d"`)
	long := strings.Repeat("é", 126) // 252 bytes
	ids := []string{put("data.csv", "up"), put("d", "up"), put(long+".c", "1"), put(long+".c", "2"),
		put("x."+strings.Repeat("e", 250), "3"), put("x."+strings.Repeat("e", 250), "4")}
	res, err := s.Run(ctx, proto.Cmd{Command: `cd "$INPUT_DIR"; cat data.csv "data (2).csv" "d (2)"; ls | wc -l`,
		Files: ids})
	if err != nil || res.Result.Result.Stdout != "own\nupup8\n" {
		t.Fatalf("%+v %v", res.Result.Result, err)
	}
	res, err = s.Run(ctx, proto.Cmd{Command: `ls "$INPUT_DIR" | wc -l`, Files: ids})
	if err != nil || res.Result.Result.Stdout != "8\n" {
		t.Errorf("the second time copied again: %+v %v", res.Result.Result, err)
	}
}

func TestInputsThatCannotBeRecordedAreTakenBack(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	f, err := st.Files.Put(ctx, files.Upload{Owner: sessiontest.Owner, Filename: "in"}, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	disk := t.TempDir()
	needs.Root(t)
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatalf("this test mounts a tmpfs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	books, err := ledger.Open(path.Join(disk, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { books.Close() })
	other := artifacts.New(artifacts.Config{Files: st.Files, Ledger: books})
	known := map[string]string{} // so large that the ledger's disk has no room for a second copy
	for i := range 1000 {
		known[fmt.Sprint("known", i)] = "file_0000000000000000000000"
	}
	if err := books.Update(func(tx *ledger.Tx) error { return tx.Put("inputs", s.WorkspaceID(), known) }); err != nil {
		t.Fatal(err)
	}
	_ = os.WriteFile(path.Join(disk, "filler"), make([]byte, 1<<20), 0o600)
	if err := other.Begin(ctx, s.Files, []string{f.ID}); err == nil {
		t.Fatal("the books were written on a full disk")
	}
	if out := sessiontest.Bash(t, s, `ls "$INPUT_DIR" 2>/dev/null | wc -l`).Stdout; out != "0\n" {
		t.Errorf("%s inputs are left", strings.TrimSpace(out))
	}
}

func TestLogOfCommandsIsBounded(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	key := s.WorkspaceID() + "/j/"
	err := st.Ledger.Update(func(tx *ledger.Tx) error {
		for i := range 2 * artifacts.MaxExecs {
			if err := tx.Put("job_execs", fmt.Sprintf("%sexec_0000%06d", key, i),
				proto.JobExec{ID: fmt.Sprint(i)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var last proto.ExecResult
	for range 100 {
		if last, err = s.Run(ctx, proto.Cmd{Command: "true", JobID: "j"}); err != nil {
			t.Fatal(err)
		}
	}
	m := manifest(t, st, s, "j")
	if n := records(t, st, "job_execs", key); n > artifacts.MaxExecs {
		t.Errorf("%d commands are logged", n)
	}
	if len(m.Execs) == 0 || m.Execs[len(m.Execs)-1].ID != last.Exec.ID {
		t.Error("the newest is not the last")
	}
}

func TestDeletedContainerLeavesNoBooks(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	for range 5 {
		s := st.Create(t, proto.CreateContainer{})
		for range 4 {
			if _, err := s.Exec(ctx, proto.Cmd{Command: "echo x >$RANDOM; sleep 0.0$((RANDOM%5))"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), false); err != nil {
			t.Fatal(err)
		}
	}
	_ = st.Ledger.Update(func(*ledger.Tx) error { return nil }) // waits for all queued writes
	for _, bucket := range []string{"jobs", "job_files", "job_execs", "inputs", "execs", "sessions", "workspaces"} {
		if n := records(t, st, bucket, ""); n != 0 {
			t.Errorf("%d records are left in %s", n, bucket)
		}
	}
}

// TestEndAfterRemovalLeavesTheBooksOfAKeptWorkspace checks a command that is canceled while its container is removed.
// Its end is recorded when the container no longer answers. That must not count as the removal of its files.
func TestEndAfterRemovalLeavesTheBooksOfAKeptWorkspace(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	first, err := s.Run(ctx, proto.Cmd{Command: "echo x >a", JobID: "j"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Run(ctx, proto.Cmd{Command: "echo y >b", JobID: "j"})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, s.ID(), true); err != nil {
		t.Fatal(err)
	}
	if made := st.Jobs.End(ctx, s.Files, second.Exec, "", session.DirectoryState{}); len(made.Notes) == 0 {
		t.Error("it is not told that the books are behind")
	}
	again := st.Create(t, proto.CreateContainer{WorkspaceID: s.WorkspaceID()})
	if a := artifact(t, manifest(t, st, again, "j"), "a"); a.CreatedBy != first.Exec.ID {
		t.Errorf("made by %q: %+v", a.CreatedBy, a)
	}
}

func TestJobsWithoutFilesAreInTheLedger(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	e, err := s.Exec(ctx, proto.Cmd{Command: "read -r line", JobID: "asked", OpenStdin: true})
	if err != nil {
		t.Fatal(err)
	}
	st.Jobs.Made(ctx, s, e.Info(), time.Now()) // before its end
	_ = e.CloseStdin()
	if _, err := e.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Mkdir(ctx, proto.UserDefault, "/workspace/empty"); err != nil {
		t.Fatal(err)
	}
	st.Jobs.Changed(ctx, s.Files, "/workspace/empty/f", session.OriginUploaded)
	list, err := st.Jobs.List(s)
	if err != nil || len(list) != 2 {
		t.Errorf("%+v %v", list, err)
	}
}

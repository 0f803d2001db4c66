package artifacts_test

import (
	"context"
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
	"berth/test/sessiontest"
)

// contents returns "name=content" of each stored file.
func contents(t *testing.T, st *sessiontest.Stack, ids []string) (list []string) {
	t.Helper()
	for _, id := range ids {
		r, f, err := st.Files.Open(context.Background(), sessiontest.Owner, id)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		_ = r.Close()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f.Filename+"="+strings.TrimSpace(string(text)))
	}
	return list
}

// outputsOf returns the stored files of a result as contents does.
func outputsOf(t *testing.T, st *sessiontest.Stack, res proto.ExecResult) []string {
	t.Helper()
	if res.Result.Result == nil || res.Result.Result.ReturnCode != 0 {
		t.Fatalf("%+v", res.Result)
	}
	var ids []string
	for _, f := range res.Result.Result.Content {
		ids = append(ids, f.FileID)
	}
	return contents(t, st, ids)
}

// TestOutputsBelowTheTop checks what becomes of everything that $OUTPUT_DIR can hold: files in subdirectories and links
// to files are stored, and the rest is noted.
func TestOutputsBelowTheTop(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	for name, c := range map[string]struct {
		command string
		files   []string
		notes   []string // a part of each
	}{
		"subdirectories": {`mkdir -p charts/deep empty; echo a >charts/a.png; echo b >charts/deep/b; echo t >z.txt; ` +
			`echo u >"charts/a:b?"`,
			[]string{"charts/a.png=a", "charts/a_b_=u", "charts/deep/b=b", "z.txt=t"}, nil},
		"links": {`mkdir d; echo r >$JOB_DIR/r; ln -s $JOB_DIR/r absolute; ln -s ../../../r d/relative; echo i >i; ` +
			`ln -s ../i d/inside; ln -s absolute chain`,
			[]string{"absolute=r", "chain=r", "d/inside=i", "d/relative=r", "i=i"}, nil},
		"what is not stored": {`mkdir d; ln -s /etc/passwd d/out; ln -s nowhere none; ln -s d dir; ln -s loop loop; ` +
			`mkfifo d/fifo; echo x >closed; chmod 0 closed; ln -s fifo d/to-fifo; echo f >fine`,
			[]string{"fine=f"},
			[]string{`"closed" was not stored: it cannot be read by user "user"; change its mode`,
				`"dir" was not stored: it is a link, and its target "d" is a directory; put the file itself`,
				`"loop" was not stored: it is a link, and its target "loop" has too many`,
				`"none" was not stored: it is a link, and its target "nowhere" does not exist`,
				`"d/fifo" was not stored: it is a FIFO, a socket or a device`,
				`"d/out" was not stored: it is a link, and its target "/etc/passwd" is outside of /workspace`,
				`"d/to-fifo" was not stored: it is a link, and its target "fifo" is not a regular file`}},
		"many notes": {`for n in $(seq 30); do ln -s nowhere $n; done`, nil, append(slices.Repeat([]string{
			`target "nowhere" does not exist`}, 10), "and 20 more in $OUTPUT_DIR were not stored")},
		"a special file alone": {"mkfifo fifo", nil, []string{`"fifo" was not stored`}},
		"no directory any more": {`cd ..; rmdir $OUTPUT_DIR; ln -s $JOB_DIR $OUTPUT_DIR`, nil,
			[]string{"not a directory any more"}},
		"no directory at all": {`cd ..; rmdir $OUTPUT_DIR`, nil, nil},
		"a long name": {`for n in $(seq 12); do d=$(printf d%.0s $(seq 100)); mkdir $d; cd $d; done; echo x >f`, nil,
			[]string{"longer than 1024 characters"}},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := s.Run(ctx, proto.Cmd{Command: "cd $OUTPUT_DIR; " + c.command})
			if err != nil {
				t.Fatal(err)
			}
			if got := outputsOf(t, st, res); !slices.Equal(got, c.files) {
				t.Errorf("stored %q, want %q", got, c.files)
			}
			if !slices.EqualFunc(res.Notes, c.notes, strings.Contains) {
				t.Errorf("notes %q, want %q", res.Notes, c.notes)
			}
		})
	}
}

// fillJob makes so many files in a job that its manifest has no room for more.
func fillJob(t *testing.T, s *session.Session, job string) {
	t.Helper()
	made := proto.Cmd{Command: fmt.Sprintf("mkdir .a; touch $(seq -f .a/%%g %d)", artifacts.MaxFiles+1), JobID: job}
	if _, err := s.Run(t.Context(), made); err != nil {
		t.Fatal(err)
	}
}

// TestManyOutputs checks that the files at the top are stored first if there are too many, also in a job whose manifest
// has no room for them.
func TestManyOutputs(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	fillJob(t, s, "full")
	for _, job := range []string{"few", "full"} {
		res, err := s.Run(ctx, proto.Cmd{Command: "cd $OUTPUT_DIR; mkdir a; touch $(seq -f a/%g 150) report.txt",
			JobID: job})
		if err != nil {
			t.Fatal(err)
		}
		got := outputsOf(t, st, res)
		for i := range got {
			got[i] = strings.TrimSuffix(got[i], "=")
		}
		if len(got) != artifacts.MaxOutputs || !slices.IsSorted(got) || !slices.Contains(got, "report.txt") {
			t.Errorf("%s: stored %q", job, got)
		}
		if len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "holds 51 more files, which are not stored") {
			t.Errorf("%s: %q", job, res.Notes)
		}
	}
}

// TestRootFollowsItsOwnLinks checks that a command of root publishes no file that only root can read through a link of
// the ordinary user, who owns the directories.
func TestRootFollowsItsOwnLinks(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	res, err := s.Run(ctx, proto.Cmd{User: proto.UserRoot, Command: `echo key >$JOB_DIR/key; chmod 600 $JOB_DIR/key; ` +
		`cd $OUTPUT_DIR; ln -s $JOB_DIR/key mine; ln -s $JOB_DIR/key theirs; chown -h 1000:1000 theirs`})
	if err != nil {
		t.Fatal(err)
	}
	if got := outputsOf(t, st, res); !slices.Equal(got, []string{"mine=key"}) || len(res.Notes) != 1 ||
		!strings.Contains(res.Notes[0], "another user, which root does not follow") {
		t.Errorf("stored %q, notes %q", got, res.Notes)
	}
}

// TestOutputsOfCells checks what comes with each cell of an interpreter: what changed since the last one, at any depth
// and behind links, and what cannot be stored once.
func TestOutputsOfCells(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	s := st.Create(t, proto.CreateContainer{})
	fillJob(t, s, "full")
	for _, job := range []string{"few", "full"} {
		e, err := s.Exec(ctx, proto.Cmd{Command: `cd $OUTPUT_DIR; while read -r line; do eval "$line"; echo; done`,
			OpenStdin: true, JobID: job})
		if err != nil {
			t.Fatal(err)
		}
		seen := session.Cursor{}
		cell := func(text string) session.Produced {
			t.Helper()
			since := time.Now()
			if err := e.Write(ctx, []byte(text+"\n")); err != nil {
				t.Fatal(err)
			}
			ended := fmt.Errorf("it ended")
			err := e.Follow(ctx, seen, func(ev proto.Event) error {
				if seen.Stdout += int64(len(ev.Data)); strings.Contains(ev.Data, "\n") {
					return ended
				}
				return nil
			})
			if err != ended {
				t.Fatal(err)
			}
			return st.Jobs.Made(ctx, s, e.Info(), since)
		}
		for i, c := range []struct {
			text  string
			files []string
			notes int
		}{
			{"mkdir d; echo 1 >d/a; echo 1 >top; echo r1 >$JOB_DIR/r; ln -s $JOB_DIR/r d/link; ln -s nowhere n; " +
				"mkfifo p", []string{"d/a=1", "d/link=r1", "top=1"}, 2},
			{"true", nil, 0},
			{"echo 2 >d/a", []string{"d/a=2"}, 0},
			{"echo r2 >$JOB_DIR/r", []string{"d/link=r2"}, 0},
			{"echo q >$JOB_DIR/q; ln -sfn $JOB_DIR/q d/link", []string{"d/link=q"}, 0},
		} {
			made := cell(c.text)
			if got := contents(t, st, made.FileIDs); !slices.Equal(got, c.files) || len(made.Notes) != c.notes {
				t.Errorf("%s, cell %d: stored %q, notes %q", job, i, got, made.Notes)
			}
		}
		before := stored(t, st)
		_ = e.CloseStdin()
		res, err := e.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got := outputsOf(t, st, res); !slices.Equal(got, []string{"d/a=2", "d/link=q", "top=1"}) ||
			len(res.Notes) != 2 || stored(t, st) != before {
			t.Errorf("%s: in the end %q, notes %q, %d files after %d", job, got, res.Notes, stored(t, st), before)
		}
	}
}

// TestInputsWithDirectories checks that stored files of a container keep their directories in another one's
// $INPUT_DIR, and that what is there in their place does not matter.
func TestInputsWithDirectories(t *testing.T) {
	ctx := context.Background()
	st := sessiontest.New(t, session.Config{})
	maker := st.Create(t, proto.CreateContainer{})
	res, err := maker.Run(ctx, proto.Cmd{Command: "cd $OUTPUT_DIR; mkdir -p charts/deep; echo 1 >charts/a.png; " +
		"echo 2 >charts/deep/b"})
	if err != nil || res.Result.Result == nil || len(res.Result.Result.Content) != 2 {
		t.Fatalf("%+v %v", res, err)
	}
	var ids []string
	for _, f := range res.Result.Result.Content {
		ids = append(ids, f.FileID)
	}
	flat, err := st.Files.Put(ctx, files.Upload{Owner: sessiontest.Owner, Filename: "charts"}, strings.NewReader("3\n"))
	if err != nil {
		t.Fatal(err)
	}
	show := `cd $INPUT_DIR; find . -type f | sort | while read -r f; do echo "$f=$(cat "$f")"; done`
	for name, c := range map[string]struct {
		before string // a command before the files come
		files  []string
		want   string
	}{
		"as stored": {"true", ids, "./charts/a.png=1\n./charts/deep/b=2\n"},
		"after a file": {"true", []string{flat.ID, ids[0], ids[1]},
			"./charts=3\n./charts (2)/a.png=1\n./charts (2)/deep/b=2\n"},
		"before a file": {"true", []string{ids[0], flat.ID}, "./charts (2)=3\n./charts/a.png=1\n"},
		"beside code's file": {"mkdir -p $INPUT_DIR/charts; echo own >$INPUT_DIR/charts/a.png", ids[:1],
			"./charts/a (2).png=1\n./charts/a.png=own\n"},
		"where code's link is": {"mkdir -p $INPUT_DIR /workspace/x; ln -s /workspace/x $INPUT_DIR/charts", ids[:1],
			"./charts (2)/a.png=1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := st.Create(t, proto.CreateContainer{})
			sessiontest.Bash(t, s, c.before)
			res, err := s.Run(ctx, proto.Cmd{Command: show, Files: c.files})
			if err != nil || res.Result.Result.Stdout != c.want {
				t.Fatalf("%q, want %q; %v", res.Result.Result.Stdout, c.want, err)
			}
			again, err := s.Run(ctx, proto.Cmd{Command: show, Files: c.files})
			if err != nil || again.Result.Result.Stdout != c.want {
				t.Errorf("the second time %q; %v", again.Result.Result.Stdout, err)
			}
		})
	}
	s := st.Create(t, proto.CreateContainer{Files: ids})
	sessiontest.Bash(t, s, "rm -r $INPUT_DIR/charts; echo own >$INPUT_DIR/charts")
	res, err = s.Run(ctx, proto.Cmd{Command: show, Files: ids[:1]})
	if err != nil || res.Result.Result.Stdout != "./charts=own\n./charts (2)/a.png=1\n" {
		t.Errorf("after the directory became a file: %+v %v", res.Result.Result, err)
	}
	fresh := st.Create(t, proto.CreateContainer{})
	_, err = fresh.Run(ctx, proto.Cmd{Command: "true", Files: append(ids[1:2:2], "file_0000000000000000000000")})
	if got := sessiontest.Bash(t, fresh, "ls -A $INPUT_DIR").Stdout; proto.CodeOf(err) != proto.NotFound || got != "" {
		t.Errorf("%v left %q", err, got)
	}
}

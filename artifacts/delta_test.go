package artifacts_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"berth/artifacts"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// TestOneChangeBesideMany checks that commands that change, make and remove single files of a large directory leave
// the same manifest, with the same authors, that a daemon finds which reads the whole directory.
func TestOneChangeBesideMany(t *testing.T) {
	for _, n := range []int{300, artifacts.MaxFiles + 10} {
		st := sessiontest.New(t, session.Config{})
		s := st.Create(t, proto.CreateContainer{})
		run := func(command string) proto.ExecResult {
			t.Helper()
			res, err := s.Run(t.Context(), proto.Cmd{Command: command, JobID: "j"})
			if err != nil || len(res.Notes) > 0 {
				t.Fatalf("%v, notes %q", err, res.Notes)
			}
			return res
		}
		first := run(fmt.Sprintf("seq -f %%04g %d | xargs touch", n)).Exec.ID
		run("true")
		changed := run("echo x >0007").Exec.ID
		made := run("echo y >0000").Exec.ID
		run("rm 0008")
		output := run(`echo z >"$OUTPUT_DIR/z"`)
		m := manifest(t, st, s, "j")
		if a := artifact(t, m, "0007"); a.CreatedBy != first || a.ChangedBy != changed || a.SHA256 != sum("x\n") {
			t.Errorf("%d files: changed is %+v", n, a)
		}
		if a := artifact(t, m, "0000"); a.CreatedBy != made || a.SizeBytes != 2 {
			t.Errorf("%d files: made is %+v", n, a)
		}
		if len(output.Result.Result.Content) != 1 {
			t.Errorf("%d files: outputs are %+v", n, output.Result.Result.Content)
		}
		st.Close(t)
		st.Open(t)
		again, err := st.Sessions.Get(sessiontest.Owner, s.ID())
		if err != nil {
			t.Fatal(err)
		}
		after := manifest(t, st, again, "j")
		if len(after.Files) != len(m.Files) || after.Truncated != m.Truncated {
			t.Errorf("%d files: %d in the manifest, truncated %v; the next daemon has %d, %v", n, len(m.Files), m.Truncated,
				len(after.Files), after.Truncated)
		}
		for i := range min(len(after.Files), len(m.Files)) {
			was, err := json.Marshal(m.Files[i])
			now, err2 := json.Marshal(after.Files[i])
			if err != nil || err2 != nil || string(now) != string(was) {
				t.Fatalf("%d files: the next daemon has %s after %s; %v, %v", n, now, was, err, err2)
			}
		}
	}
}

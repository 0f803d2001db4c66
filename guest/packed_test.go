package guest

import (
	"encoding/json"
	"reflect"
	"syscall"
	"testing"
	"time"
)

// What is packed is read as it was, and nothing shorter or longer than that is taken for it.
func TestPacked(t *testing.T) {
	for _, cmd := range []Command{
		{},
		{Text: "true"},
		{ID: "exec_1", Argv: []string{"a", "", "b\xff"}, Dir: "/workspace", Output: "o", Job: "j",
			Env: []string{"A=1", "B=\n"}, Lists: []string{"P=/x"}, User: "root", Stdin: true},
	} {
		b := appendCommand(nil, &cmd, 4)
		got, n, err := readCommand(b)
		if err != nil || n != 4 || !reflect.DeepEqual(*got, cmd) {
			t.Errorf("%+v became %+v with %d, %v", cmd, got, n, err)
		}
		for i := range b {
			if _, _, err := readCommand(b[:i]); err == nil {
				t.Errorf("%d of %d bytes of %+v are a command", i, len(b), cmd)
			}
		}
		if _, _, err := readCommand(append(b, 0)); err == nil {
			t.Errorf("%+v and a byte is a command", cmd)
		}
	}
	for _, d := range []done{
		{},
		{Exit: Exit{Code: 137, Signal: syscall.SIGKILL, OutOfMemory: true, Leftover: 3, CPU: time.Hour,
			PeakBytes: 1 << 40, Seen: "abc"}},
		{Exit: Exit{ForksRefused: true, Full: ShortTmp, FullBefore: allShort, NoOutputDir: true}, Open: true},
	} {
		b := appendDone(nil, &d)
		var got done
		if err := readDone(b, &got); err != nil || got != d {
			t.Errorf("%+v became %+v, %v", d, got, err)
		}
		for i := range b {
			if readDone(b[:i], &got) == nil {
				t.Errorf("%d of %d bytes of %+v are an end", i, len(b), d)
			}
		}
	}
}

// Whatever a guest says of an end, or a daemon of a command, is refused or read, and what is read says the same again.
func FuzzPacked(f *testing.F) {
	f.Add(appendCommand(nil, &Command{Text: "true", Env: []string{"A=1"}}, 4))
	f.Add(appendDone(nil, &done{Exit: Exit{Code: 1, Seen: "x"}}))
	f.Add([]byte{8, 2})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if cmd, n, err := readCommand(raw); err == nil {
			again, m, err := readCommand(appendCommand(nil, cmd, n))
			if err != nil || m != n || !reflect.DeepEqual(again, cmd) {
				t.Errorf("%+v with %d became %+v with %d, %v", cmd, n, again, m, err)
			}
		}
		var d done
		if readDone(raw, &d) == nil && d.plausible() {
			var again done
			if err := readDone(appendDone(nil, &d), &again); err != nil || again != d {
				t.Errorf("%+v became %+v, %v", d, again, err)
			}
		}
	})
}

// BenchmarkCommand is what reading a plain command takes the guest, packed and as JSON.
func BenchmarkCommand(b *testing.B) {
	dir := "/workspace/job_03516YZrbd5601NiqoSUkF"
	cmd := Command{
		ID: "exec_03516YZrbd5601NiqoSUkF", Text: "true", Dir: dir, Job: dir, Output: dir +
			"/outputs/exec_03516YZrbd5601NiqoSUkF", User: "user",
		Env: []string{"INPUT_DIR=/workspace/inputs", "OUTPUT_DIR=" + dir + "/outputs/exec_03516YZrbd5601NiqoSUkF",
			"JOB_DIR=" + dir, "JOB_ID=job_03516YZrbd5601NiqoSUkF"},
	}
	asJSON, err := json.Marshal(&request{Op: opExec, Command: &cmd, Pipes: 4})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		kind frameKind
		body []byte
	}{{"packed", frameRun, appendCommand(nil, &cmd, 4)}, {"json", frameRequest, asJSON}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var req request
				if err := req.read(c.kind, c.body); err != nil || req.Command.Text != cmd.Text {
					b.Fatal(err)
				}
			}
		})
	}
}

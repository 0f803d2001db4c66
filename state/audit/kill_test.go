package audit

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"berth/proto"
	"berth/state/ledger"
)

// writerDir tells the test binary to be the writer that TestKilledWhileWriting kills.
const writerDir = "BERTH_AUDIT_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerDir); dir != "" {
		writeUntilKilled(dir)
	}
	os.Exit(m.Run())
}

// writeUntilKilled says after each entry that it is written.
func writeUntilKilled(dir string) {
	db, err := ledger.Open(filepath.Join(dir, "ledger.db"))
	if err != nil {
		panic(err)
	}
	log, err := Open(Config{Dir: dir, Ledger: db, SegmentBytes: 10_000})
	if err != nil {
		panic(err)
	}
	for {
		log.Append(proto.AuditEntry{Act: "exec.end", Outcome: proto.AuditOK, Actor: "key_1"})
		seq, _ := log.Head()
		fmt.Println(seq)
	}
}

// What was said to be written is there after a SIGKILL, and the log goes on as one chain.
func TestKilledWhileWriting(t *testing.T) {
	dir, entries := t.TempDir(), int64(0)
	for round := range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Stderr = append(os.Environ(), writerDir+"="+dir), os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines, said := bufio.NewScanner(out), int64(0)
		for n := 0; lines.Scan(); n++ {
			if n == 100+round*333 {
				_ = cmd.Process.Kill()
			}
			if _, err := fmt.Sscan(lines.Text(), &said); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Wait()
		db, err := ledger.Open(filepath.Join(dir, "ledger.db"))
		if err != nil {
			t.Fatal(err)
		}
		a, _, err := ReadAnchor(db)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Verify(dir, a.Head())
		if err != nil || r.Bad != nil && r.Bad.Kind != BadTorn || r.Seq < said || r.Seq <= entries {
			t.Errorf("round %d: %d were said to be written: %+v %+v %v", round, said, r, r.Bad, err)
		}
		entries = r.Seq
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

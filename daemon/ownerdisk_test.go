package daemon_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"berth/proto"
	"berth/test/daemontest"
)

// TestOwnersDisk checks what an owner has on the disk: what copies share counts once, for as long as anything has it,
// also after the original has gone and the daemon was killed. The bound of an owner is met at that number, and an owner
// at the bound can remove files.
func TestOwnersDisk(t *testing.T) {
	const mib = 1 << 20
	const bound, slack = 1500 * mib, 16 * mib // metadata counts, too
	d, err := daemontest.New("--owner-disk-bytes", fmt.Sprint(bound), "--sweep-every", "1s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	s := &server{d}
	t.Cleanup(func() { // its containers go on without it
		for _, con := range call[struct{ Data []proto.Container }](t, s, 200, "GET", "/v1/containers", "").Data {
			call[any](t, s, 200, "DELETE", "/v1/containers/"+con.ID, "")
		}
	})
	used := func() int64 {
		t.Helper()
		use := call[proto.KeyStatus](t, s, 200, "GET", "/v1/keys/self", "").Usage
		if use.OwnerDiskBytes == nil || use.OwnerDiskLimit != bound {
			t.Fatalf("the disk does not count for owners: %+v", use)
		}
		return *use.OwnerDiskBytes
	}
	is := func(when string, want int64) {
		t.Helper()
		var got int64
		defer func() { t.Logf("%s: %d MiB", when, got/mib) }()
		eventually(t, fmt.Sprintf("%s, the owner has %d MiB", when, want/mib), func() bool {
			got = used()
			return got >= want-slack && got <= want+slack
		})
	}
	run := func(id, command string) *proto.ExecResult {
		t.Helper()
		res := bash(t, s, id, command)
		return &res
	}
	c := call[proto.Container](t, s, 201, "POST", "/v1/containers", `{"limits":{"disk_bytes":4294967296}}`)
	is("at the beginning", 0)
	run(c.ID, "fallocate -l 1G /workspace/big && sync /workspace/big")
	is("with a file of 1 GiB", 1024*mib)
	snap := call[proto.Snapshot](t, s, 201, "POST", "/v1/containers/"+c.ID+"/snapshots", "")
	forks := call[struct{ Data []proto.Container }](t, s, 201, "POST", "/v1/containers/"+c.ID+"/fork",
		`{"count":5}`).Data
	is("with five forks and a snapshot", 1024*mib)
	run(forks[0].ID, "head -c 100M /dev/urandom >/workspace/own && sync /workspace/own")
	is("with 100 MiB in a fork", 1124*mib)
	call[any](t, s, 200, "DELETE", "/v1/containers/"+c.ID, "")
	call[any](t, s, 200, "DELETE", "/v1/snapshots/"+snap.ID, "")
	is("without the original and the snapshot", 1124*mib)
	s.restart(t, syscall.SIGKILL)
	is("after a kill", 1124*mib)
	call[any](t, s, 200, "POST", "/v1/containers/"+forks[1].ID+"/stop", "")
	run(forks[1].ID, "rm /workspace/big") // the others have it
	is("after a removal in one fork", 1124*mib)

	res := run(forks[2].ID, "head -c 1G /dev/zero >/workspace/more")
	if end := res.Exec.End; end.Reason != proto.EndDiskQuota || !strings.Contains(end.Message, "this owner") {
		t.Errorf("a write beyond the bound: %+v", end)
	}
	if res := run(forks[2].ID, "rm /workspace/more; fallocate -l 340M /workspace/more && sync /workspace/more"); res.Exec.End.ReturnCode != 0 {
		t.Errorf("a write below the bound: %+v", res.Exec.End)
	}
	run(forks[2].ID, "head -c 100M /dev/zero >/tmp/full; sync /tmp/full")
	call[any](t, s, 200, "POST", "/v1/containers/"+forks[2].ID+"/stop", "")
	if res := run(forks[2].ID, "rm /tmp/full /workspace/more"); res.Exec.End.ReturnCode != 0 {
		t.Errorf("an owner at the bound removes files: %+v", res.Exec.End)
	}
	is("after the removal", 1124*mib)
	for _, fork := range forks[1:] {
		call[any](t, s, 200, "DELETE", "/v1/containers/"+fork.ID, "")
	}
	is("with one fork left", 1124*mib)
	call[any](t, s, 200, "DELETE", "/v1/containers/"+forks[0].ID, "")
	is("without containers", 0)
}

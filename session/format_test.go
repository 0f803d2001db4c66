package session

import (
	"encoding/json"
	"testing"

	"berth/egress"
	"berth/proto"
	"berth/session/cpu"
	"berth/session/endlog"
	"berth/session/inventory"
	"berth/session/lease"
	"berth/session/retries"
	"berth/session/secrets"
	"berth/session/snapshots"
	"berth/test/stored"
)

// TestSealedSecretsKeepTheirFormat holds the names under which sealed secrets are stored: a ledger of an earlier build
// has them.
func TestSealedSecretsKeepTheirFormat(t *testing.T) {
	const stored = `{"env":{"A":"1"},"secrets":{"B":"2"},"swapped":{"C":{"Value":"3"}}}`
	var c sealedFields
	if err := json.Unmarshal([]byte(stored), &c); err != nil {
		t.Fatal(err)
	}
	if c.Env["A"] != "1" || c.Secrets["B"] != "2" || c.Placeholders["C"].Value != "3" {
		t.Errorf("read %+v of %s", c, stored)
	}
}

// TestRecordsKeepTheirFormat holds the names of the ledger's buckets and of the fields in its records.
func TestRecordsKeepTheirFormat(t *testing.T) {
	for _, row := range []struct {
		record any
		names  string
	}{
		{record{}, "id owner key retry name state generation image digest class sudo workspace layer discarded from job labels sealed secret_names env " +
			"tools offered limits network public_ports fixtures isolation host created last_used lifetime lease idle unused_lifetime ended delete " +
			"keep fleeting unfilled"},
		{lease.Lease{}, "mode at_end idle end set span paused"},
		{workspaceRecord{}, "id owner created session kept key lost"},
		{cpu.State{}, "generation charged key"},
		{origin{}, "snapshot copy"},
		{snapshots.Record{}, "id owner key name labels container image digest class limits created expires paused done delete passing"},
		{execRecord{}, "exec key retry sealed run host guest files error notes"},
		{retry{}, "key hash"},
		{Mount{}, "path key generation"},
		{sealedFields{}, "env secrets swapped tools"},
		{secrets.Tools{}, "headers secret"},
		{egress.Secret{}, "Name Placeholder Value Hosts"},
		{endlog.Line[execRecord]{}, "container record"},
		{proto.Limits{}, "cpus memory_bytes pids disk_bytes open_files"},
		{proto.Network{}, "mode allow ask deny"},
		{proto.PublicPorts{}, "all ports"},
		{proto.Isolation{}, "kernel user_namespace host_uid own_counts seccomp no_new_privs network"},
		{proto.End{}, "reason return_code signal message leftover cpu_seconds peak_memory_bytes"},
		{proto.Exec{}, "id container_id job_id command argv shell user pid terminal open_stdin generation background state started_at ended_at end " +
			"stdout_bytes stderr_bytes truncated"},
	} {
		stored.CheckNames(t, row.record, row.names)
	}
	const buckets = "sessions workspaces execs digest/requests strays session_cpu clock/ahead snapshots"
	if got := bucketSessions + " " + bucketWorkspaces + " " + bucketExecs + " " + retries.BucketDigest + "/" + retries.DigestName + " " +
		inventory.Bucket + " " + cpu.Bucket + " " + bucketClock + "/" + clockKey + " " +
		snapshots.Bucket; got != buckets {
		t.Errorf("the buckets are %s, not %s", got, buckets)
	}
}

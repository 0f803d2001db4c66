package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"berth/client"
	"berth/proto"
)

// Group 49: the audit log. Its chain proves that nothing was taken out; this checks that things come in.
var _ = register(Case{
	Group: 49, Name: "audit/record",
	Tries: "do what changes something and what takes data out, and what is refused, as a tenant; then read the log",
	Wants: "each act is there with its outcome, its author, its owner and its container; and the tenant cannot read it",
	Run:   auditRecord,
})

// auditRecord does one act of each kind, and compares the log with what it did.
func auditRecord(ctx context.Context, t *Target) (string, error) {
	tenant, key, err := t.as(ctx, proto.CreateKey{Owner: unique("attack-")})
	if err != nil {
		return "", err
	}
	con, err := tenant.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	want := []string{"container.create ok"}
	act := func(name, outcome string, err error) error {
		if err != nil && proto.CodeOf(err) != proto.Code(outcome) {
			return fmt.Errorf("%s: %w", name, err)
		}
		want = append(want, name+" "+outcome)
		return nil
	}
	res, err := tenant.Do(ctx, con.ID, proto.Cmd{Command: "echo x >/workspace/a"})
	if err != nil {
		return "", err
	}
	want = append(want, "exec.begin ok", "exec.end ok", "exec.result ok")
	fs := tenant.FS(con.ID, proto.UserDefault)
	for _, read := range []struct{ path, outcome string }{{"/workspace/a", "ok"}, {"/none", "not_found"}} {
		got, err := fs.Read(ctx, read.path)
		if err == nil {
			err = got.Close()
		}
		if err := act("fs.read", read.outcome, err); err != nil {
			return "", err
		}
	}
	for _, r := range []struct{ method, path, act, outcome string }{
		{http.MethodPost, "/stop", "container.stop", "ok"}, {http.MethodDelete, "", "container.delete", "ok"},
	} {
		a, err := tenant.ask(ctx, r.method, "/v1/containers/"+con.ID+r.path, nil, nil)
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("%s: %d %.200s", r.act, a.status, a.body)
		}
		if err := act(r.act, r.outcome, err); err != nil {
			return "", err
		}
	}
	if a, err := tenant.ask(ctx, http.MethodGet, "/v1/audit", nil, nil); err != nil {
		return "", err
	} else if err := a.refused("GET /v1/audit of a tenant", proto.PermissionDenied); err != nil {
		return "", err
	}
	got, err := t.audited(ctx, con.ID, key)
	if err != nil {
		return "", err
	}
	for _, line := range want {
		if i := slices.Index(got, line); i >= 0 {
			got = slices.Delete(got, i, i+1)
			continue
		}
		return "", Breached("%q of command %s is not in the log, or has another author; the rest is %q", line,
			res.Exec.ID, got)
	}
	return fmt.Sprintf("%d acts were in the log, with their author", len(want)), nil
}

// audited returns the acts on a container with their outcomes. Acts of another author or owner are left out.
func (t *Target) audited(ctx context.Context, container string, key proto.Key) (acts []string, err error) {
	err = t.Audit(ctx, client.AuditFilter{Container: container}, func(line []byte) error {
		var e proto.AuditEntry
		if err := json.NewDecoder(bytes.NewReader(line)).Decode(&e); err != nil {
			return err
		}
		if e.Owner == key.Owner && (e.Actor == key.ID || e.Act == "exec.end") {
			acts = append(acts, e.Act+" "+e.Outcome)
		}
		return nil
	})
	if proto.CodeOf(err) == proto.NotFound || proto.CodeOf(err) == proto.Unsupported {
		return nil, &NotHere{"this daemon keeps no audit log"}
	}
	return acts, err
}

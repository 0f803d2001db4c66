package e2b_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
)

// TestPausedSandboxes checks what clients hear of a sandbox that is paused, with its processes or with its files alone,
// and that connecting wakes it.
func TestPausedSandboxes(t *testing.T) {
	c := newSite(t).client(t, "ann")
	for body, mode := range map[string]string{"": "full", `{"memory":false}`: "filesystem"} {
		b := c.create(t, `{"templateID":"base"}`)
		one := "/sandboxes/" + b.SandboxID
		s := c.stream(t, b, "process.Process/Start", start("sleep", "1000"))
		s.must()
		want[any](t, c.send(t, "POST", one+"/pause", body), http.StatusNoContent)
		if m, _, err := s.next(); err == nil {
			t.Errorf("%s: the stream goes on with %+v", mode, m)
		}
		if info := c.get(t, b.SandboxID); info.State != "paused" || info.PauseMode != mode {
			t.Errorf("%s: it is %+v", mode, info)
		}
		want[box](t, c.send(t, "POST", one+"/pause", body), http.StatusConflict)
		want[box](t, c.send(t, "POST", one+"/timeout", `{"timeout":60}`), http.StatusNotFound)
		want[box](t, c.send(t, "GET", "/health", "", b.to(agent)...), http.StatusBadGateway)
		list := want[[]box](t, c.send(t, "GET", "/v2/sandboxes?state=paused", ""), http.StatusOK)
		if len(list) != 1 || list[0].SandboxID != b.SandboxID {
			t.Errorf("%s: paused ones are %+v", mode, list)
		}
		woken := want[box](t, c.send(t, "POST", one+"/connect", `{"timeout":60}`), http.StatusCreated)
		if woken.EnvdAccessToken != b.EnvdAccessToken {
			t.Errorf("%s: its token is another one", mode)
		}
		want[any](t, c.send(t, "GET", "/health", "", b.to(agent)...), http.StatusNoContent)
		running := c.rpc(t, b, "process.Process/List", "{}").body
		if strings.Contains(running, "sleep") != (mode == "full") {
			t.Errorf("%s: after it was woken, its processes are %s", mode, running)
		}
		want[box](t, c.send(t, "POST", one+"/resume", ""), http.StatusConflict)
		want[any](t, c.send(t, "DELETE", one, ""), http.StatusNoContent)
	}
}

// TestRequestsWakeASandbox checks a sandbox that asked for it, and its lease after that.
func TestRequestsWakeASandbox(t *testing.T) {
	c := newSite(t).client(t, "ann")
	b := c.create(t, `{"templateID":"base","autoPause":true,"autoResume":{"enabled":true}}`)
	want[any](t, c.send(t, "POST", "/sandboxes/"+b.SandboxID+"/pause", ""), http.StatusNoContent)
	want[any](t, c.send(t, "GET", "/health", "", b.to(agent)...), http.StatusNoContent)
	if info := c.get(t, b.SandboxID); info.State != "running" || info.in() < 0 {
		t.Errorf("after a request, it is %+v", info)
	}
}

// TestForksOfSandboxes checks copies: they have the files, a lease of their own, and the same public ports.
func TestForksOfSandboxes(t *testing.T) {
	st := newSiteWith(t, proto.PortsPublic)
	c, other := st.client(t, "ann"), st.client(t, "bob")
	b := c.create(t, `{"templateID":"base","metadata":{"a":"b"}}`)
	octets := append(b.to(agent), "Content-Type", "application/octet-stream")
	want[any](t, c.send(t, "POST", "/files?path=/workspace/x", "kept", octets...), http.StatusOK)
	at := "/sandboxes/" + b.SandboxID + "/fork"
	forks := want[[]struct{ Sandbox box }](t, c.send(t, "POST", at, `{"count":2,"timeout":60}`), http.StatusCreated)
	if len(forks) != 2 || forks[0].Sandbox.SandboxID == forks[1].Sandbox.SandboxID {
		t.Fatalf("the forks are %+v", forks)
	}
	for _, f := range forks {
		if got := c.send(t, "GET", "/files?path=/workspace/x", "", f.Sandbox.to(agent)...); got.body != "kept" {
			t.Errorf("the file in a fork: %d %s", got.status, got.body)
		}
		info := c.get(t, f.Sandbox.SandboxID)
		if left := info.in(); left > time.Minute || left < 0 || info.Metadata["a"] != "b" {
			t.Errorf("a fork: %+v", info)
		}
		told(t, c.visit(t, f.Sandbox, "8000", "/"), 502, "port is not open")
	}
	for body, says := range map[string]string{`{"count":0}`: "count", `{"count":21}`: "count", `{"timeout":86401}`: "24"} {
		if got := c.send(t, "POST", at, body); got.status != 400 || !strings.Contains(got.body, says) {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	want[any](t, other.send(t, "POST", at, `{}`), http.StatusNotFound)
	want[any](t, c.send(t, "DELETE", "/sandboxes/"+b.SandboxID, ""), http.StatusNoContent)
	want[any](t, c.send(t, "POST", at, `{}`), http.StatusNotFound)
}

// core returns the container of a sandbox.
func (c client) core(t *testing.T, b box) proto.Container {
	t.Helper()
	all, _, err := c.Sessions.List("ann", session.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(one proto.Container) bool { return proto.HostID(one.ID) == b.SandboxID })
	if i < 0 {
		t.Fatalf("%s is not among %+v", b.SandboxID, all)
	}
	return all[i]
}

// TestSudoOfSnapshots checks that sandboxes have sudo where their class has it. One of a snapshot has the
// class of that.
func TestSudoOfSnapshots(t *testing.T) {
	c := newSite(t).client(t, "ann")
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		s, err := c.Sessions.Create(t.Context(), "ann", proto.CreateContainer{RuntimeClass: class})
		if err != nil {
			t.Fatal(err)
		}
		name := "of-" + string(class)
		if _, err := s.Snapshot(t.Context(), proto.CreateSnapshot{Name: name}); err != nil {
			t.Fatal(err)
		}
		b := c.create(t, `{"templateID":"`+name+`"}`)
		info := c.core(t, b)
		if info.RuntimeClass != class || info.Sudo != (class == proto.ClassRunc) {
			t.Errorf("a sandbox of a snapshot of class %s: %+v", class, info)
		}
	}
	if info := c.core(t, c.create(t, `{"templateID":"base"}`)); !info.Sudo {
		t.Errorf("a sandbox of an image: %+v", info)
	}
}

func TestTemplatesOfSandboxes(t *testing.T) {
	c := newSite(t).client(t, "ann")
	b := c.create(t, `{"templateID":"base"}`)
	for _, r := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/templates/aliases/base", "", 200, `"templateID":"base"`},
		{"GET", "/templates/aliases/nonsuch", "", 404, "not found"},
		{"DELETE", "/templates/nonsuch", "", 404, ""}, {"GET", "/snapshots", "", 200, "[]"},
		{"GET", "/snapshots?nextToken=x", "", 400, "nextToken"}, {"GET", "/snapshots?sandboxID=x", "", 200, "[]"},
		{"POST", "/sandboxes/" + b.SandboxID + "/snapshots", `{"memory":true}`, 400, "snapshot_memory_unsupported"},
		{"GET", "/sandboxes/" + b.SandboxID + "/metrics", "", 200, "[]"},
		{"GET", "/sandboxes/" + b.SandboxID + "/metrics?start=x", "", 400, "start"},
		{"GET", "/sandboxes/metrics?sandbox_ids=" + b.SandboxID, "", 200, "sandboxes"},
		{"PUT", "/sandboxes/" + b.SandboxID + "/network", `{"denyOut":["0.0.0.0/0"]}`, 204, ""},
		{"PUT", "/sandboxes/" + b.SandboxID + "/network", `{"allowOut":["a.example"]}`, 501, "network"},
	} {
		if got := c.send(t, r.method, r.path, r.body); got.status != r.status || !strings.Contains(got.body, r.says) {
			t.Errorf("%s %s: %d %s, want %d %q", r.method, r.path, got.status, got.body, r.status, r.says)
		}
	}
}

package containerd

import (
	"os"
	"path/filepath"
	"testing"

	"berth/proto"
	"berth/session"
)

// openWarmGvisor opens a Runtime whose pool holds two gVisor sandboxes of the test image.
func openWarmGvisor(t *testing.T) *Runtime {
	t.Helper()
	return openWarm(t, func(c *Config) { c.Warm.Class = proto.ClassGVisor })
}

func startGvisor(t *testing.T, r *Runtime, spec session.Spec) (id string) {
	t.Helper()
	id = newID(proto.ContainerPrefix)
	if err := r.Start(t.Context(), id, spec); err != nil {
		t.Fatal(err)
	}
	return id
}

func gvisorSpec(t *testing.T, r *Runtime) session.Spec {
	t.Helper()
	return session.Spec{Image: testImage(t, r), Class: proto.ClassGVisor, Workspace: newID(proto.WorkspacePrefix),
		Layer: newID(proto.LayerPrefix), Limits: testLimits}
}

// TestWarmGvisor checks that a session gets a pooled gVisor sandbox with its own workspace, whose files are the host's
// and outlive the sandbox, and that nothing shows that the sandbox was not made for it.
func TestWarmGvisor(t *testing.T) {
	r := openWarmGvisor(t)
	cold := openTest(t)
	spec := gvisorSpec(t, r)
	id := startGvisor(t, r, spec)
	coldSpec := gvisorSpec(t, cold)
	made := startGvisor(t, cold, coldSpec)
	if n := r.warm.Counts(); n.Hits != 1 || r.claims.sandbox(id) == id {
		t.Fatalf("%+v, %s", n, r.claims.sandbox(id))
	}
	for _, req := range []guestRequest{{Op: "read", Path: "/proc/self/limits"}, {Op: "read", Path: "/proc/self/cmdline"},
		{Op: "read", Path: "/proc/mounts"}, {Op: "stat", Path: "/workspace"}, {Op: "list", Path: "/workspace"},
		{Op: "list", Path: "/"}, {Op: "hostname"}} {
		if has, want := ask(t, r, id, req), ask(t, cold, made, req); has.Text != want.Text || has.Err != want.Err {
			t.Errorf("%+v\n--- cold:\n%+v\n--- warm:\n%+v", req, want, has)
		}
	}
	if got := ask(t, r, id, guestRequest{Op: "write", Path: "/workspace/kept", Size: 3}); got.Err != "" {
		t.Fatal(got.Err)
	}
	if st, err := os.Stat(filepath.Join(r.disk.WorkspacePath(spec.Workspace), "kept")); err != nil || st.Size() != 3 {
		t.Errorf("a file of the workspace is not in it: %v", err)
	}
	iso, err := r.Inspect(t.Context(), id)
	if want, errCold := cold.Inspect(t.Context(), made); err != nil || errCold != nil || iso.OwnCounts != want.OwnCounts ||
		iso.Seccomp != want.Seccomp || iso.Network != want.Network || iso.HostUID < 0x70000000 {
		t.Errorf("%+v %v, cold %+v %v", iso, err, want, errCold)
	}
	if err := r.Stop(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	awaitWarm(t, r, 2)
	if id = startGvisor(t, r, spec); r.claims.sandbox(id) == id {
		t.Error("the second start is cold")
	}
	if got := ask(t, r, id, guestRequest{Op: "read", Path: "/workspace/kept"}); got.Err != "" {
		t.Errorf("the next sandbox has not the workspace: %s", got.Err)
	}
}

// TestWarmGvisorLimits checks that a session never gets a sandbox with limits of its kernel that it did not ask for,
// and that the pool then makes sandboxes with these limits.
func TestWarmGvisorLimits(t *testing.T) {
	r := openWarmGvisor(t)
	spec := gvisorSpec(t, r)
	spec.Limits.DiskBytes /= 2 // can be changed
	startGvisor(t, r, spec)
	if n := r.warm.Counts(); n.Hits != 1 {
		t.Fatalf("%+v", n)
	}
	awaitWarm(t, r, 2)
	spec = gvisorSpec(t, r)
	spec.Limits.PIDs /= 2
	if id := startGvisor(t, r, spec); r.claims.sandbox(id) != id {
		t.Fatal("a sandbox with other limits was taken")
	}
	awaitWarm(t, r, 2)
	spec.Workspace = newID(proto.WorkspacePrefix)
	if id := startGvisor(t, r, spec); r.claims.sandbox(id) == id {
		t.Errorf("the pool has no sandbox with the limits of the latest session: %+v", r.warm.Counts())
	}
	for range 2 { // it holds both kinds from here on
		for _, pids := range []int64{testLimits.PIDs, testLimits.PIDs / 2} {
			awaitWarm(t, r, 2)
			spec.Workspace, spec.Layer, spec.Limits.PIDs = newID(proto.WorkspacePrefix), newID(proto.LayerPrefix), pids
			if id := startGvisor(t, r, spec); r.claims.sandbox(id) == id {
				t.Errorf("with %d processes: %+v", pids, r.warm.Counts())
			}
		}
	}
}

// TestWarmGvisorWithAName checks that a session with a host name of its own has it, though the pool has no sandbox with
// that name, and that a running one keeps its name.
func TestWarmGvisorWithAName(t *testing.T) {
	r := openWarmGvisor(t)
	spec := gvisorSpec(t, r)
	spec.Hostname = "shop"
	id := startGvisor(t, r, spec)
	if got := ask(t, r, id, guestRequest{Op: "hostname"}).Text; got != "shop" || r.warm.Counts().Hits != 0 {
		t.Errorf("it is called %q, %+v", got, r.warm.Counts())
	}
	if err := r.SetHostname(t.Context(), id, "other"); proto.CodeOf(err) != proto.Unsupported {
		t.Errorf("renaming it: %v", err)
	}
}

// TestWarmGvisorThatHasLooked checks that a pooled sandbox that has looked at its workspace before it had one is not
// used, since its kernel would go on to use what was there.
func TestWarmGvisorThatHasLooked(t *testing.T) {
	r := openWarmGvisor(t)
	for _, m := range r.warm.Ready(testImage(t, r)) {
		ask(t, r, m.Name, guestRequest{Op: "list", Path: "/workspace"})
	}
	spec := gvisorSpec(t, r)
	id := startGvisor(t, r, spec)
	if n := r.warm.Counts(); n.Hits != 0 || r.claims.sandbox(id) != id {
		t.Fatalf("%+v", n)
	}
	if got := ask(t, r, id, guestRequest{Op: "write", Path: "/workspace/kept", Size: 3}); got.Err != "" {
		t.Fatal(got.Err)
	}
	if _, err := os.Stat(filepath.Join(r.disk.WorkspacePath(spec.Workspace), "kept")); err != nil {
		t.Error(err)
	}
}

// TestWarmGvisorLeft checks that a daemon takes over a pooled gVisor sandbox, unless a session's workspace is in it.
func TestWarmGvisorLeft(t *testing.T) {
	r := openWarmGvisor(t)
	m := r.warm.Ready(testImage(t, r))[0]
	rec, err := r.client.ContainerService().Get(r.ns(t.Context()), m.Name)
	if err != nil {
		t.Fatal(err)
	}
	left := leftOf(rec)
	adopted, err := r.warm.Adopt(t.Context(), left)
	if err != nil {
		t.Fatal(err)
	}
	defer adopted.Close()
	if err := r.attachWorkspace(adopted, gvisorSpec(t, r)); err != nil {
		t.Fatal(err)
	}
	if again, err := r.warm.Adopt(t.Context(), left); err == nil {
		t.Error("one that has a workspace is taken over")
		again.Close()
	}
}

// TestWarmGvisorWithANetwork checks that the pool learns to hold sandboxes whose kernel has devices, that only sessions
// with a network get them, and that their records say so.
func TestWarmGvisorWithANetwork(t *testing.T) {
	r := openWarmGvisor(t)
	start := func(network bool) string {
		t.Helper()
		spec := gvisorSpec(t, r)
		spec.Network = network
		return startGvisor(t, r, spec)
	}
	if id := start(true); r.claims.sandbox(id) != id {
		t.Fatal("a sandbox without devices was taken")
	}
	awaitWarm(t, r, 4) // two of each kind
	devices := 0
	for _, m := range r.warm.Ready(testImage(t, r)) {
		rec, err := r.client.ContainerService().Get(r.ns(t.Context()), m.Name)
		if err != nil {
			t.Fatal(err)
		}
		if m.Network != leftOf(rec).Network {
			t.Errorf("the record of %+v has %+v", m.Kind, leftOf(rec).Kind)
		}
		if m.Network {
			devices++
		}
	}
	if devices != 2 {
		t.Errorf("%d sandboxes have devices", devices)
	}
	plain, connected := start(false), start(true)
	if r.claims.sandbox(plain) == plain || r.claims.sandbox(connected) == connected {
		t.Errorf("started cold: %+v", r.warm.Counts())
	}
	if _, err := r.OpenOutbound(t.Context(), plain); proto.CodeOf(err) != proto.Unsupported {
		t.Errorf("the outbound sockets of a session without a network: %v", err)
	}
	o, err := r.OpenOutbound(t.Context(), connected)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if iso, err := r.Inspect(t.Context(), connected); err != nil || iso.Network != string(proto.NetworkNone) {
		t.Errorf("%+v, %v", iso, err)
	}
}

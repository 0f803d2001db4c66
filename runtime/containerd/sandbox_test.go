package containerd

import (
	"testing"
	"time"

	"berth/proto"
)

func classes(t *testing.T, run func(t *testing.T, class proto.RuntimeClass)) {
	for _, c := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		t.Run(string(c), func(t *testing.T) { run(t, c) })
	}
}

// ways runs a test with sandboxes that runc makes, with those of a setup program, and with gVisor's.
func ways(t *testing.T, r *Runtime, run func(t *testing.T, class proto.RuntimeClass)) {
	t.Run("script", func(t *testing.T) {
		needsSetupPrograms(t, r)
		run(t, proto.ClassRunc)
	})
	defer runcAlone(r)()
	classes(t, run)
}

func TestStartDialStop(t *testing.T) {
	r := openTest(t)
	testImage(t, r)
	classes(t, func(t *testing.T, class proto.RuntimeClass) {
		began := time.Now()
		id, spec := startTest(t, r, class)
		t.Logf("create to dial: %v", time.Since(began))
		if got := ask(t, r, id, guestRequest{Op: "ping"}).Text; got != "pong" {
			t.Errorf("the guest answered %q", got)
		}
		if err := r.Start(t.Context(), id, spec); err != nil {
			t.Errorf("a second start: %v", err)
		}
		if err := r.Stop(t.Context(), id); err != nil {
			t.Fatalf("stopping: %v", err)
		}
		if _, err := r.Dial(t.Context(), id); proto.CodeOf(err) != proto.NotFound {
			t.Errorf("dialling after stop: %v", err)
		}
		if err := r.Stop(t.Context(), id); err != nil {
			t.Errorf("a second stop: %v", err)
		}
	})
}

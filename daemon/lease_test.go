package daemon_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/proto"
)

// TestAbsoluteLeasesEndWithoutASweep checks with real containers that absolute leases end by themselves, while commands
// run: as they were made, shortened, extended, in the time without a daemon, and under the next daemon.
func TestAbsoluteLeasesEndWithoutASweep(t *testing.T) {
	s := base
	defer func(flags []string) { s.Flags = flags; s.restart(t, syscall.SIGKILL) }(s.Flags)
	s.Flags = append(slices.DeleteFunc(slices.Clone(s.Flags), func(f string) bool { return f == "--stop-on-exit" }),
		"--sweep-every=1h")
	s.restart(t, syscall.SIGTERM)
	leased := func(end proto.LeaseAction, seconds int) (id string, command proto.Exec) {
		t.Helper()
		c := call[proto.Container](t, s, 201, "POST", "/v1/containers", fmt.Sprintf(`{"limits":{"memory_bytes":268435456},
			"lease":{"mode":"absolute","at_end":%q,"ends_in_seconds":%d}}`, end, seconds))
		t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/containers/"+c.ID, nil) })
		return c.ID, begun(t, s, c.ID)
	}
	change := func(id string, seconds int) time.Time {
		t.Helper()
		return call[proto.Container](t, s, 200, "PATCH", "/v1/containers/"+id,
			fmt.Sprintf(`{"lease":{"ends_in_seconds":%d}}`, seconds)).Lease.EndsAt.Time
	}
	for end, want := range map[proto.LeaseAction]struct {
		proto.State
		proto.EndReason
	}{proto.LeaseStop: {proto.StateStopped, proto.EndStopped}, proto.LeasePause: {proto.StatePaused, ""},
		proto.LeaseRemove: {proto.StateExpired, ""}} {
		t.Run(string(end), func(t *testing.T) {
			id, command := leased(end, 3000)
			change(id, 5000)
			ends := change(id, 2)
			endsAs(t, s, id, want.State)
			if now := time.Now(); now.Before(ends) {
				t.Errorf("it ended %v early", ends.Sub(now))
			}
			switch {
			case want.EndReason != "" && told(t, s, id, command.ID) != want.EndReason:
				t.Errorf("its command ended as %s", told(t, s, id, command.ID))
			case want.State == proto.StateExpired && len(s.inside(id)) > 0:
				t.Errorf("processes are left: %v", s.inside(id))
			}

			over, _ := leased(end, 3000)
			later, _ := leased(end, 3000)
			change(over, 1)
			s.Stop(syscall.SIGKILL)
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			change(later, 2)
			s.restart(t, syscall.SIGKILL)
			endsAs(t, s, over, want.State)
			endsAs(t, s, later, want.State)
		})
	}
	if log := s.Log(); strings.Contains(log, "level=ERROR") {
		t.Errorf("the daemon says %s", log)
	}
}

// endsAs waits until a container has that state. One that has expired answers 410.
func endsAs(t *testing.T, s *server, id string, want proto.State) {
	t.Helper()
	eventually(t, id+" is "+string(want), func() bool {
		status, out, err := s.Do("GET", "/v1/containers/"+id, nil)
		var c proto.Container
		if err != nil || status != 410 && (status != 200 || json.Unmarshal(out, &c) != nil) {
			t.Fatalf("%d %v %s", status, err, out)
		}
		return c.State == want || status == 410 && want == proto.StateExpired
	})
}

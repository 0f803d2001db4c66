package presence

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestGrace checks when a command counts as left: after the grace without a client, from its beginning on and from each
// departure, and never while there is one or after its end. It counts as unread in the same way, by who follows it.
func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const grace = 10 * time.Second
		begun, left := time.Now(), []time.Duration{}
		unread := []time.Duration{}
		c := New(grace, func() { left = append(left, time.Since(begun)) },
			func() { unread = append(unread, time.Since(begun)) })
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		early := c.Enter() // while it starts
		c.Begin()
		wait(2 * grace)
		other := c.Follow()
		early()
		wait(2 * grace) // 40 s
		other()
		wait(grace / 2)
		back := c.Enter()
		wait(2 * grace)
		back() // at 65 s
		wait(2 * grace)
		c.Enter()()
		c.End()
		wait(2 * grace)
		if len(left) != 1 || left[0] != 75*time.Second {
			t.Errorf("it was left at %v", left)
		}
		// without a follower: until 20 s, and from 40 s on
		if len(unread) != 2 || unread[0] != 10*time.Second || unread[1] != 50*time.Second {
			t.Errorf("nobody followed it at %v", unread)
		}
	})
	if New(0, nil, nil) != nil {
		t.Error("without a grace, clients are counted")
	}
	var none *Clients
	none.Begin()
	none.Enter()()
	none.Follow()()
	none.End()
}

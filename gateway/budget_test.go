package gateway

import (
	"testing"
	"testing/synctest"
	"time"
)

// Code that has ended is not interrupted: what would be is other code.
func TestEndedCodeIsNotInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		interrupted := 0
		it := &cell{done: make(chan struct{})}
		it.limit(func() { interrupted++ })
		it.budget.Reset(callTime + cellTime)
		it.budget.Stop()
		close(it.done)
		for range 2 { // who asks for the result
			if _, calls, err := it.await(t.Context()); calls != nil || err != nil {
				t.Error(calls, err)
			}
		}
		time.Sleep(2 * cellTime)
		synctest.Wait()
		if interrupted > 0 {
			t.Error("it was interrupted")
		}
		other := &cell{done: make(chan struct{})}
		other.limit(func() { interrupted++ })
		time.Sleep(cellTime)
		synctest.Wait()
		if interrupted != 1 {
			t.Errorf("code that takes too long was interrupted %d times", interrupted)
		}
	})
}

package containers

import (
	"testing"
	"testing/synctest"
	"time"
)

// Code that has ended is not interrupted: the interrupt would hit other code.
func TestEndedCodeIsNotInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		interrupted := 0
		run := &codeRun{done: make(chan struct{})}
		run.startBudget(func() { interrupted++ })
		run.budget.Reset(callTime + cellTime)
		run.budget.Stop()
		close(run.done)
		for range 2 { // the result can be awaited more than once
			if _, calls, err := run.await(t.Context()); calls != nil || err != nil {
				t.Error(calls, err)
			}
		}
		time.Sleep(2 * cellTime)
		synctest.Wait()
		if interrupted > 0 {
			t.Error("it was interrupted")
		}
		other := &codeRun{done: make(chan struct{})}
		other.startBudget(func() { interrupted++ })
		time.Sleep(cellTime)
		synctest.Wait()
		if interrupted != 1 {
			t.Errorf("code that takes too long was interrupted %d times", interrupted)
		}
	})
}

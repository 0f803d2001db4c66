package buildenv

import (
	"context"
	"errors"
	"testing"
)

// TestLock checks that a second build waits for the first, reports that, and stops waiting when its context ends.
func TestLock(t *testing.T) {
	cache := t.TempDir()
	unlock, err := (&Env{Cache: cache}).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	second := &Env{Cache: cache, Progress: func(s Step) {
		if s.Name == StepWaiting {
			cancel()
		}
	}}
	if _, err := second.Lock(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("second build, canceled while it waits: %v", err)
	}
	unlock()
	unlock, err = second.Lock(t.Context())
	if err != nil {
		t.Fatalf("after the first build: %v", err)
	}
	unlock()
}

package anthropic

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"
)

// TestBodiesHeldAtOnceAreBounded fills the room of one owner, and lets another body wait for it.
func TestBodiesHeldAtOnceAreBounded(t *testing.T) {
	var in intake
	body := bytes.Repeat([]byte("x"), 1<<10)
	read := func(owner string) (func(), error) {
		got, release, err := in.readBody(httptest.NewRequest("POST", "/", bytes.NewReader(body)), owner)
		if err == nil && !bytes.Equal(got, body) {
			t.Fatalf("%d bytes", len(got))
		}
		return release, err
	}
	if err := in.take(t.Context(), "ann", maxHeldOwner-1<<10); err != nil {
		t.Fatal(err)
	}
	first, err := read("ann")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := in.take(ctx, "ann", 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an owner holds more than %d bytes: %v", maxHeldOwner, err)
	}
	other, err := read("bob") // room for others remains
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		release, err := read("ann")
		if err == nil {
			release()
		}
		done <- err
	}()
	first()
	first() // counts once
	if err := <-done; err != nil {
		t.Error(err)
	}
	other()
	in.release("ann", maxHeldOwner-1<<10)
	if in.held != 0 || len(in.byOwner) != 0 {
		t.Errorf("%d bytes are held, %v", in.held, in.byOwner)
	}
	short := httptest.NewRequest("POST", "/", bytes.NewReader(body))
	short.ContentLength++
	if _, _, err := in.readBody(short, "ann"); err == nil || in.held != 0 {
		t.Errorf("a short body: %v, %d bytes are held", err, in.held)
	}
}

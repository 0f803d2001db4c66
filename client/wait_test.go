package client

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/proto"
)

// patient returns a client that waits for its server.
func patient(t *testing.T, url string) (*Client, chan struct{}) {
	t.Helper()
	told := make(chan struct{}, 10)
	c, err := New(Config{Host: url, Wait: time.Minute, Waiting: func() { told <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	return c, told
}

// TestRequestsAreRepeated checks that a request whose connection breaks after its work was done is sent again with the
// same idempotency key, and that one that could do its work twice is not.
func TestRequestsAreRepeated(t *testing.T) {
	var mu sync.Mutex
	keys := map[string][]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Key string `json:"idempotency_key"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body) // a GET has none
		at := r.Method + " " + r.URL.Path
		mu.Lock()
		keys[at] = append(keys[at], body.Key)
		first := len(keys[at]) == 1
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if !first {
			_, _ = w.Write([]byte(`{"id":"x"}`))
			return
		}
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte(`{"id":`)) // the connection breaks in the middle of the answer
		_ = http.NewResponseController(w).Flush()
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		conn.Close()
	}))
	defer s.Close()
	c, _ := patient(t, s.URL)
	ctx := t.Context()
	for at, do := range map[string]func() error{
		"POST /v1/containers":         func() error { _, err := c.Create(ctx, proto.CreateContainer{}); return err },
		"GET /v1/containers/x":        func() error { _, err := c.Container(ctx, "x"); return err },
		"PATCH /v1/containers/x":      func() error { _, err := c.Change(ctx, "x", proto.ChangeContainer{}); return err },
		"POST /v1/containers/x/pause": func() error { _, err := c.Pause(ctx, "x"); return err },
		"POST /v1/containers/x/exec":  func() error { _, err := c.Launch(ctx, "x", proto.Cmd{Command: "y"}); return err },
		"POST /v1/containers/y/exec":  func() error { _, err := c.Run(ctx, "y", proto.Cmd{}); return err },
	} {
		if err := do(); err != nil || len(keys[at]) != 2 || keys[at][0] != keys[at][1] {
			t.Errorf("%s: %v, keys %q", at, err, keys[at])
		}
	}
	if keys["POST /v1/containers"][0] == "" || keys["POST /v1/containers/x/exec"][0] == "" ||
		keys["POST /v1/containers/y/exec"][0] == "" {
		t.Errorf("no keys: %q", keys)
	}
	c.cfg.Wait = time.Hour
	if short, long := keys["POST /v1/containers/y/exec"][0], c.Returning(proto.Cmd{}).IdempotencyKey; !strings.HasPrefix(
		short, "once_") || long == "" || strings.HasPrefix(long, "once_") {
		t.Errorf("the daemon forgets %q and keeps %q", short, long)
	}
	for at, do := range map[string]func() error{
		"POST /v1/containers/y/contexts/c/run": func() error {
			_, err := c.RunCell(ctx, "y", "c", proto.Cell{}, func(proto.Progress) error { return nil })
			return err
		},
		"POST /v1/containers/y/reset": func() error { _, err := c.Reset(ctx, "y"); return err },
		"POST /v1/run_code":           func() error { _, err := c.RunCode(ctx, proto.Program{}); return err },
	} {
		if err := do(); proto.CodeOf(err) != proto.Unavailable || len(keys[at]) != 1 {
			t.Errorf("%s: %v, %d times", at, err, len(keys[at]))
		}
	}
}

// TestRequestsWaitForTheServer checks that a client that has met its server waits until the server is back, and says
// so, and that one that has met none soon gives up.
func TestRequestsWaitForTheServer(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"id":"x"}`)) })
	s := httptest.NewServer(answer)
	at := s.Listener.Addr().String()
	c, told := patient(t, s.URL)
	if _, err := c.Container(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	stranger, _ := patient(t, s.URL)
	if _, err := stranger.Container(t.Context(), "x"); err == nil {
		t.Error("a server that is closed has answered")
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.RunCode(t.Context(), proto.Program{})
		done <- err
	}()
	<-told
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at)
	if err != nil {
		t.Skipf("the port was taken: %v", err)
	}
	back := &http.Server{Handler: answer}
	go back.Serve(l)
	defer back.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	_ = back.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-told; cancel() }()
	if _, err := c.Container(ctx, "x"); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

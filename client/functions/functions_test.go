package functions_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"berth/client"
	"berth/client/functions"
	"berth/proto"
	"berth/test/daemontest"
	"berth/test/needs"
)

type item struct {
	Name string `json:"name"`
}

func TestServe(t *testing.T) {
	needs.Containers(t)
	d, err := daemontest.New("--stop-on-exit")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c, err := client.New(client.Config{Host: d.URL, Key: d.Key, Wait: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	allowed := []proto.AllowedTool{{Name: "price"}, {Name: "hold"}, {Name: "large"}}
	s, err := c.NewSandbox(t.Context(), proto.CreateContainer{CodeTools: proto.CodeTools{Allow: allowed}})
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	begun, finish := make(chan struct{}), make(chan struct{})
	server, err := functions.Serve(t.Context(), c, s.ID,
		functions.Of(proto.ToolSpec{Name: "price"}, price),
		functions.Of(proto.ToolSpec{Name: "hold"}, func(context.Context, struct{}) (string, error) {
			if calls.Add(1) == 1 {
				close(begun)
			}
			<-finish
			return "held", nil
		}),
		functions.Of(proto.ToolSpec{Name: "large"}, func(context.Context, struct{}) (string, error) {
			return strings.Repeat("x", 5<<20), nil
		}),
		functions.Of(proto.ToolSpec{Name: "hidden"}, price))
	if err != nil {
		t.Fatal(err)
	}
	if len(server.Names) != 3 {
		t.Errorf("code may call %q", server.Names)
	}
	for command, want := range map[string]string{
		"tools price name=tea":  "3",
		"tools price name=soap": "there is no soap",
		"tools price name=gold": "PermissionError",
		"tools large":           "is the limit",
	} {
		if res, err := s.Run(t.Context(), command+" 2>&1"); err != nil || !strings.Contains(res.Stdout, want) {
			t.Errorf("%s prints %q, %v, without %q", command, res.Stdout, err, want)
		}
	}
	t.Run("killed", func(t *testing.T) {
		held, err := s.Start(t.Context(), proto.Cmd{Command: "tools hold"})
		if err != nil {
			t.Fatal(err)
		}
		<-begun
		if err := d.Restart(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		close(finish)
		if res, err := held.Wait(t.Context()); err != nil || res.Stdout != "held\n" || calls.Load() != 1 {
			t.Errorf("it prints %q %q after %d calls, %v", res.Stdout, res.Stderr, calls.Load(), err)
		}
	})
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	began := time.Now()
	res, err := s.Run(t.Context(), "tools price name=tea 2>&1")
	if took := time.Since(began); err != nil || res.OK() || took > 10*time.Second {
		t.Errorf("after the end: %q in %s, %v", res.Stdout, took, err)
	}
	plain, err := c.NewSandbox(t.Context(), proto.CreateContainer{})
	if err != nil {
		t.Fatal(err)
	}
	var known *proto.Error
	if _, err := functions.Serve(t.Context(), c, plain.ID); !errors.As(err, &known) || known.Code != proto.Conflict {
		t.Errorf("a container without code_tools: %v", err)
	}
}

func price(_ context.Context, of item) (int, error) {
	switch of.Name {
	case "tea":
		return 3, nil
	case "gold":
		return 0, &functions.Error{Type: "PermissionError", Message: "not for sale"}
	}
	return 0, errors.New("there is no " + of.Name)
}

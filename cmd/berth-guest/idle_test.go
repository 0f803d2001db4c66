package main

import (
	"testing"
	"time"

	"berth/guest/wire"
	"berth/proto"
)

// TestIdle checks that a guest with processes, or with state that only memory has, does not count as idle, and that the
// question changes nothing.
func TestIdle(t *testing.T) {
	c, _, _ := start(t)
	ctx := t.Context()
	nobody := func(proto.Stream, int64, []byte) {}
	refused := func(why string) {
		t.Helper()
		if err := c.Idle(ctx); proto.CodeOf(err) != proto.Conflict {
			t.Errorf("%s: %v", why, err)
		}
		if out, _ := execute(t, c, wire.Command{Text: "echo on"}); out != "on\n" {
			t.Errorf("%s: a command then prints %q", why, out)
		}
	}
	idle := func(why string) {
		t.Helper()
		// a process that was just killed may still be there
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			err := c.Idle(ctx)
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v", why, err)
			}
		}
	}
	idle("a new one")

	p, err := c.Start(ctx, wire.Command{Text: "sleep 1000"}, nobody)
	if err != nil {
		t.Fatal(err)
	}
	refused("a command")
	if err := p.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}

	execute(t, c, wire.Command{Text: "setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $!"})
	refused("a process that a command left")
	execute(t, c, wire.Command{User: "root", Text: "pkill -9 sleep; while pgrep sleep; do :; done"})
	idle("after its end")

	execute(t, c, wire.Command{Shell: "s", Text: "x=5"})
	refused("a shell")
	if out, _ := execute(t, c, wire.Command{Shell: "s", Text: "echo $x"}); out != "5\n" {
		t.Errorf("the shell has lost its state: %q", out)
	}
	if err := c.CloseShell(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	idle("after the shell") // although commands had a prestarted bash

	if _, x := execute(t, c, wire.Command{ID: "exec_1", Keep: 1 << 10, Text: "echo kept"}); x.Code != 0 {
		t.Fatal(x)
	}
	refused("a result that is kept")
	if err := c.Forget(ctx, "exec_1"); err != nil {
		t.Fatal(err)
	}

	execute(t, c, wire.Command{User: "root", Text: "touch /dev/shm/x"})
	refused("a file in memory")
	execute(t, c, wire.Command{User: "root", Text: "rm /dev/shm/x"})
	idle("at the end")
}

package session_test

import (
	"context"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/session/sessiontest"
)

// A container that nobody was told of is gone with its daemon, and one beside it is not.
func TestFleeting(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	gone, stays := st.Create(t, proto.CreateContainer{Fleeting: true}), st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, gone, "echo x >/workspace/x")
	st.Reopen(t)
	if _, err := st.Sessions.Get(sessiontest.Owner, gone.ID()); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("the fleeting one: %v", err)
	}
	s, err := st.Sessions.Get(sessiontest.Owner, stays.ID())
	if err != nil {
		t.Fatal(err)
	}
	sessiontest.Bash(t, s, "true")
	inv, err := st.Runtime.List(context.Background())
	if err != nil || len(inv.Sandboxes) != 1 || inv.Sandboxes[0] != stays.ID() || len(inv.Workspaces) != 1 {
		t.Errorf("the runtime has %+v, %v", inv, err)
	}
}

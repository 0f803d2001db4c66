package session_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// TestMissingWorkspace checks that a workspace that was made and is gone is told, and that no new one takes its place.
func TestMissingWorkspace(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	ctx := context.Background()
	lost, kept := st.Create(t, proto.CreateContainer{}), st.Create(t, proto.CreateContainer{})
	other := st.Create(t, proto.CreateContainer{})
	sessiontest.Bash(t, lost, "echo kept >/workspace/note")
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, kept.ID(), true); err != nil {
		t.Fatal(err)
	}
	remove := func(workspace string) {
		t.Helper()
		if err := st.Runtime.RemoveWorkspace(ctx, workspace); err != nil {
			t.Fatal(err)
		}
	}
	workspace, spare := lost.Info().WorkspaceID, kept.Info().WorkspaceID
	if err := lost.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	remove(workspace)
	remove(spare)

	st.Close(t)
	if err := st.TryOpen(t); err == nil || !strings.Contains(err.Error(), "2 workspaces of the ledger are not in") ||
		!strings.Contains(err.Error(), workspace) || !strings.Contains(err.Error(), spare) ||
		!strings.Contains(err.Error(), "--accept-loss=workspaces") {
		t.Fatalf("opened: %v", err)
	}
	st.AcceptLoss(true)
	st.Open(t)
	st.AcceptLoss(false)
	st.Reopen(t) // the loss is accepted once

	lost = st.Sessions.Any(lost.ID())
	for range 2 {
		_, err := lost.Run(ctx, proto.Cmd{Command: "true"})
		var told *proto.Error
		if !errors.As(err, &told) || told.Code != proto.NotFound || told.Item != workspace ||
			!strings.Contains(told.Message, "files of workspace "+workspace+" are gone") {
			t.Errorf("using it: %v", err)
		}
	}
	if _, err := st.Sessions.Create(ctx, sessiontest.Owner, proto.CreateContainer{WorkspaceID: spare}); proto.CodeOf(err) !=
		proto.NotFound {
		t.Errorf("a new container on it: %v", err)
	}
	sessiontest.Bash(t, st.Sessions.Any(other.ID()), "true")
	if err := st.Sessions.Delete(ctx, sessiontest.Owner, lost.ID(), false); err != nil {
		t.Errorf("deleting: %v", err)
	}
}

// TestPowerCutTakesNewWorkspaces checks that a workspace that a power cut kept from the disk does not stop the daemon.
func TestPowerCutTakesNewWorkspaces(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	old, young := st.Create(t, proto.CreateContainer{}), st.Create(t, proto.CreateContainer{})
	ctx := context.Background()
	if err := errors.Join(old.Stop(ctx), young.Stop(ctx),
		st.Runtime.RemoveWorkspace(ctx, young.Info().WorkspaceID)); err != nil {
		t.Fatal(err)
	}
	st.Reboot()
	st.Reopen(t)
	if _, err := st.Sessions.Any(young.ID()).Run(ctx, proto.Cmd{Command: "true"}); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("using it: %v", err)
	}
	sessiontest.Bash(t, st.Sessions.Any(old.ID()), "true")
}

package mcp

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"berth/proto"
	"berth/session"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var saveSnapshotTool = tool{&sdk.Tool{
	Name: "save_snapshot", Title: "Keep the container's files as they are",
	Description: "Keeps all files of the container as they are now, installed packages too, so that restore_snapshot " +
		"can bring them back. Commands that run go on.",
	Annotations: &sdk.ToolAnnotations{DestructiveHint: no(), OpenWorldHint: no()},
	InputSchema: object(nil, fields{
		"name":      text1("A name for it, which no other snapshot has: letters, digits, _ . and -."),
		"container": containerField,
	}),
}, runSaveSnapshot}

var restoreSnapshotTool = tool{&sdk.Tool{
	Name: "restore_snapshot", Title: "Bring the files of a snapshot back",
	Description: "Gives the container all files of a snapshot in place of its own. Its processes end, and files that " +
		"are in no snapshot are lost.",
	Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), OpenWorldHint: no()},
	InputSchema: object([]string{"snapshot"}, fields{
		"snapshot":  text1("The name or ID of the snapshot."),
		"container": containerField,
	}),
}, runRestoreSnapshot}

var listSnapshotsTool = tool{&sdk.Tool{
	Name: "list_snapshots", Title: "List the container's snapshots",
	Description: "Lists the snapshots of the container, newest first, at most 100, with time, ID, size in bytes (- " +
		"if unknown) and name.",
	Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()},
	InputSchema: object(nil, fields{"container": containerField}),
}, runListSnapshots}

func runSaveSnapshot(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var in struct {
		Name      string `json:"name,omitempty"`
		Container string `json:"container,omitempty"`
	}
	if err := c.input(&in); err != nil {
		return nil, err
	}
	s, err := c.useContainer(ctx, in.Container)
	if err != nil {
		return nil, err
	}
	snap, err := s.Snapshot(ctx, proto.CreateSnapshot{Name: in.Name})
	if err != nil {
		return nil, err
	}
	c.addAuditItems(snap.ID)
	return &sdk.CallToolResult{Content: []sdk.Content{text("Saved as " + cmp.Or(snap.Name, snap.ID) + ".\n")}}, nil
}

func runRestoreSnapshot(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var in struct {
		Snapshot  string `json:"snapshot"`
		Container string `json:"container,omitempty"`
	}
	if err := c.input(&in); err != nil {
		return nil, err
	}
	if in.Snapshot == "" {
		return nil, proto.Invalid("snapshot", "snapshot is missing; list_snapshots has those there are")
	}
	c.addAuditItems(in.Snapshot)
	s, err := c.useContainer(ctx, in.Container)
	if err != nil {
		return nil, err
	}
	if err := s.Restore(ctx, in.Snapshot); err != nil {
		return nil, err
	}
	return &sdk.CallToolResult{Content: []sdk.Content{text("The container has the files of " + in.Snapshot +
		"; its processes ended.\n")}}, nil
}

func runListSnapshots(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var in struct {
		Container string `json:"container,omitempty"`
	}
	if err := c.input(&in); err != nil {
		return nil, err
	}
	s, err := c.useContainer(ctx, in.Container)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	list, more, err := c.Sessions.Snapshots().List(s.Owner(), session.SnapshotFilter{Container: s.ID()})
	if err != nil {
		return nil, err
	}
	for _, snap := range list {
		size := "-"
		if snap.SizeBytes > 0 {
			size = strconv.FormatInt(snap.SizeBytes, 10)
		}
		fmt.Fprintf(&b, "%s  %s  %s  %s\n", snap.CreatedAt.UTC().Format(time.RFC3339), snap.ID, size, snap.Name)
	}
	if more {
		b.WriteString("(older ones are left out)\n")
	}
	if b.Len() == 0 {
		b.WriteString("(none)\n")
	}
	return &sdk.CallToolResult{Content: []sdk.Content{text(b.String())}}, nil
}

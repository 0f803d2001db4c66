package mcp

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"berth/proto"
	"berth/session"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

var listContainersTool = tool{&sdk.Tool{
	Name: "list_containers", Title: "List the containers",
	Description: "Lists your containers, newest first, at most 100, with ID, state, image, time of creation, time of " +
		"removal, and name (- if it has none). Other tools take the ID or the name as container.",
	Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no()},
	InputSchema: object(nil, fields{"after": text1("List those after this ID, from the result before.")}),
}, runListContainers}

var deleteContainerTool = tool{&sdk.Tool{
	Name: "delete_container", Title: "Delete a container",
	Description: "Deletes a container with its files and everything that runs in it. Stored files and snapshots stay.",
	Annotations: &sdk.ToolAnnotations{DestructiveHint: yes(), OpenWorldHint: no()},
	InputSchema: object([]string{"container"}, fields{"container": text1("ID or name of the container.")}),
}, runDeleteContainer}

func runListContainers(_ context.Context, c *call) (*sdk.CallToolResult, error) {
	var in struct {
		After string `json:"after,omitempty"`
	}
	if err := c.input(&in); err != nil {
		return nil, err
	}
	list, more, err := c.Sessions.List(c.peer.owner, session.Filter{After: in.After})
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, box := range list {
		fmt.Fprintf(&b, "%s  %-8s  %s  %s  %s  %s\n", box.ID, box.State, box.Image, box.CreatedAt.UTC().Format(
			time.RFC3339), box.MaxExpiresAt.UTC().Format(time.RFC3339), cmp.Or(box.Name, "-"))
	}
	switch {
	case more:
		fmt.Fprintf(&b, "(there are more: go on with after=%s)\n", list[len(list)-1].ID)
	case len(list) == 0:
		b.WriteString("(none)\n")
	}
	return &sdk.CallToolResult{Content: []sdk.Content{text(b.String())}}, nil
}

func runDeleteContainer(ctx context.Context, c *call) (*sdk.CallToolResult, error) {
	var in struct {
		Container string `json:"container"`
	}
	if err := c.input(&in); err != nil {
		return nil, err
	}
	if in.Container == "" {
		return nil, proto.Invalid("container", "container is missing; list_containers has those that exist")
	}
	c.addAuditItems(in.Container)
	if err := c.Sessions.Delete(ctx, c.peer.owner, in.Container, false); err != nil {
		return nil, err
	}
	return &sdk.CallToolResult{Content: []sdk.Content{text("The container " + in.Container + " is deleted.\n")}}, nil
}

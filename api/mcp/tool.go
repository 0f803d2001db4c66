package mcp

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"berth/proto"
	"berth/session"
	"berth/tools/toolinput"
	"berth/tools/toolstore"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// A tool is one row of the tool list.
type tool struct {
	*sdk.Tool
	run func(context.Context, *call) (*sdk.CallToolResult, error)
}

// toolsOf returns the tools of a client by name: the common ones and the stored ones, except stored tools that have the
// name of a common one or do not run.
func (e *Edge) toolsOf(who *peer) ([]tool, error) {
	common := commonTools
	if who.session == nil && who.place.container == "" {
		common = namingTools
	}
	if e.Tools == nil {
		return common, nil
	}
	stored, err := e.Tools.List(who.owner)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(common)
	for _, t := range stored {
		if commonTool(t.Name) == nil && t.ApprovalAction != toolstore.ApprovalDeny {
			all = append(all, storedTool(t))
		}
	}
	slices.SortStableFunc(all, func(a, b tool) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// toolOf returns the tool of that name without reading the others.
func (e *Edge) toolOf(owner, name string) (tool, error) {
	if t := commonTool(name); t != nil {
		return *t, nil
	}
	if e.Tools != nil {
		t, err := e.Tools.Get(owner, name, 0)
		if err == nil && t.Name == name { // the ID of a tool is not accepted as a name here
			return storedTool(t), nil
		}
		if err != nil && proto.CodeOf(err) != proto.NotFound {
			return tool{}, err
		}
	}
	return tool{}, proto.Errorf(proto.InvalidArgument, "", "name",
		"tool %.80q is not known; tools/list has those that are", name)
}

// commonTool returns the common tool of that name, or nil.
func commonTool(name string) *tool {
	i := slices.IndexFunc(commonTools, func(t tool) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &commonTools[i]
}

// commonTools are the tools of every owner, by name.
var commonTools = []tool{bashTool, executorTool, deleteContainerTool, downloadTool, findTool, grepTool,
	listContainersTool, listSnapshotsTool, restoreSnapshotTool, codeTool, saveSnapshotTool, editorTool, uploadTool}

// maxToolPage bounds a page of the tool list, in bytes of its JSON. Stored tools have schemas of any length.
const maxToolPage = 512 << 10

// listTools returns a page of the tools. The cursor is the name of the last tool before the page.
func (e *Edge) listTools(_ context.Context, who *peer, p *sdk.ListToolsParams) (*sdk.ListToolsResult, error) {
	all, err := e.toolsOf(who)
	if err != nil {
		return nil, err
	}
	res := &sdk.ListToolsResult{Cacheable: privateCache, Tools: []*sdk.Tool{}}
	size := 0
	for _, t := range all {
		if p != nil && p.Cursor != "" && t.Name <= p.Cursor {
			continue
		}
		if size += len(encode(t.Tool)); size > maxToolPage && len(res.Tools) > 0 {
			res.NextCursor = res.Tools[len(res.Tools)-1].Name
			break
		}
		res.Tools = append(res.Tools, t.Tool)
	}
	return res, nil
}

// A call is one running tool call.
type call struct {
	*Edge
	peer    *peer
	client  *sdk.ServerSession
	params  *sdk.CallToolParamsRaw
	session *session.Session // the container that it uses; nil: none yet
	notes   []string         // for the reader of the result
	items   []string         // for the audit log: the tool and its objects

	embedded int // bytes of JSON of pictures and contents of files in the result
}

// callTool runs a tool. Failures are part of the result, which a model can read; only an unknown tool is an error.
func (e *Edge) callTool(ctx context.Context, who *peer, client *sdk.ServerSession, p *sdk.CallToolParamsRaw) (
	*sdk.CallToolResult, error) {
	t, err := e.toolOf(who.owner, p.Name)
	if err != nil {
		return nil, err
	}
	c := &call{Edge: e, peer: who, client: client, params: p, items: []string{p.Name}}
	res, err := t.run(ctx, c)
	if err == nil {
		c.label(res)
	} else {
		res = c.failed(err)
	}
	c.fit(res)
	e.audit(ctx, proto.AuditEntry{Act: "tool.use", Item: strings.Join(c.items, " "), ContainerID: c.containerID(),
		Outcome: outcome(err)})
	if proto.CodeOf(err) == proto.Internal && ctx.Err() == nil {
		e.Log.Error("a tool call failed", "tool", p.Name, "request_id", proto.RequestIDOf(ctx), "error", err)
	}
	return res, nil
}

// outcome returns the outcome for the audit log.
func outcome(err error) string {
	if err == nil {
		return proto.AuditOK
	}
	return string(proto.CodeOf(err))
}

// audit writes an audit entry for the caller of ctx.
func (e *Edge) audit(ctx context.Context, entry proto.AuditEntry) {
	if e.Audit == nil {
		return
	}
	who := proto.CallerOf(ctx)
	entry.Actor, entry.Owner, entry.RequestID = who.KeyID, who.Owner, proto.RequestIDOf(ctx)
	if entry.ContainerID != "" {
		entry.Item = e.Sessions.Hide(entry.ContainerID, entry.Item)
	}
	e.Audit.Append(entry)
}

// addAuditItems adds objects of the call to its audit entry.
func (c *call) addAuditItems(items ...string) {
	for _, item := range items {
		if item != "" {
			c.items = append(c.items, item)
		}
	}
}

func (c *call) containerID() string {
	if c.session == nil {
		return ""
	}
	return c.session.ID()
}

// input decodes the input of the tool. Errors name the argument.
func (c *call) input(v any) error { return toolinput.DecodeKnown(c.params.Arguments, v) }

// useContainer selects the container of the call: the one that the input names, or the session's.
func (c *call) useContainer(ctx context.Context, named string) (*session.Session, error) {
	s, note, err := c.container(ctx, c.peer, named)
	if err != nil {
		return nil, err
	}
	c.session = s
	if note != "" {
		c.notes = append(c.notes, note)
	}
	return s, nil
}

// Keys of metadata in results.
const (
	metaContainer = "berth/container" // the container and its expiry
	metaError     = "berth/error"     // the error: code, item, message
)

// label adds notes and the container to a result.
func (c *call) label(res *sdk.CallToolResult) {
	if res.Content == nil {
		res.Content = []sdk.Content{}
	}
	for _, n := range c.notes {
		res.Content = append(res.Content, text("Note: "+n))
	}
	if c.session == nil {
		return
	}
	if res.Meta == nil {
		res.Meta = sdk.Meta{}
	}
	res.Meta[metaContainer] = c.session.Ref()
}

// failed returns a result that reports an error.
func (c *call) failed(err error) *sdk.CallToolResult {
	if c.session != nil {
		err = c.session.HideError(err)
	}
	e := *proto.AsError(err)
	res := &sdk.CallToolResult{IsError: true, Content: []sdk.Content{text("Error: " + e.Message)}}
	e.Message, e.Item = proto.Shorten(e.Message, minText), proto.Shorten(e.Item, minText)
	res.Meta = sdk.Meta{metaError: &e}
	c.label(res)
	return res
}

func text(s string) *sdk.TextContent { return &sdk.TextContent{Text: s} }

// joined joins texts and adds missing line ends between them.
func joined(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		if p == "" {
			continue
		}
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		b.WriteString(p)
	}
	return cmp.Or(b.String(), "(no output)")
}

// missing is the error for a missing field.
func missing(field, want string) error {
	return proto.Errorf(proto.InvalidArgument, "", field, "%s is missing; set it to %s", field, want)
}

// Package tooluse runs a tool-use block of a model in a session, and returns the matching result block.
//
//	bash_code_execution          a fresh bash        bash_code_execution_tool_result
//	text_editor_code_execution   the editor          text_editor_code_execution_tool_result
//	bash                         a persistent shell  tool_result, text
//	str_replace_based_edit_tool  the editor          tool_result, text
//
// Errors of the input and of the command go into the block, where the model can read them. Only errors of the session
// itself are returned as errors. The edges and the gateway call it; stored tools are in tools/toolstore.
package tooluse

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"berth/proto"
	"berth/session"
)

// A Use is a tool-use block of a model. Other fields of the block, such as caller and cache_control, are ignored.
type Use struct {
	Type  string          `json:"type" schema:"enum=server_tool_use|tool_use"` // "server_tool_use" or "tool_use"
	ID    string          `json:"id" schema:"minLength=1"`
	Name  string          `json:"name" schema:"tool"`
	Input json.RawMessage `json:"input,omitempty"`

	// For the bash tools; not part of any block.
	IdempotencyKey string              `json:"-"` // as in proto.Cmd
	TimeoutSeconds float64             `json:"-"` // as in proto.Cmd
	Started        func(*session.Exec) `json:"-"` // called with the running command; may be nil
	replayed       bool                // the result is that of an earlier use
	notes          []string            // for Result.Notes
}

// A Result is the block that answers a Use. Type determines its content.
type Result struct {
	Type      string `json:"type"`
	ToolUseID string `json:"tool_use_id"`
	Content   any    `json:"content"`
	// of tool_result only; the other blocks use the type of their content
	IsError   bool               `json:"is_error,omitempty"`
	Container proto.ContainerRef `json:"container"`
	// What the reader should know, such as why an output was not stored. A tool_result has it in its text.
	Notes []string `json:"notes,omitempty"`

	Replayed bool `json:"-"` // it is the result of an earlier use with the same key
}

// A tool handles one type of use.
type tool struct {
	result string // type of its result block
	run    func(context.Context, *session.Session, *Use) (content any, failed bool, err error)
}

var byName = map[string]tool{
	"bash_code_execution":         {"bash_code_execution_tool_result", runBash},
	"text_editor_code_execution":  {"text_editor_code_execution_tool_result", runEditor},
	"bash":                        {"tool_result", runShell},
	"str_replace_based_edit_tool": {"tool_result", runTextEditor},
}

// Names lists the tools that Run knows.
func Names() []string {
	names := make([]string, 0, len(byName))
	for n := range byName {
		names = append(names, n)
	}
	// Sorted, since the OpenAPI document and an error message show it.
	slices.Sort(names)
	return names
}

// Check validates a block before a session is made for it.
func Check(u Use) error {
	switch {
	case u.Type != "server_tool_use" && u.Type != "tool_use":
		return proto.Errorf(proto.InvalidArgument, "", "type", "type %.80q is not a tool-use block's; it is "+
			"\"server_tool_use\" or \"tool_use\"", u.Type)
	case u.ID == "":
		return proto.Errorf(proto.InvalidArgument, "", "id", "the block has no id to answer to")
	}
	if _, ok := byName[u.Name]; !ok {
		return proto.Errorf(proto.InvalidArgument, "", "name", "tool %.80q is not known; the tools are %s", u.Name,
			strings.Join(Names(), ", "))
	}
	return nil
}

// Run does what u asks for.
func Run(ctx context.Context, s *session.Session, u Use) (Result, error) {
	if err := Check(u); err != nil {
		return Result{}, err
	}
	t := byName[u.Name]
	content, failed, err := t.run(ctx, s, &u)
	if err != nil {
		return Result{}, err
	}
	return Result{Type: t.result, ToolUseID: u.ID, Content: content, IsError: failed, Container: s.Ref(),
		Notes: u.notes, Replayed: u.replayed}, nil
}

// fatal reports whether err concerns the session or the caller rather than this use. Text from a model may look like
// a container's name without being one.
func fatal(s *session.Session, err error) bool {
	var e *proto.Error
	// Not an error of ours: nothing that a model could correct.
	if !errors.As(err, &e) {
		return true
	}
	switch e.Code {
	case proto.Canceled, proto.Internal, proto.Unauthenticated, proto.PermissionDenied:
		return e.Item == "" || e.Code != proto.PermissionDenied
	}
	// Too many commands at once, or a busy daemon, are temporary: the model may try again, and has a code for it.
	return e.Item == s.ID() && e.Code != proto.TooMany && e.Code != proto.Unavailable
}

// errorText is the text of an error for the model, with secrets hidden.
func errorText(s *session.Session, err error) string { return proto.AsError(s.HideError(err)).Message }

// blockError is the in-band code for an error. has lists the codes that the block may have beside the common ones.
func blockError(err error, has ...proto.BlockError) proto.BlockError {
	var b proto.BlockError
	switch proto.CodeOf(err) {
	case proto.NotFound:
		b = proto.BlockFileNotFound
	case proto.TooMany:
		return proto.BlockTooMany
	case proto.TimedOut:
		return proto.BlockTimeExceeded
	case proto.Unavailable, proto.Internal:
		return proto.BlockUnavailable
	}
	if slices.Contains(has, b) {
		return b
	}
	return proto.BlockInvalidInput
}

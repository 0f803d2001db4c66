package tooluse

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"berth/proto"
	"berth/session"
	"berth/tools/toolinput"
)

// hostedVerbs are the commands of the hosted editor. The client-side tool has insert, too.
var hostedVerbs = map[string]bool{"view": true, "create": true, "str_replace": true}

// editorInput decodes the input. The oldest editors send insert's text as new_str.
func editorInput(input json.RawMessage) (proto.EditorInput, error) {
	var in proto.EditorInput
	if err := toolinput.Decode(input, &in); err != nil {
		return in, err
	}
	// Only if the newer field is absent: an empty text is a text.
	if in.Command == "insert" && in.InsertText == nil {
		in.InsertText = in.NewStr
	}
	return in, nil
}

// runEditor is the hosted tool, with typed content. All steps share one err, so each failure passes the same two
// checks: does it concern the session, or the model's input?
func runEditor(ctx context.Context, s *session.Session, u *Use) (any, bool, error) {
	in, err := editorInput(u.Input)
	if err == nil && !hostedVerbs[in.Command] {
		err = proto.Errorf(proto.InvalidArgument, "", "command", "command %.40q is not known; use view, create or "+
			"str_replace", in.Command)
	}
	var res proto.EditorResult
	if err == nil {
		res, err = s.Edit(ctx, proto.UserDefault, in)
	}
	// The hosted editor has no block for a list of files.
	if err == nil && res.List != nil {
		err = proto.Errorf(proto.InvalidArgument, "", in.Path, "%s is a directory; list it with bash", in.Path)
	}
	if err != nil && fatal(s, err) {
		return nil, false, err
	}
	if err != nil {
		msg := errorText(s, err)
		// The block may say file_not_found, unlike the block of bash. The message is added because a code alone does
		// not say which text was not found, or how often.
		return proto.EditorError{Type: proto.TypeEditorError, ErrorCode: blockError(err, proto.BlockFileNotFound),
			ErrorMessage: &msg}, false, nil
	}
	return typed(res), false, nil
}

// typed returns the one part of the result that is set. runEditor has turned a list into an error before.
func typed(res proto.EditorResult) any {
	switch {
	case res.View != nil:
		return res.View
	case res.Create != nil:
		return res.Create
	}
	return res.Replace
}

// runTextEditor is the client-side tool: one text.
func runTextEditor(ctx context.Context, s *session.Session, u *Use) (any, bool, error) {
	in, err := editorInput(u.Input)
	// Early versions of the tool had it, and models that saw them still ask for it.
	if err == nil && in.Command == "undo_edit" {
		err = proto.Errorf(proto.InvalidArgument, "", "command", "undo_edit is not part of this tool; make the "+
			"change back with str_replace")
	}
	var res proto.EditorResult
	if err == nil {
		res, err = s.Edit(ctx, proto.UserDefault, in)
	}
	switch {
	case err != nil && fatal(s, err):
		return nil, false, err
	case proto.CodeOf(err) == proto.NotFound:
		return fmt.Sprintf("Error: File not found: the path %s does not exist", s.Hide(in.Path)), true, nil
	case err != nil:
		return "Error: " + errorText(s, err), true, nil
	}
	return content(in.Path, res), false, nil
}

// content is the client-side tool's result: text, or an image as a block that models read.
func content(path string, res proto.EditorResult) any {
	switch {
	// Content is base64 here, which the model cannot read as text.
	case res.View != nil && res.View.FileType == "image":
		return []any{imageBlock(res.View.Content)}
	case res.View != nil && res.View.FileType != "text":
		return fmt.Sprintf("%s is a %s file; read it with a program", path, res.View.FileType)
	case res.View != nil:
		return numbered(res.View.Content, *res.View.StartLine)
	case res.Create != nil:
		return "File created successfully at: " + path
	case res.Replace != nil:
		return replaced(path, res.Replace)
	}
	return listing(path, res.List)
}

// numbered puts line numbers before lines: six wide, then a tab. first is the number of the first line in the file,
// from 1.
func numbered(text string, first int) string {
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		fmt.Fprintf(&b, "%6d\t%s\n", first+i, line)
	}
	return b.String()
}

// replaced shows the present lines around a change.
func replaced(path string, r *proto.EditorReplace) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The file %s has been edited. Lines around the change:\n", path)
	// NewStart may be nil; counting then begins with the file.
	n := 1
	if r.NewStart != nil {
		n = *r.NewStart
	}
	for _, line := range r.Lines {
		// Removed lines have no number and are left out.
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "+") {
			fmt.Fprintf(&b, "%6d\t%s\n", n, line[1:])
			n++
		}
	}
	return b.String()
}

// listing gives sizes in bytes. The heading names what is left out, so that the model does not take a hidden file for
// missing.
func listing(path string, list []proto.FileInfo) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s holds, two levels deep, without hidden entries and node_modules:\n", path)
	for _, fi := range list {
		name := fi.Path
		if fi.Type == proto.TypeDirectory {
			name += "/"
		}
		fmt.Fprintf(&b, "%10d\t%s\n", fi.SizeBytes, name)
	}
	return b.String()
}

// imageBlock wraps base64 of an image. The first characters tell the type: the keys are the beginnings of JPEG, GIF
// and RIFF (WebP) files in base64. The only other image type of a view is png.
func imageBlock(data string) any {
	media := "image/png"
	for prefix, m := range map[string]string{"/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"} {
		if strings.HasPrefix(data, prefix) {
			media = m
		}
	}
	return map[string]any{"type": "image", "source": map[string]string{"type": "base64", "media_type": media,
		"data": data}}
}

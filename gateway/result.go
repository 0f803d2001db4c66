package gateway

import (
	"encoding/json"
	"fmt"
	"strings"

	"berth/proto"
)

// toolResult is a server tool's result as the upstream's model reads it. It is made of the block alone, so that it is
// the same in every request of a conversation.
func toolResult(block object) json.RawMessage {
	content, failed := resultContent(block.get("content"))
	o := object{}.with("type", "tool_result").with("tool_use_id", upstreamID(block.text("tool_use_id"))).with("content",
		content)
	if failed {
		o = o.with("is_error", true)
	}
	if block.has("cache_control") {
		o = o.with("cache_control", block.get("cache_control"))
	}
	return o.raw()
}

// abandoned answers a call whose result the client does not send.
func abandoned(id string) json.RawMessage {
	return object{}.with("type", "tool_result").with("tool_use_id", id).with("content", "Error: there is no result "+
		"of this call.").with("is_error", true).raw()
}

// A said is all that result contents may say.
type said struct {
	Type         string             `json:"type"`
	Stdout       string             `json:"stdout"`
	Stderr       string             `json:"stderr"`
	ReturnCode   int                `json:"return_code"`
	Content      json.RawMessage    `json:"content"` // produced files, or a file's text
	FileType     string             `json:"file_type"`
	NumLines     *int               `json:"num_lines"`
	StartLine    *int               `json:"start_line"`
	TotalLines   *int               `json:"total_lines"`
	IsFileUpdate bool               `json:"is_file_update"`
	Lines        []string           `json:"lines"`
	ErrorCode    string             `json:"error_code"`
	ErrorMessage *string            `json:"error_message"`
	files        []proto.BashOutput // Content of what ran
}

// resultContent is the content of the tool_result, a text or blocks, and whether the call failed.
func resultContent(raw json.RawMessage) (content any, failed bool) {
	var s said
	if json.Unmarshal(raw, &s) != nil {
		return string(raw), true
	}
	switch {
	case strings.HasSuffix(s.Type, "_error"):
		return s.failure(), true
	case s.Type == proto.TypeEditorView:
		return s.view(), false
	case s.Type == proto.TypeEditorCreate && s.IsFileUpdate:
		return "The file was there; it has been overwritten.", false
	case s.Type == proto.TypeEditorCreate:
		return "The file has been created.", false
	case s.Type == proto.TypeEditorStrReplace:
		return "The file has been edited:\n" + strings.Join(s.Lines, "\n"), false
	}
	return s.output(), s.ReturnCode != 0
}

// failures are the error codes in words.
var failures = map[string]string{
	string(proto.BlockInvalidInput): "the input is not what the tool takes",
	string(proto.BlockUnavailable):  "the container is not available, or ended while this ran; its result is lost",
	string(proto.BlockTooMany):      "too many commands run at once; try again later",
	string(proto.BlockTimeExceeded): "it ran longer than its time limit and was ended",
	string(proto.BlockTooLarge):     "it wrote more than its limit and was ended",
	string(proto.BlockFileNotFound): "there is no such file",
}

func (s said) failure() string {
	text := "Error: " + s.ErrorCode
	if words := failures[s.ErrorCode]; words != "" {
		text += ": " + words
	}
	if s.ErrorMessage != nil && *s.ErrorMessage != "" {
		text += ": " + *s.ErrorMessage
	}
	return text
}

// output is what a command or a program wrote. The streams are told apart, since their order to each other is not
// known.
func (s said) output() string {
	var b strings.Builder
	b.WriteString(shortened(s.Stdout))
	if s.Stderr != "" {
		line(&b, "[stderr]")
		line(&b, shortened(s.Stderr))
	}
	if s.ReturnCode != 0 {
		line(&b, fmt.Sprintf("[return code: %d]", s.ReturnCode))
	}
	_ = json.Unmarshal(s.Content, &s.files) // what is not a list names no files
	for _, f := range s.files {
		line(&b, "[file for the user: "+f.FileID+"]")
	}
	if b.Len() == 0 {
		return "[no output]"
	}
	return b.String()
}

// maxTold bounds what a model reads of one text, in bytes: its context has no room for all that a command can write.
// Clients get the whole.
const maxTold = 128 << 10

// shortened is a text without its middle, if it is long.
func shortened(text string) string {
	if len(text) <= maxTold {
		return text
	}
	head, tail := text[:maxTold*3/4], text[len(text)-maxTold/4:]
	return fmt.Sprintf("%s\n[%d bytes are left out here; look at less at once]\n%s", strings.ToValidUTF8(head, ""),
		len(text)-maxTold, strings.ToValidUTF8(tail, ""))
}

// line writes text on a line of its own.
func line(b *strings.Builder, text string) {
	if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	b.WriteString(text)
}

// imageMedia are the media types by what their base64 begins with.
var imageMedia = []struct{ begin, media string }{{"/9j/", "image/jpeg"}, {"R0lGOD", "image/gif"},
	{"UklGR", "image/webp"}, {"", "image/png"}}

// view is what the editor showed: text, or an image that the model can look at.
func (s said) view() any {
	var text string
	if json.Unmarshal(s.Content, &text) != nil {
		return string(s.Content)
	}
	switch s.FileType {
	case "image":
		for _, m := range imageMedia {
			if strings.HasPrefix(text, m.begin) {
				source := object{}.with("type", "base64").with("media_type", m.media).with("data", text)
				return []json.RawMessage{object{}.with("type", "image").with("source", source.raw()).raw()}
			}
		}
	case "pdf":
		return "This is a PDF; read it with a program."
	}
	text = shortened(text)
	if s.StartLine != nil && s.NumLines != nil && s.TotalLines != nil && *s.NumLines < *s.TotalLines {
		text += fmt.Sprintf("\n[lines %d to %d of %d]", *s.StartLine, *s.StartLine+*s.NumLines-1, *s.TotalLines)
	}
	if text == "" {
		return "[the file is empty]"
	}
	return text
}

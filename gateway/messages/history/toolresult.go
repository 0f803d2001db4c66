package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"berth/gateway/messages/exectool"
	"berth/gateway/messages/rawjson"
	"berth/proto"
)

// appendResult appends a server tool's result as the model reads it. It depends only on the block, so it is the same in
// every request of a conversation.
func appendResult(b []byte, block json.RawMessage) []byte {
	var id, content, cache json.RawMessage
	for name, value := range rawjson.Members(block) {
		switch {
		case id == nil && rawjson.IsText(name, "tool_use_id"):
			id = value
		case content == nil && rawjson.IsText(name, "content"):
			content = value
		case cache == nil && rawjson.IsText(name, "cache_control") && string(value) != "null":
			cache = value
		}
	}
	b = append(b, `{"type":"tool_result","tool_use_id":`...)
	b = append(rawjson.AppendText(b, exectool.UpstreamID(rawjson.Text(id))), `,"content":`...)
	b, failed := appendContent(b, content)
	if failed {
		b = append(b, `,"is_error":true`...)
	}
	if cache != nil {
		b = append(append(b, `,"cache_control":`...), cache...)
	}
	return append(b, '}')
}

// resultFields has the fields of all types of result content.
type resultFields struct {
	Type         string             `json:"type"`
	Stdout       string             `json:"stdout"`
	Stderr       string             `json:"stderr"`
	ReturnCode   int                `json:"return_code"`
	Content      json.RawMessage    `json:"content"` // created files, or the text of a file
	FileType     string             `json:"file_type"`
	NumLines     *int               `json:"num_lines"`
	StartLine    *int               `json:"start_line"`
	TotalLines   *int               `json:"total_lines"`
	IsFileUpdate bool               `json:"is_file_update"`
	Lines        []string           `json:"lines"`
	ErrorCode    string             `json:"error_code"`
	ErrorMessage *string            `json:"error_message"`
	files        []proto.BashOutput // Content of a command or a program
}

// appendContent appends the content of the tool_result, and reports whether the call failed.
func appendContent(b []byte, raw json.RawMessage) (all []byte, failed bool) {
	if all, failed, ok := appendOutput(b, raw); ok {
		return all, failed
	}
	content, failed := resultContent(raw)
	if blocks, ok := content.([]json.RawMessage); ok {
		return append(b, rawjson.Join(blocks)...), failed
	}
	return append(b, rawjson.Marshal(content)...), failed
}

// resultContent returns the content of the tool_result, a text or blocks, and whether the call failed.
func resultContent(raw json.RawMessage) (content any, failed bool) {
	var s resultFields
	if json.Unmarshal(raw, &s) != nil {
		return string(raw), true
	}
	switch {
	case strings.HasSuffix(s.Type, "_error"):
		return s.failureText(), true
	case s.Type == proto.TypeEditorView:
		return s.viewContent(), false
	case s.Type == proto.TypeEditorCreate && s.IsFileUpdate:
		return "The file was there; it has been overwritten.", false
	case s.Type == proto.TypeEditorCreate:
		return "The file has been created.", false
	case s.Type == proto.TypeEditorStrReplace:
		return "The file has been edited:\n" + strings.Join(s.Lines, "\n"), false
	}
	return s.outputText(), s.ReturnCode != 0
}

// appendOutput appends what outputText returns for the output of a command or a program, as it stands in the result.
// Most results are of this kind, so it saves decoding and encoding them. ok is false if the result needs that.
func appendOutput(b []byte, raw json.RawMessage) (all []byte, failed, ok bool) {
	var kind, code, content string
	var stdout, stderr []byte
	for name, value := range rawjson.Members(raw) {
		switch {
		case rawjson.IsText(name, "type"):
			kind = rawjson.Text(value)
		case rawjson.IsText(name, "stdout"):
			stdout = value
		case rawjson.IsText(name, "stderr"):
			stderr = value
		case rawjson.IsText(name, "return_code"):
			code = string(value)
		case rawjson.IsText(name, "content"):
			content = string(value[:min(len(value), 3)])
		}
	}
	n, err := strconv.Atoi(cmp.Or(code, "0"))
	if err != nil || kind != proto.TypeBashResult && kind != exectool.ToolCode+"_result" ||
		content != "" && content != "[]" || !isPlain(stdout) || stderr != nil && !isPlain(stderr) {
		return nil, false, false
	}
	b = append(b, stdout[:len(stdout)-1]...)
	begin := len(b) - len(stdout) + 2
	line := func(text []byte) {
		if len(b) > begin && !bytes.HasSuffix(b, []byte(`\n`)) {
			b = append(b, `\n`...)
		}
		b = append(b, text...)
	}
	if len(stderr) > 2 {
		line([]byte("[stderr]"))
		line(stderr[1 : len(stderr)-1])
	}
	if n != 0 {
		line([]byte("[return code: " + code + "]"))
	}
	if len(b) == begin {
		b = append(b, "[no output]"...)
	}
	return append(b, '"'), n != 0, true
}

// isPlain reports whether a value is a string that the model gets whole, and of which the end shows whether the text
// ends with a line break.
func isPlain(raw []byte) bool {
	return len(raw) >= 2 && raw[0] == '"' && len(raw) <= maxText && !bytes.HasSuffix(raw, []byte(`\\n"`)) &&
		!bytes.HasSuffix(bytes.ToLower(raw[max(0, len(raw)-7):]), []byte(`\u000a"`))
}

// failureTexts maps error codes to texts for the model.
var failureTexts = map[string]string{
	string(proto.BlockInvalidInput): "the input is not what the tool takes",
	string(proto.BlockUnavailable):  "the container is not available, or ended while this ran; its result is lost",
	string(proto.BlockTooMany):      "too many commands run at once; try again later",
	string(proto.BlockTimeExceeded): "it ran longer than its time limit and was ended",
	string(proto.BlockTooLarge):     "it wrote more than its limit and was ended",
	string(proto.BlockFileNotFound): "there is no such file",
}

func (s resultFields) failureText() string {
	text := "Error: " + s.ErrorCode
	if words := failureTexts[s.ErrorCode]; words != "" {
		text += ": " + words
	}
	if s.ErrorMessage != nil && *s.ErrorMessage != "" {
		text += ": " + *s.ErrorMessage
	}
	return text
}

// outputText returns the output of a command or a program. stderr follows stdout: how they were interleaved is
// unknown.
func (s resultFields) outputText() string {
	var b strings.Builder
	b.WriteString(shorten(s.Stdout))
	if s.Stderr != "" {
		writeLine(&b, "[stderr]")
		writeLine(&b, shorten(s.Stderr))
	}
	if s.ReturnCode != 0 {
		writeLine(&b, fmt.Sprintf("[return code: %d]", s.ReturnCode))
	}
	_ = json.Unmarshal(s.Content, &s.files) // content that is not a list has no files
	for _, f := range s.files {
		writeLine(&b, "[file for the user: "+f.FileID+"]")
	}
	if b.Len() == 0 {
		return "[no output]"
	}
	return b.String()
}

// maxText is the maximum size of one text for the model, in bytes. The model's context cannot hold all that a command
// may write. Clients get the whole text.
const maxText = 128 << 10

// shorten removes the middle of a long text.
func shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	head, tail := text[:maxText*3/4], text[len(text)-maxText/4:]
	return fmt.Sprintf("%s\n[%d bytes are left out here; look at less at once]\n%s", strings.ToValidUTF8(head, ""),
		len(text)-maxText, strings.ToValidUTF8(tail, ""))
}

// writeLine writes text on a separate line.
func writeLine(b *strings.Builder, text string) {
	if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	b.WriteString(text)
}

// imageMedia maps the beginning of base64 data to the media type.
var imageMedia = []struct{ begin, media string }{{"/9j/", "image/jpeg"}, {"R0lGOD", "image/gif"},
	{"UklGR", "image/webp"}, {"", "image/png"}}

// viewContent returns the output of the editor's view command: text, or an image for the model.
func (s resultFields) viewContent() any {
	var text string
	if json.Unmarshal(s.Content, &text) != nil {
		return string(s.Content)
	}
	switch s.FileType {
	case "image":
		for _, m := range imageMedia {
			if strings.HasPrefix(text, m.begin) {
				source := rawjson.Object{}.With("type", "base64").With("media_type", m.media).With("data", text)
				return []json.RawMessage{rawjson.Object{}.With("type", "image").With("source", source.Raw()).Raw()}
			}
		}
	case "pdf":
		return "This is a PDF; read it with a program."
	}
	text = shorten(text)
	if s.StartLine != nil && s.NumLines != nil && s.TotalLines != nil && *s.NumLines < *s.TotalLines {
		text += fmt.Sprintf("\n[lines %d to %d of %d]", *s.StartLine, *s.StartLine+*s.NumLines-1, *s.TotalLines)
	}
	if text == "" {
		return "[the file is empty]"
	}
	return text
}

package proto

import "encoding/json"

// The types of result content, as hosted code execution names them.
const (
	TypeBashResult       = "bash_code_execution_result"
	TypeBashError        = "bash_code_execution_tool_result_error"
	TypeBashOutput       = "bash_code_execution_output"
	TypeEditorView       = "text_editor_code_execution_view_result"
	TypeEditorCreate     = "text_editor_code_execution_create_result"
	TypeEditorStrReplace = "text_editor_code_execution_str_replace_result"
	TypeEditorError      = "text_editor_code_execution_tool_result_error"
)

// A BlockError is the in-band error_code of a result block. Only these exist on the wire.
type BlockError string

// The block errors. OutputFileTooLarge is bash's alone, FileNotFound the editor's.
const (
	BlockInvalidInput BlockError = "invalid_tool_input"
	BlockUnavailable  BlockError = "unavailable"
	BlockTooMany      BlockError = "too_many_requests"
	BlockTimeExceeded BlockError = "execution_time_exceeded"
	BlockTooLarge     BlockError = "output_file_too_large"
	BlockFileNotFound BlockError = "file_not_found"
)

// A BashResult is a command that ran to its end, whatever its return code.
type BashResult struct {
	Type       string `json:"type"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	ReturnCode int    `json:"return_code"`
	// Stored files made of the files in $OUTPUT_DIR, sorted by path, which is the filename; never null.
	Content []BashOutput `json:"content"`
}

// A BashOutput names one stored file that the command put into $OUTPUT_DIR.
type BashOutput struct {
	Type   string `json:"type"`
	FileID string `json:"file_id"`
}

// A BashError is a command that did not run to its end; the exec's end says why.
type BashError struct {
	Type      string     `json:"type"`
	ErrorCode BlockError `json:"error_code"`
}

// BashContent is one of Result and Error.
type BashContent struct {
	Result *BashResult
	Error  *BashError
}

// MarshalJSON writes the one that is set.
func (c BashContent) MarshalJSON() ([]byte, error) {
	if c.Error != nil {
		return json.Marshal(c.Error)
	}
	return json.Marshal(c.Result)
}

// UnmarshalJSON tells the two apart by their type.
func (c *BashContent) UnmarshalJSON(b []byte) error {
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return err
	}
	*c = BashContent{}
	if head.Type == TypeBashError {
		return json.Unmarshal(b, &c.Error)
	}
	return json.Unmarshal(b, &c.Result)
}

// An EditorInput is the input of the editor tools, hosted and client-side alike. Which fields
// count depends on Command; a nil pointer is an absent field.
type EditorInput struct {
	Command string `json:"command"` // view, create, str_replace, insert
	Path    string `json:"path"`
	// [first, last], 1-indexed; last -1 is the end
	ViewRange  []int   `json:"view_range,omitempty" says:"a list of two integers"`
	FileText   *string `json:"file_text,omitempty"`
	OldStr     *string `json:"old_str,omitempty"`
	NewStr     *string `json:"new_str,omitempty"`
	InsertLine *int    `json:"insert_line,omitempty"` // after this line; 0 is the top
	InsertText *string `json:"insert_text,omitempty"`
}

// An EditorResult is what the editor did: exactly one field is set. Insert answers a Replace.
type EditorResult struct {
	View    *EditorView    `json:"view,omitempty"`
	Create  *EditorCreate  `json:"create,omitempty"`
	Replace *EditorReplace `json:"replace,omitempty"`
	List    []FileInfo     `json:"list,omitempty"` // view of a directory, two levels deep
}

// An EditorView is a file's text, raw: no line numbers and no trailing newline.
type EditorView struct {
	Type       string `json:"type"`
	FileType   string `json:"file_type"` // text, image, pdf
	Content    string `json:"content"`   // base64 for image and pdf
	NumLines   *int   `json:"num_lines"`
	StartLine  *int   `json:"start_line"`
	TotalLines *int   `json:"total_lines"`
}

// An EditorCreate says whether the file was there before.
type EditorCreate struct {
	Type         string `json:"type"`
	IsFileUpdate bool   `json:"is_file_update"`
}

// An EditorReplace is one unified-diff hunk with three lines of context; the numbers are those
// of its header.
type EditorReplace struct {
	Type     string   `json:"type"`
	Lines    []string `json:"lines"`
	OldStart *int     `json:"old_start"`
	OldLines *int     `json:"old_lines"`
	NewStart *int     `json:"new_start"`
	NewLines *int     `json:"new_lines"`
}

// An EditorError is the editor's in-band error.
type EditorError struct {
	Type         string     `json:"type"`
	ErrorCode    BlockError `json:"error_code"`
	ErrorMessage *string    `json:"error_message"`
}

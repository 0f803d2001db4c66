package proto

import (
	"encoding/json"
	"strings"
)

// MaxCode bounds the code of one run, in bytes.
const MaxCode = 1 << 20

// CodeLanguages are the languages that code can be in. The first is the default.
var CodeLanguages = []string{"python", "js", "ts", "r", "java", "bash", "c", "cpp", "fortran", "go", "rust", "php"}

// A Program is code that runs in a fresh interpreter, or in a context.
type Program struct {
	Code string `json:"code" schema:"maxLength=1048576 source"` // At most 1 MiB.
	// python (default) or another language of the list; other names of a language are accepted.
	Language string `json:"language,omitempty" schema:"language"`
	// Run it in this container. Without it, the code runs in a container of its own, which is deleted afterwards.
	Container string `json:"container,omitempty"`
	// Run it as a cell of this context of the container.
	Context string `json:"context,omitempty" schema:"name"`
	Image   string `json:"image,omitempty"` // Image of the container that is made.
	Confinement
	// What the container that is made may reach; default nothing. A mode may stand in place of the object.
	Network Network `json:"network,omitzero" schema:"network or=networkMode"`
	// What the proxy of the container that is made puts into requests.
	NetworkSecrets map[string]NetworkSecret `json:"network_secrets,omitempty"`

	// IDs of stored files to put into $INPUT_DIR first.
	Files []string `json:"files,omitempty"`
	// Added to the environment of the container; not in a context.
	Env map[string]string `json:"env,omitempty" schema:"env"`
	// Working directory: absolute, or relative to the directory of the container's job, which is the default; not in
	// java in a context.
	Cwd string `json:"cwd,omitempty" schema:"maxLength=4095 noNUL"`
	// More environment; the values are replaced wherever the code is recorded.
	Secrets map[string]string `json:"secrets,omitempty" schema:"secrets"`
	// At most 86400; 0 is the default of the daemon.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" schema:"min=0 max=86400"`
	// How much of each stream is kept; 0 is 1 MiB.
	MaxOutputBytes int64 `json:"max_output_bytes,omitempty" schema:"min=0 max=16777216"`

	Shown string `json:"-"` // recorded in place of the code; "": the code is recorded
}

// A Cell is code that runs in a context.
type Cell struct {
	Code string `json:"code" schema:"maxLength=1048576 source"` // At most 1 MiB.
	// Language of a context that is made for the cell, default python. A context with another language is a conflict.
	Language string `json:"language,omitempty" schema:"language"`
	// Environment of this cell; the interpreter has its own again afterwards. In java, properties of the system.
	Env map[string]string `json:"env,omitempty" schema:"toolEnv"`
	// Working directory of this cell, absolute or relative to the interpreter's, which it has again afterwards. Not in
	// java.
	Cwd string `json:"cwd,omitempty" schema:"maxLength=4095 noNUL"`
	// IDs of stored files to put into $INPUT_DIR first.
	Files []string `json:"files,omitempty"`
	// At most 86400; 0 is the default of the daemon.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" schema:"min=0 max=86400"`
	// How much of each stream is kept; 0 is 1 MiB.
	MaxOutputBytes int64 `json:"max_output_bytes,omitempty" schema:"min=0 max=16777216"`
}

// An Outcome is the result of running code. Other systems answer with results, logs and error.
type Outcome struct {
	// The value of the last expression, preceded by what else the code showed, as text.
	Results []string `json:"results"`
	// Index in results of the value of the last expression, which is the last result. Absent: the code gave no value.
	MainResult *int `json:"main_result,omitempty"`
	Logs       Logs `json:"logs"`
	// The traceback or another explanation, in one text.
	Error string `json:"error,omitempty"`

	ErrorDetail *ErrorDetail `json:"error_detail,omitempty"`
	// The same results by media type, in the same order. Text is text, an image base64, and JSON is JSON.
	Rich []Bundle `json:"rich"`
	// Stored files made of the files in $OUTPUT_DIR; of a context, when its interpreter ends.
	Files []BashOutput `json:"files"`
	// The container, unless it was made for this code alone.
	Container *ContainerRef `json:"container,omitempty"`
	Context   string        `json:"context,omitempty"`
	ExecID    string        `json:"exec_id"` // The interpreter as a command.
	// Number of the cell in the present interpreter of its context, from 1.
	ExecutionCount int     `json:"execution_count,omitempty"`
	DurationMS     float64 `json:"duration_ms"`
	// Some of the output or of the results was left out.
	Truncated bool     `json:"truncated"`
	Notes     []string `json:"notes,omitempty"`
}

// Logs are the lines that code printed. Each line keeps its newline, so joined lines are the original output.
type Logs struct {
	Stdout []string `json:"stdout"` // Line by line, each with its end.
	Stderr []string `json:"stderr"`
}

// maxLogLines bounds the lines of one stream; the last entry has the rest.
const maxLogLines = 100_000

// LogLines splits a text into lines as Logs have them.
func LogLines(text string) []string {
	list := strings.SplitAfterN(text, "\n", maxLogLines)
	if list[len(list)-1] == "" {
		list = list[:len(list)-1]
	}
	return list
}

// An ErrorDetail describes how code failed.
type ErrorDetail struct {
	// Name of the exception, or why the interpreter ended: exit, signal, timeout, out_of_memory and the other reasons
	// of a command.
	Name       string `json:"name"`
	Message    string `json:"message"`
	Traceback  string `json:"traceback,omitempty"`
	ReturnCode *int   `json:"return_code,omitempty"` // Of an interpreter that ended.
}

// A Bundle is one result by media type: JSON for JSON types, text, or base64 of anything else.
type Bundle map[string]json.RawMessage

// A Progress is one event of a running cell.
type Progress struct {
	Type string `json:"type"` // start, stdout, stderr, gap, display, result or error.
	// The interpreter as a command, in the first message.
	ExecID string `json:"exec_id,omitempty"`
	// Number of the cell in the present interpreter, in the first message.
	ExecutionCount int    `json:"execution_count,omitempty"`
	Stream         string `json:"stream,omitempty"` // For a gap: stdout or stderr.
	// In bytes from the beginning of the cell's stream.
	Offset     int64    `json:"offset,omitempty"`
	Until      int64    `json:"until,omitempty"` // Where a gap ends.
	Data       string   `json:"data,omitempty"`
	DataBase64 []byte   `json:"data_base64,omitempty"` // Output that is not UTF-8.
	Display    *Display `json:"display,omitempty"`     // What the code showed, when it showed it.
	Result     *Outcome `json:"result,omitempty"`
	Error      *Error   `json:"error,omitempty"`
}

// A Display is one result of a running cell. The outcome at its end has it again, as far as there is room.
type Display struct {
	Text string `json:"text"` // As text.
	Rich Bundle `json:"rich"` // By media type.
	Main bool   `json:"main"` // It is the value of the last expression.
}

// Types of Progress in addition to those of output.
const (
	ProgressStart   = "start" // the cell is about to be sent to its interpreter
	ProgressDisplay = "display"
	ProgressResult  = "result" // the cell's end
	ProgressError   = "error"  // there is no result; Error is set
)

// A CodeContext describes a named interpreter of a container.
type CodeContext struct {
	Name        string `json:"name"`
	ContainerID string `json:"container_id"`
	Language    string `json:"language"`
	User        string `json:"user"` // The user that it runs as.
	// Working directory that it was created with; none: the directory of its job.
	Cwd string `json:"cwd,omitempty"`
	// idle, busy, or ended: the next cell starts a new interpreter.
	State string `json:"state"`
	// Number of cells that the present interpreter has run.
	Cells int `json:"cells"`
	// The interpreter as a command; none before the first cell.
	ExecID     string `json:"exec_id,omitempty"`
	CreatedAt  Time   `json:"created_at"`
	LastUsedAt Time   `json:"last_used_at"`
	Note       string `json:"note,omitempty"` // Why the last interpreter ended.
}

// States of a context.
const (
	ContextIdle  = "idle"
	ContextBusy  = "busy"
	ContextEnded = "ended" // the next cell starts a new interpreter
)

package proto

import "encoding/json"

// MaxCode bounds the code of one run, in bytes.
const MaxCode = 1 << 20

// CodeLanguages are the languages that code can be in. The first is the default.
var CodeLanguages = []string{"python", "js", "ts", "r", "java", "bash"}

// A Program is code that runs in a fresh interpreter, or in a context.
type Program struct {
	Code     string `json:"code"`
	Language string `json:"language,omitempty"` // one of CodeLanguages; default python
	// container to run in; default: a new one that is deleted afterwards
	Container string `json:"container,omitempty"`
	// name of an interpreter of Container that keeps its variables
	Context string `json:"context,omitempty"`
	// image and network of the new container, and secrets that its proxy inserts into requests
	Image          string                   `json:"image,omitempty"`
	Network        Network                  `json:"network,omitzero"`
	NetworkSecrets map[string]NetworkSecret `json:"network_secrets,omitempty"`

	Files          []string          `json:"files,omitempty"`            // stored files to put into $INPUT_DIR first
	Env            map[string]string `json:"env,omitempty"`              // added to the container's; not in a context
	Secrets        map[string]string `json:"secrets,omitempty"`          // like Env, hidden in all records
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty"`  // 0: the daemon's default for commands
	MaxOutputBytes int64             `json:"max_output_bytes,omitempty"` // of each stream; 0: 1 MiB
}

// A Cell is code that runs in a context.
type Cell struct {
	Code           string   `json:"code"`
	Language       string   `json:"language,omitempty"`         // of a context that the cell creates; default python
	Files          []string `json:"files,omitempty"`            // stored files to put into $INPUT_DIR first
	TimeoutSeconds float64  `json:"timeout_seconds,omitempty"`  // 0: the daemon's default for commands
	MaxOutputBytes int64    `json:"max_output_bytes,omitempty"` // of each stream; 0: 1 MiB
}

// An Outcome is the result of running code. Other systems answer with the first three fields.
type Outcome struct {
	Results []string `json:"results"` // value of the last expression and other displayed values, as text
	Logs    Logs     `json:"logs"`
	Error   string   `json:"error,omitempty"` // set only if the code failed

	ErrorDetail *ErrorDetail  `json:"error_detail,omitempty"`
	Rich        []Bundle      `json:"rich"`  // Results by media type: same number, same order
	Files       []BashOutput  `json:"files"` // stored files made from the top-level files of $OUTPUT_DIR
	Container   *ContainerRef `json:"container,omitempty"`
	Context     string        `json:"context,omitempty"`
	ExecID      string        `json:"exec_id"` // of the interpreter
	DurationMS  float64       `json:"duration_ms"`
	Truncated   bool          `json:"truncated"` // some output or results were left out
	Notes       []string      `json:"notes,omitempty"`
}

// Logs are the lines that code printed. Each line keeps its newline, so joined lines are the original output.
type Logs struct {
	Stdout []string `json:"stdout"`
	Stderr []string `json:"stderr"`
}

// An ErrorDetail describes how code failed.
type ErrorDetail struct {
	// of the exception, or why the interpreter ended: "exit", "signal", "timeout", "out_of_memory", …
	Name       string `json:"name"`
	Message    string `json:"message"`
	Traceback  string `json:"traceback,omitempty"`
	ReturnCode *int   `json:"return_code,omitempty"` // of an interpreter that ended
}

// A Bundle is one result by media type: JSON for JSON types, text, or base64 of anything else.
type Bundle map[string]json.RawMessage

// A Progress is one event of a running cell.
type Progress struct {
	Type       string   `json:"type"`              // "start", "stdout", "stderr", "gap", "result" or "error"
	ExecID     string   `json:"exec_id,omitempty"` // of the interpreter; in the first event
	Stream     string   `json:"stream,omitempty"`  // of a gap: "stdout" or "stderr"
	Offset     int64    `json:"offset,omitempty"`  // in bytes from the beginning of the cell's stream
	Until      int64    `json:"until,omitempty"`   // end of a gap
	Data       string   `json:"data,omitempty"`
	DataBase64 []byte   `json:"data_base64,omitempty"` // output that is not UTF-8
	Result     *Outcome `json:"result,omitempty"`
	Error      *Error   `json:"error,omitempty"`
}

// Types of Progress in addition to those of output.
const (
	ProgressStart  = "start"  // the cell is about to be sent to its interpreter
	ProgressResult = "result" // the cell's end
	ProgressError  = "error"  // there is no result; Error is set
)

// A CodeContext describes a named interpreter of a container.
type CodeContext struct {
	Name        string `json:"name"`
	ContainerID string `json:"container_id"`
	Language    string `json:"language"`
	State       string `json:"state"`             // one of the states below
	Cells       int    `json:"cells"`             // run by the present interpreter
	ExecID      string `json:"exec_id,omitempty"` // of the interpreter; none before the first cell
	CreatedAt   Time   `json:"created_at"`
	LastUsedAt  Time   `json:"last_used_at"`
	Note        string `json:"note,omitempty"` // why the last interpreter ended
}

// States of a context.
const (
	ContextIdle  = "idle"
	ContextBusy  = "busy"
	ContextEnded = "ended" // the next cell starts a new interpreter
)

package code

import (
	"encoding/json"

	"berth/proto"
)

// A Program is code to run.
type Program struct {
	Code     string `json:"code"`
	Language string `json:"language,omitempty"` // default python
	// where; default: one that is made for it and deleted
	Container string `json:"container,omitempty"`
	// of Container: a named interpreter that keeps its variables
	Context string        `json:"context,omitempty"`
	Image   string        `json:"image,omitempty"`  // of the container that is made
	Network proto.Network `json:"network,omitzero"` // of it too: what it may reach
	// of it too: what its network's proxy puts into requests
	NetworkSecrets map[string]proto.NetworkSecret `json:"network_secrets,omitempty"`
	// stored files to put into $INPUT_DIR first
	Files []string          `json:"files,omitempty"`
	Env   map[string]string `json:"env,omitempty"` // added to the container's; not in a context
	// the same, hidden wherever the code is recorded
	Secrets map[string]string `json:"secrets,omitempty"`
	// 0 is the daemon's default for commands
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
	MaxOutputBytes int64   `json:"max_output_bytes,omitempty"` // of each stream; 0 is 1 MiB

	Each func(Progress) error `json:"-"` // gets what code in a named container prints while it runs; nil: nobody does
	// what it is called wherever it is recorded, instead of by its code; no request can say it
	Shown string `json:"-"`
}

// An Outcome is what became of code. Its first three fields are what other systems answer with.
type Outcome struct {
	Results []string `json:"results"` // the value of the last expression, and what else was shown, as text
	Logs    Logs     `json:"logs"`
	Error   string   `json:"error,omitempty"` // only when it failed

	ErrorDetail *ErrorDetail        `json:"error_detail,omitempty"`
	Rich        []Bundle            `json:"rich"`  // the same results by media type, as many and in the same order
	Files       []proto.BashOutput  `json:"files"` // stored files made of the top-level files of $OUTPUT_DIR
	Container   *proto.ContainerRef `json:"container,omitempty"`
	Context     string              `json:"context,omitempty"`
	ExecID      string              `json:"exec_id"` // of the interpreter
	DurationMS  float64             `json:"duration_ms"`
	Truncated   bool                `json:"truncated"` // some of the output or of the results was left out
	Notes       []string            `json:"notes,omitempty"`
}

// Logs are what code printed, line by line: together they are the output as it was.
type Logs struct {
	Stdout []string `json:"stdout"`
	Stderr []string `json:"stderr"`
}

// An ErrorDetail says how code failed.
type ErrorDetail struct {
	// of the exception, or why the interpreter ended: "exit", "signal", "timeout", "out_of_memory", …
	Name       string `json:"name"`
	Message    string `json:"message"`
	Traceback  string `json:"traceback,omitempty"`
	ReturnCode *int   `json:"return_code,omitempty"` // of an interpreter that ended
}

// A Bundle is one result by media type: a text, base64 of what is not text, or JSON where the type is JSON.
type Bundle map[string]json.RawMessage

// A Progress is one message of a cell that runs.
type Progress struct {
	Type       string       `json:"type"`              // "start", "stdout", "stderr", "gap", "result" or "error"
	ExecID     string       `json:"exec_id,omitempty"` // of the interpreter, in the first
	Stream     string       `json:"stream,omitempty"`  // of a gap: "stdout" or "stderr"
	Offset     int64        `json:"offset,omitempty"`  // in bytes from the beginning of the cell's stream
	Until      int64        `json:"until,omitempty"`   // end of a gap
	Data       string       `json:"data,omitempty"`
	DataBase64 []byte       `json:"data_base64,omitempty"` // output that is not UTF-8
	Result     *Outcome     `json:"result,omitempty"`
	Error      *proto.Error `json:"error,omitempty"`
}

// The types that a Progress has beside those of output.
const (
	ProgressStart  = "start"  // the cell is about to be sent to its interpreter
	ProgressResult = "result" // its end
	ProgressError  = "error"  // there is no result; Error is set
)

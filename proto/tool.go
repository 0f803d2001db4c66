package proto

import "encoding/json"

// A Tool is one version of a stored tool.
type Tool struct {
	ID               string            `json:"id"`
	Name             string            `json:"name"`
	Description      string            `json:"description"`
	ToolType         string            `json:"tool_type"`
	Configuration    ToolConfiguration `json:"configuration"`
	ApprovalAction   string            `json:"approval_action"`
	EnvVariableNames []string          `json:"env_variable_names"`
	Version          int64             `json:"version"`
	CreatedAt        Time              `json:"created_at"`
	UpdatedAt        Time              `json:"updated_at"` // when this version was made
	Notes            []string          `json:"notes,omitempty"`
}

// A ToolConfiguration says what a stored tool runs, and how.
type ToolConfiguration struct {
	Type           string            `json:"type"`    // "CodeRunner"
	Runtime        string            `json:"runtime"` // "python"
	Code           string            `json:"code"`    // defines run(input)
	InputSchema    []ToolField       `json:"input_schema,omitempty"`
	OutputSchema   []ToolField       `json:"output_schema,omitzero"`   // default: any JSON
	EnvVariables   map[string]string `json:"env_variables,omitempty"`  // never returned
	TimeoutSeconds float64           `json:"timeout_seconds,omitzero"` // default 30
	AllowNetwork   bool              `json:"allow_network,omitempty"`

	// EnvHosts names hosts for variables that the code sees as placeholders. The proxy inserts the values into
	// requests to these hosts only.
	EnvHosts map[string][]string `json:"env_hosts,omitempty"`
}

// A ToolField is one field of a stored tool's input or output. A schema is a flat list of fields: the code itself has
// to check what is inside objects.
type ToolField struct {
	Name        string `json:"name"`
	FieldType   string `json:"field_type"`
	Required    bool   `json:"required,omitempty"`
	Description string `json:"description,omitempty"`
	ItemsType   string `json:"items_type,omitempty"` // of an ARRAY's items; default: any type
}

// A ToolRunRequest asks for a run of a stored tool.
type ToolRunRequest struct {
	Input   json.RawMessage `json:"input,omitempty"`   // an object; default {}
	Version int64           `json:"version,omitempty"` // default: the current version
	// container to run in; default: a new one that is deleted afterwards
	Container  string   `json:"container,omitempty"`
	Image      string   `json:"image,omitempty"`      // of the new container
	Files      []string `json:"files,omitempty"`      // stored files to put into $INPUT_DIR first
	Background bool     `json:"background,omitempty"` // answer as soon as the run has started
	// The same key with the same request names the same run for as long as that run is kept.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// A ToolRun is one run of a stored tool. Values of the tool's secrets are replaced in all fields.
type ToolRun struct {
	ID          string          `json:"id"`
	ToolID      string          `json:"tool_id"`
	Tool        string          `json:"tool"` // its name
	Version     int64           `json:"version"`
	State       ToolRunState    `json:"state"`
	Input       json.RawMessage `json:"input"`            // the fields that the schema names
	Output      json.RawMessage `json:"output,omitempty"` // what run returned, once it succeeded
	Error       *ToolRunError   `json:"error,omitempty"`
	Logs        Logs            `json:"logs"`
	Truncated   bool            `json:"truncated,omitempty"` // some of the logs were left out
	Files       []BashOutput    `json:"files"`               // stored files made from the top-level files of $OUTPUT_DIR
	Notes       []string        `json:"notes,omitempty"`
	Container   string          `json:"container,omitempty"` // the one that the request named
	ExecID      string          `json:"exec_id,omitempty"`
	DurationMS  float64         `json:"duration_ms"`
	RequestedBy string          `json:"requested_by"` // ID of the API key
	CreatedAt   Time            `json:"created_at"`
	StartedAt   *Time           `json:"started_at,omitempty"`
	EndedAt     *Time           `json:"ended_at,omitempty"`
	ExpiresAt   *Time           `json:"expires_at,omitempty"` // deadline for the approval, if it needs one
	Decision    *Decision       `json:"decision,omitempty"`
}

// A ToolRunError describes how a run failed.
type ToolRunError struct {
	// "exception", "timeout", "out_of_memory", "exit", "not_serializable", "invalid_output", …
	Type       string `json:"type"`
	Name       string `json:"name,omitempty"`        // of the exception
	Message    string `json:"message"`               // for people
	Traceback  string `json:"traceback,omitempty"`   // of the tool's own frames
	Field      string `json:"field,omitempty"`       // the wrong field of the output
	ReturnCode *int   `json:"return_code,omitempty"` // of an interpreter that ended
}

// A ToolRunState is the state of a run.
type ToolRunState string

// States of a run.
const (
	RunParked    ToolRunState = "parked"  // waits for approval
	RunRunning   ToolRunState = "running" // its code may have started
	RunSucceeded ToolRunState = "succeeded"
	RunFailed    ToolRunState = "failed"
	RunRefused   ToolRunState = "refused" // by a person
	RunExpired   ToolRunState = "expired" // parked for too long
	RunLost      ToolRunState = "lost"    // the daemon ended during the run; how far the run got is unknown
)

// ToolRunStates lists all states of a run.
var ToolRunStates = []ToolRunState{RunParked, RunRunning, RunSucceeded, RunFailed, RunRefused, RunExpired, RunLost}

// Over reports whether the state is final.
func (s ToolRunState) Over() bool { return s != RunParked && s != RunRunning }

// A Decision is what a person decided about a run of a stored tool, or about a call of a tool.
type Decision struct {
	By     string `json:"by"` // ID of the API key
	At     Time   `json:"at"`
	Reason string `json:"reason,omitempty"` // why it was refused
}

// A Refusal refuses a run or a call.
type Refusal struct {
	Reason string `json:"reason,omitempty"`
}

// A ToolCall is one call of a tool by code in a container. Secrets of the container are replaced in all fields.
type ToolCall struct {
	ID          string          `json:"id"`
	ContainerID string          `json:"container_id"`
	ExecID      string          `json:"exec_id"`
	Tool        string          `json:"tool"`
	State       ToolCallState   `json:"state"`
	Input       json.RawMessage `json:"input,omitempty"` // set only if the call needs approval
	InputBytes  int64           `json:"input_bytes"`
	ResultBytes int64           `json:"result_bytes"`
	Error       *CallError      `json:"error,omitempty"`
	CreatedAt   Time            `json:"created_at"`
	StartedAt   *Time           `json:"started_at,omitempty"` // when the provider could have received it
	EndedAt     *Time           `json:"ended_at,omitempty"`
	ExpiresAt   *Time           `json:"expires_at,omitempty"` // deadline for the approval, if it needs one
	Decision    *Decision       `json:"decision,omitempty"`
}

// A CallError describes how a call failed: the type of the exception that the code gets, and its message.
type CallError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// A ToolCallState is the state of a call.
type ToolCallState string

// States of a call.
const (
	CallParked    ToolCallState = "parked"    // waits for approval
	CallApproved  ToolCallState = "approved"  // the code has not yet come back for it
	CallRunning   ToolCallState = "running"   // the provider may have received it
	CallSucceeded ToolCallState = "succeeded" // the code got a result
	CallFailed    ToolCallState = "failed"    // the code got an exception
	CallRefused   ToolCallState = "refused"   // by a person
	CallExpired   ToolCallState = "expired"   // parked for too long
	CallCanceled  ToolCallState = "canceled"  // the code that made it ended
	CallLost      ToolCallState = "lost"      // the daemon ended during the call; whether the tool ran is unknown
)

// ToolCallStates lists all states of a call.
var ToolCallStates = []ToolCallState{CallParked, CallApproved, CallRunning, CallSucceeded, CallFailed, CallRefused,
	CallExpired, CallCanceled, CallLost}

// Over reports whether the state is final.
func (s ToolCallState) Over() bool { return s != CallParked && s != CallApproved && s != CallRunning }

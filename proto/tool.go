package proto

import (
	"bytes"
	"encoding/json"
	"fmt"
)

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
	UpdatedAt        Time              `json:"updated_at"` // When the version was made.
	Notes            []string          `json:"notes,omitempty"`
}

// A ToolConfiguration says what a stored tool runs, and how.
type ToolConfiguration struct {
	Type string `json:"type" schema:"const=CodeRunner"` // "CodeRunner"
	// "python", which is the default.
	Runtime string `json:"runtime,omitempty" schema:"enum=|python"`
	// Python that defines run(input), at most 96 KiB.
	Code string `json:"code" schema:"maxLength=98304 source"`
	// The fields that an input may have; others are dropped. Without it, the whole input is passed.
	InputSchema []ToolField `json:"input_schema,omitzero" schema:"maxItems=128"`
	// If set, run has to return an object with these fields; it may have more.
	OutputSchema []ToolField `json:"output_schema,omitzero" schema:"maxItems=128"`
	// Environment of the tool's process alone. The values are sealed on disk and never returned. It may also be a list
	// of objects with name and value.
	EnvVariables ToolEnv `json:"env_variables,omitempty" schema:"toolEnv"`
	// 0.1 to 3600; 0 is the default, 30.
	TimeoutSeconds float64 `json:"timeout_seconds,omitzero" schema:"orZero=0.1:3600"`
	// Whether it may reach any public host through the proxy of the daemon; otherwise it reaches nothing. Where the
	// daemon gives containers no such network, running the tool is a 501.
	AllowNetwork bool `json:"allow_network,omitempty"`
	// Of the container that is made for a run.
	Confinement

	// Variables of which the code sees a placeholder: the proxy puts the value into requests to these hosts alone.
	EnvHosts map[string][]string `json:"env_hosts,omitempty"`
}

// ToolEnv is the environment of a stored tool.
type ToolEnv map[string]string

// A ToolVariable is one variable of an environment that is sent as a list.
type ToolVariable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// UnmarshalJSON reads an object, or a list of objects with name and value.
func (e *ToolEnv) UnmarshalJSON(data []byte) error {
	const at = "configuration.env_variables"
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '[' {
		if json.Unmarshal(data, (*map[string]string)(e)) != nil {
			return Invalid(at, "%s must be an object of strings, or a list of objects with name and value", at)
		}
		return nil
	}
	var list []ToolVariable
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if d.Decode(&list) != nil {
		return Invalid(at, "%s: an item of the list must be an object with the strings name and value", at)
	}
	*e = ToolEnv{}
	for i, v := range list {
		if _, twice := (*e)[v.Name]; twice {
			return Invalid(fmt.Sprintf("%s.%d.name", at, i), "%s.%d.name: %.80q is there already", at, i, v.Name)
		}
		(*e)[v.Name] = v.Value
	}
	return nil
}

// A ToolField is one field of a stored tool's input or output, of an OBJECT in it, or an item of an ARRAY.
type ToolField struct {
	// Ignored in items_schema, which may leave it out.
	Name        string `json:"name,omitempty" schema:"pattern=^([0-9A-Za-z_.-]{1,64})?$"`
	FieldType   string `json:"field_type" schema:"enum=STRING|INTEGER|NUMBER|BOOLEAN|ARRAY|OBJECT"`
	Required    bool   `json:"required,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty" schema:"maxLength=4096"`
	// The fields of an OBJECT; others are dropped from an input. Without it they may be anything.
	Properties []ToolField `json:"properties,omitempty" schema:"maxItems=128"`
	// The items of an ARRAY; without it and items_type they may be anything.
	ItemsSchema *ToolField `json:"items_schema,omitempty"`
	// Type of the items of an ARRAY, if there is no more to say about them.
	ItemsType string `json:"items_type,omitempty" schema:"enum=|STRING|INTEGER|NUMBER|BOOLEAN|ARRAY|OBJECT"`
	// The values that are allowed; default all.
	EnumValues []json.RawMessage `json:"enum_values,omitempty" schema:"maxItems=256"`
	Format     string            `json:"format,omitempty"`    // For readers; it is not checked.
	Minimum    *float64          `json:"minimum,omitempty"`   // Of an INTEGER or NUMBER.
	Maximum    *float64          `json:"maximum,omitempty"`   // Of an INTEGER or NUMBER.
	MinItems   *int64            `json:"min_items,omitempty"` // Of an ARRAY.
	MaxItems   *int64            `json:"max_items,omitempty"` // Of an ARRAY.
}

// A ToolRunRequest asks for a run of a stored tool.
type ToolRunRequest struct {
	// An object of at most 96 KiB; default {}.
	Input   json.RawMessage `json:"input,omitempty" schema:"object"`
	Version int64           `json:"version,omitempty" schema:"min=0"` // Default: the current version.
	// The container to run in; without it, one is made and deleted afterwards.
	Container string `json:"container,omitempty"`
	Image     string `json:"image,omitempty"` // Image of the container that is made.
	// A runtime class other than that of the tool's configuration is refused.
	Confinement
	// IDs of stored files to put into $INPUT_DIR first.
	Files      []string `json:"files,omitempty"`
	Background bool     `json:"background,omitempty"` // Answer as soon as the run has begun.
	// The same key with the same request returns the same run, for as long as that is kept.
	IdempotencyKey string `json:"idempotency_key,omitempty" schema:"retryKey"`
}

// NullIsAbsent makes the decoder take null for any of these fields that is left out. The input stays as it is.
func (ToolRunRequest) NullIsAbsent() (depth int) { return 1 }

// A ToolRun is one run of a stored tool. Values of the tool's secrets are replaced in all fields.
type ToolRun struct {
	ID      string          `json:"id"`
	ToolID  string          `json:"tool_id"`
	Tool    string          `json:"tool"` // Name of the tool.
	Version int64           `json:"version"`
	State   ToolRunState    `json:"state"`
	Input   json.RawMessage `json:"input"` // The fields that the schema has.
	// What run returned. Only where the run succeeded.
	Output    json.RawMessage `json:"output,omitempty"`
	Error     *ToolRunError   `json:"error,omitempty"`
	Logs      Logs            `json:"logs"`
	Truncated bool            `json:"truncated,omitempty"` // Some of the logs was left out.
	// Stored files made of the files in $OUTPUT_DIR.
	Files       []BashOutput `json:"files"`
	Notes       []string     `json:"notes,omitempty"`
	Container   string       `json:"container,omitempty"` // The container that the request named.
	ExecID      string       `json:"exec_id,omitempty"`
	DurationMS  float64      `json:"duration_ms"`
	RequestedBy string       `json:"requested_by"` // The API key that asked for it.
	CreatedAt   Time         `json:"created_at"`
	StartedAt   *Time        `json:"started_at,omitempty"`
	EndedAt     *Time        `json:"ended_at,omitempty"`
	// Until when a run that waits for approval can be approved.
	ExpiresAt *Time     `json:"expires_at,omitempty"`
	Decision  *Decision `json:"decision,omitempty"`
}

// A ToolRunError describes how a run failed.
type ToolRunError struct {
	// exception, syntax_error, no_run, exit, signal, timeout, out_of_memory, not_serializable, output_too_large,
	// invalid_output, refused, expired, lost, or what kept the code from running.
	Type       string `json:"type"`
	Name       string `json:"name,omitempty"`        // of the exception
	Message    string `json:"message"`               // for people
	Traceback  string `json:"traceback,omitempty"`   // of the tool's own frames
	Field      string `json:"field,omitempty"`       // Field of the output that is wrong.
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
	By     string `json:"by"` // The API key that decided.
	At     Time   `json:"at"`
	Reason string `json:"reason,omitempty"` // Why it was refused.
}

// A Refusal refuses a run or a call.
type Refusal struct {
	Reason string `json:"reason,omitempty" schema:"maxLength=1000"`
}

// A ToolCall is one call of a tool by code in a container. Secrets of the container are replaced in all fields.
type ToolCall struct {
	ID          string          `json:"id"`
	ContainerID string          `json:"container_id"`
	ExecID      string          `json:"exec_id"`
	Tool        string          `json:"tool"`
	State       ToolCallState   `json:"state"`
	Input       json.RawMessage `json:"input,omitempty"` // Of a call that needs approval.
	InputBytes  int64           `json:"input_bytes"`
	ResultBytes int64           `json:"result_bytes"`
	Error       *CallError      `json:"error,omitempty"`
	CreatedAt   Time            `json:"created_at"`
	StartedAt   *Time           `json:"started_at,omitempty"` // When the provider could have received it.
	EndedAt     *Time           `json:"ended_at,omitempty"`
	// Until when a call that waits for approval can be approved.
	ExpiresAt *Time     `json:"expires_at,omitempty"`
	Decision  *Decision `json:"decision,omitempty"`
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

package proto

import "encoding/json"

// An Approval is something that waits for a person's decision, or that a person has decided about.
type Approval struct {
	ID          string       `json:"id"`
	Kind        ApprovalKind `json:"kind"`
	ContainerID string       `json:"container_id,omitempty"` // A run may have none.
	ExecID      string       `json:"exec_id,omitempty"`      // Of a call: the command whose code makes it.
	// Host and port of a connection, or the name of the tool.
	Item  string          `json:"item"`
	Input json.RawMessage `json:"input,omitempty"` // Of a call or a run.
	State ApprovalState   `json:"state"`
	// How many connections wait for the decision.
	Connections int   `json:"connections,omitempty"`
	CreatedAt   Time  `json:"created_at"`
	ExpiresAt   *Time `json:"expires_at,omitempty"` // Until when it can be decided.
	// Of a decided connection: once or life.
	For      ApprovalScope `json:"for,omitempty" schema:"enum=|once|life"`
	Decision *Decision     `json:"decision,omitempty"`
}

// An ApprovalKind says what waits for a decision.
type ApprovalKind string

// The kinds of approvals.
const (
	ApprovalNetwork  ApprovalKind = "network"   // connections of a container to a host
	ApprovalToolCall ApprovalKind = "tool_call" // a call of a tool by code in a container
	ApprovalToolRun  ApprovalKind = "tool_run"  // a run of a stored tool
)

// ApprovalKinds lists all kinds of approvals.
var ApprovalKinds = []ApprovalKind{ApprovalNetwork, ApprovalToolCall, ApprovalToolRun}

// An ApprovalState is the state of an approval.
type ApprovalState string

// States of an approval.
const (
	ApprovalParked   ApprovalState = "parked" // waits for a decision
	ApprovalApproved ApprovalState = "approved"
	ApprovalRefused  ApprovalState = "refused"
	ApprovalExpired  ApprovalState = "expired"  // nobody decided in time
	ApprovalCanceled ApprovalState = "canceled" // what waited has gone
)

// ApprovalStates lists all states of an approval.
var ApprovalStates = []ApprovalState{ApprovalParked, ApprovalApproved, ApprovalRefused, ApprovalExpired,
	ApprovalCanceled}

// An ApprovalScope says how long a decision about connections counts.
type ApprovalScope string

// The scopes.
const (
	// for the connections that wait, and for others to the same host and port until the commands have ended that ran
	// at the time of the decision
	ScopeOnce ApprovalScope = "once"
	ScopeLife ApprovalScope = "life" // it becomes an entry of the container's network, in allow or deny
)

// An Approving approves.
type Approving struct {
	// Of connections: once (default) or life.
	For ApprovalScope `json:"for,omitempty" schema:"enum=|once|life"`
}

// A Refusing refuses.
type Refusing struct {
	// Of connections: once (default) or life.
	For ApprovalScope `json:"for,omitempty" schema:"enum=|once|life"`
	// Why, for the program and the audit log.
	Reason string `json:"reason,omitempty" schema:"maxLength=1000"`
}

package gateway

import (
	"context"
	"encoding/json"
	"errors"

	"berth/proto"
)

// A Conversation is one turn in the dialect of its client. It translates the history for the upstream, the answers of
// the upstream for the client, and calls and results for both. Only one goroutine at a time may use it.
type Conversation interface {
	// Open translates the history of the request. It returns the calls that the turn must run before it asks the
	// upstream: unfinished calls of an earlier answer, and calls in Answer without a result.
	Open(Opening) ([]Call, error)

	// Ask requests one answer from the upstream. It forwards the answer to the client while it comes, and adds it to
	// Answer.
	Ask(ctx context.Context) (Round, error)

	// Add adds the result of a call to the history and to Answer, and sends it to the client.
	Add(Call, *Result) error

	// Finish sets Answer.Final.
	Finish(Ending)

	// Deliver sends the client the parts of Answer that it has not received, without the end.
	Deliver() error

	// End sends the end of Answer, for which Final is set. Without it, a client does not take the answer for whole.
	End() error
}

// An Attach connects a turn to the client of a request. earlier is the conversation of an earlier request of the same
// turn, or nil. answer is the turn's answer and stays valid as long as the turn exists. detach disconnects the
// client.
type Attach func(earlier Conversation, answer *Answer) (c Conversation, detach func())

// An Answer is what a turn has answered so far, in the dialect. The journal stores it unchanged.
type Answer struct {
	Head    json.RawMessage   // beginning of the answer; nil: it has not begun
	Content []json.RawMessage // blocks so far
	Usage   json.RawMessage   // sum of all rounds
	Final   json.RawMessage   // complete answer; nil: the turn is not over
}

// An Opening holds what Conversation.Open needs.
type Opening struct {
	Paths  map[string]string // paths of the request's files in the container, by file ID
	Skills []Skill           // mounted in the container
}

// A Skill is a skill in a container.
type Skill struct {
	Name        string // name of its directory
	Description string
}

// A Round is one answer of the upstream.
type Round struct {
	Calls []Call // to run before the next round
	Done  bool   // the model has finished, or waits for the client
}

// An Ending describes how a turn ends.
type Ending struct {
	Reason    Reason
	Container *proto.ContainerRef // nil: the turn needed none
	Skills    json.RawMessage     // mounted in the container; nil: none
}

// A Reason is the reason for the end of a turn.
type Reason int

// Reasons for the end of a turn.
const (
	Completed    Reason = iota // the last round ended the turn
	Paused                     // time or rounds are used up; the client continues the turn with another request
	ClientCalled               // code waits for client tools
)

// ErrClientGone means that the client cannot be told anything, because it has disconnected.
var ErrClientGone = errors.New("the client has disconnected")

// A Tool is the kind of tool that a call runs.
type Tool string

// Kinds of tools.
const (
	Bash    Tool = "bash"    // a new bash process; input: command
	Editor  Tool = "editor"  // the text editor; input: command, path and the command's parameters
	Python  Tool = "python"  // an interpreter that keeps its variables; input: code
	Program Tool = "program" // a new Python interpreter; input: code
)

// A Call is a tool call by the model.
type Call struct {
	ID    string // as the client sees it
	Tool  Tool
	Input json.RawMessage
	Key   string       // idempotency key of a call from an earlier answer; "": the turn makes one
	Tools *ClientTools // client tools that the code may call; nil: none
}

// ClientTools are client tools that code may call.
type ClientTools struct {
	Tools   []ClientTool
	NewID   func() string           // returns a new call ID for the client
	Resumed bool                    // the code called tools in an earlier turn and waits for Answers
	Answers map[string]ClientAnswer // by call ID
}

// MaxClientTools is the maximum number of client tools that code may call.
const MaxClientTools = 128

// A ClientTool is a tool that the client runs.
type ClientTool struct {
	Name        string
	Description string
	InputSchema json.RawMessage
}

// A ClientCall is a call of a client tool by code.
type ClientCall struct {
	ID    string // made by NewID
	Tool  string
	Input json.RawMessage
}

// A ClientAnswer is the client's answer to a call.
type ClientAnswer struct {
	Text   string
	Failed bool
}

// A Result is the result of a call. Exactly one field is set, and perhaps Notes.
type Result struct {
	Content any          // answer of Bash or Editor, such as a proto.BashResult
	Code    *CodeResult  // result of Python or Program
	Waiting []ClientCall // the code waits for answers to these calls
	Err     error        // the call could not run, or its outcome is unknown
	Notes   []string     // tell the model and the client something about Content or Code
}

// A CodeResult is the result of running code.
type CodeResult struct {
	Stdout, Stderr string
	ReturnCode     int
	Files          []string // IDs of the stored files that the code has created
}

// Files finds stored files.
type Files interface {
	Get(ctx context.Context, owner, id string) (proto.StoredFile, error)
}

// Containers finds and creates containers.
type Containers interface {
	// ResolveSkills finds skills before a container is created for them.
	ResolveSkills(ctx context.Context, owner string, refs []proto.SkillRef) ([]Skill, error)
	// Find returns a container. If the container has expired, Find returns it together with an error.
	Find(owner, id string) (Container, error)
	Create(ctx context.Context, owner string, asked proto.Confinement) (Container, error)
}

// A Container runs calls.
type Container interface {
	Ref() proto.ContainerRef
	Confinement() proto.Confinement // does not change
	// MountSkills mounts skills. It returns the references with their versions resolved.
	MountSkills(ctx context.Context, refs []proto.SkillRef) ([]proto.SkillRef, error)
	// PutFiles puts stored files into the input directory. It returns the paths of all files there, by ID.
	PutFiles(ctx context.Context, ids []string) (paths map[string]string, err error)
	// Run runs a call. A nil Result means that the call was left unfinished, because ctx has ended or the daemon is
	// about to end. Its command may then go on: another Run with the same Key gets the result.
	Run(ctx context.Context, r Run) (*Result, error)
	Delete(ctx context.Context) error
}

// A Run is a call with the options for running it.
type Run struct {
	Call
	Output   func(Output) error // receives the output of the call; nil: none is wanted
	Draining <-chan struct{}    // closed when the daemon is about to end; nil: never
}

// A Refusal is an error with its own code for clients.
type Refusal struct {
	Code string // such as "container_not_found" or "container_expired"
	Err  *proto.Error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the proto.Error, which decides the status.
func (r *Refusal) Unwrap() error { return r.Err }

// An Interruption is the failure of a turn that has done work. A retry by the client as a new turn would do that work
// again. The results of the work are in Container, if there is one.
type Interruption struct {
	Container *proto.ContainerRef
	Status    int    // the upstream's status; 0: the status of Err
	Kind      string // the upstream's error type; "": the type for the status
	Code      string // the upstream's error code, if it has one
	Err       *proto.Error
}

func (i *Interruption) Error() string { return "a turn was interrupted: " + i.Err.Error() }

// Unwrap returns the proto.Error.
func (i *Interruption) Unwrap() error { return i.Err }

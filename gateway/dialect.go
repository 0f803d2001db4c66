package gateway

import (
	"context"
	"encoding/json"
	"errors"

	"berth/proto"
)

// A Conversation is one turn in the dialect of its client. It translates the history for the upstream, the answers of
// the upstream for the client, and calls and results for both. One goroutine at a time uses it.
type Conversation interface {
	// Open translates the history of the request. It returns the calls that the turn has to run before it asks the
	// upstream: those that an earlier answer left, and those of Answer that have no result.
	Open(Opening) ([]Call, error)

	// Ask has the upstream answer once, gives the answer to the client while it comes, and adds it to Answer. It
	// returns ErrAnswered if the client already has the upstream's own answer.
	Ask(ctx context.Context) (Round, error)

	// Add adds the result of a call to the history and to Answer, and gives it to the client.
	Add(Call, *Result) error

	// Finish sets Answer.Final.
	Finish(Ending)

	// Deliver gives the client what it has not received: earlier parts of Answer, and the end if there is a Final.
	Deliver() error
}

// An Attach connects a turn to the client of a request. earlier is the conversation that an earlier request of the
// same turn has left, or nil; answer is the turn's for as long as it exists. detach disconnects the client.
type Attach func(earlier Conversation, answer *Answer) (c Conversation, detach func())

// An Answer is what a turn has answered so far, in the dialect. The journal stores it as it is.
type Answer struct {
	Head    json.RawMessage   // how the answer begins; nil: it has not begun
	Content []json.RawMessage // its blocks so far
	Usage   json.RawMessage   // of all rounds
	Final   json.RawMessage   // the whole answer; nil: the turn is not over
}

// An Opening is what a conversation begins with.
type Opening struct {
	Paths  map[string]string // in the container, of the files of the request by ID
	Skills []Skill           // that are mounted in the container
}

// A Skill is a skill that a container has.
type Skill struct {
	Name        string // of its directory
	Description string
}

// A Round is one answer of the upstream.
type Round struct {
	Calls []Call // to be run before the next round
	Done  bool   // the model has finished, or waits for its client
}

// An Ending says how a turn ends.
type Ending struct {
	Reason    Reason
	Container *proto.ContainerRef // nil: the turn needed none
	Skills    json.RawMessage     // mounted in the container; nil: none
}

// A Reason is why a turn ends.
type Reason int

// The reasons.
const (
	Completed    Reason = iota // the last round ended it
	Paused                     // it has run long enough; the client continues it with another request
	ClientCalled               // code waits for tools of the client's
)

// ErrAnswered says that the client has its answer: the upstream's own.
var ErrAnswered = errors.New("answered by the upstream")

// A Tool is what a call runs.
type Tool string

// The tools.
const (
	Bash    Tool = "bash"    // a fresh bash; input: command
	Editor  Tool = "editor"  // the text editor; input: command, path and what the command needs
	Python  Tool = "python"  // an interpreter that keeps its variables; input: code
	Program Tool = "program" // a fresh Python interpreter; input: code
)

// A Call is one call of a tool by the model.
type Call struct {
	ID    string // as the client sees it
	Tool  Tool
	Input json.RawMessage
	Key   string       // idempotency key of a call that an earlier answer made; "": this turn makes one
	Tools *ClientTools // that the code may call; nil: none
}

// ClientTools are tools of the client's that code may call.
type ClientTools struct {
	Tools   []ClientTool
	NewID   func() string           // makes the ID of a call as the client sees it
	Resumed bool                    // the code has called tools in an earlier turn and waits for Answers
	Answers map[string]ClientAnswer // by the IDs of the calls
}

// MaxClientTools is how many tools of the client code may call.
const MaxClientTools = 128

// A ClientTool is a tool of the client's.
type ClientTool struct {
	Name        string
	Description string
	InputSchema json.RawMessage
}

// A ClientCall is a call by code of a tool of the client's.
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

// A Result is the result of a call. One of its fields is set.
type Result struct {
	Content any          // what Bash or Editor answered, such as a proto.BashResult
	Code    *CodeResult  // of Python or Program
	Waiting []ClientCall // the code waits for answers to these calls
	Err     error        // the call could not run, or its end is not known
}

// A CodeResult is the result of code.
type CodeResult struct {
	Stdout, Stderr string
	ReturnCode     int
	Files          []string // IDs of the stored files that the code has made
}

// Files finds stored files.
type Files interface {
	Get(ctx context.Context, owner, id string) (proto.StoredFile, error)
}

// Containers finds and creates containers.
type Containers interface {
	// ResolveSkills finds skills before a container is created for them.
	ResolveSkills(ctx context.Context, owner string, refs []proto.SkillRef) ([]Skill, error)
	// Find returns a container. One that has expired is returned too, beside an error.
	Find(owner, id string) (Container, error)
	Create(ctx context.Context, owner string) (Container, error)
}

// A Container runs calls.
type Container interface {
	Ref() proto.ContainerRef
	// MountSkills mounts skills and returns the references with the versions that they stand for.
	MountSkills(ctx context.Context, refs []proto.SkillRef) ([]proto.SkillRef, error)
	// PutFiles puts stored files into the input directory. It returns the paths of all files there, by ID.
	PutFiles(ctx context.Context, ids []string) (paths map[string]string, err error)
	// Run runs a call. A nil Result means that the call was left as it is, since ctx has ended or the daemon is about to.
	Run(ctx context.Context, r Run) (*Result, error)
	Delete(ctx context.Context) error
}

// A Run is a call to be run.
type Run struct {
	Call
	Output   func(Output) error // receives what the call writes; nil: nothing does
	Draining <-chan struct{}    // closed when the daemon is about to end; nil: never
}

package proto

// An EventType says what an Event tells.
type EventType string

// The events that a watcher of a container receives.
const (
	EventStart  EventType = "start"  // an exec started; Exec is set
	EventStdout EventType = "stdout" // output; Offset and Data or DataBase64 are set
	EventStderr EventType = "stderr"
	// output from Offset to Until of Stream is no longer kept; the watcher was too slow or too late
	EventGap   EventType = "gap"
	EventExit  EventType = "exit"  // an exec ended; Result is set and equals the answer of the request
	EventError EventType = "error" // a request on this connection failed; Error is set
	EventReady EventType = "ready" // the connection is set up; Container is set
	// the connection does not follow the exec any more, as it asked
	EventDetached EventType = "detached"
)

// An Event is one message of a live stream, over websocket or server-sent events.
//
// Output is text in Data where the bytes are UTF-8 (a character is never split between
// two events) and DataBase64 where they are not, so that nothing is lost. Offset counts bytes of
// that stream from the start of the exec.
type Event struct {
	Type EventType `json:"type"`
	// The ref of the message that this answers, on the first answer.
	Ref    string `json:"ref,omitempty"`
	ExecID string `json:"exec_id,omitempty"`
	Stream string `json:"stream,omitempty"` // For a gap: stdout or stderr.
	// Where the output begins, in bytes from the start of the stream; for a gap, where the gap begins. 0 is left out.
	Offset int64 `json:"offset,omitempty"`
	Until  int64 `json:"until,omitempty"` // Where a gap ends.
	// Output that is UTF-8. A character is never split.
	Data       string `json:"data,omitempty"`
	DataBase64 []byte `json:"data_base64,omitempty"` // Output that is not UTF-8.
	Exec       *Exec  `json:"exec,omitempty"`
	// For an exit: what the HTTP request would have answered.
	Result    *ExecResult   `json:"result,omitempty"`
	Container *ContainerRef `json:"container,omitempty"`
	Error     *Error        `json:"error,omitempty"`
}

package live

import (
	"slices"
	"strings"

	"berth/api/strictjson"
	"berth/proto"
)

// Types of messages of a client on the live websocket.
const (
	TypeExec   = "exec"   // run Cmd
	TypeAttach = "attach" // follow ExecID from the offsets on
	TypeStdin  = "stdin"  // write Data or DataBase64 to ExecID; with Close, then close its standard input
	TypeSignal = "signal" // send Signal to ExecID
	TypeResize = "resize" // set the size of the terminal of ExecID
	TypeWatch  = "watch"  // follow commands of others
	TypeDetach = "detach" // stop to follow ExecID, which goes on
)

// One message of a client on the live websocket. Its type decides which fields it may have.
type Message struct {
	// exec, attach, detach, stdin, signal, resize or watch.
	Type string `json:"type"`
	// Chosen by the client, at most 128 bytes; it comes back with the first answer.
	Ref string     `json:"ref,omitempty" schema:"maxLength=128"`
	Cmd *proto.Cmd `json:"cmd,omitempty"` // For exec.
	// For exec and attach: output comes in binary messages, which costs least for large output.
	Binary bool `json:"binary,omitempty"`
	// For all but exec and watch: the ID of a command, or the process ID of a running one.
	ExecID       string `json:"exec_id,omitempty"`
	StdoutOffset int64  `json:"stdout_offset,omitempty"` // For attach: bytes that the client has.
	StderrOffset int64  `json:"stderr_offset,omitempty"`
	// For attach, in place of offsets: begin with this much of each stream before its end, as for a screen.
	TailBytes  int64  `json:"tail_bytes,omitempty" schema:"min=0 max=16777216"`
	Data       string `json:"data,omitempty"`
	DataBase64 []byte `json:"data_base64,omitempty"`
	Close      bool   `json:"close,omitempty"` // For stdin: close standard input afterwards.
	Signal     string `json:"signal,omitempty"`
	Rows       uint16 `json:"rows,omitempty" schema:"max=65535"`
	Cols       uint16 `json:"cols,omitempty" schema:"max=65535"`
}

// maxRef bounds a ref, in bytes; maxTail is the most that a command keeps of a stream.
const (
	maxRef  = 128
	maxTail = 16 << 20
)

// decodeMessage reads one message. With an error it also returns what could be read, so that the answer can have the
// ref.
func decodeMessage(data []byte) (Message, error) {
	var m Message
	err := strictjson.DecodeBytes(data, &m)
	if len(m.Ref) > maxRef {
		m.Ref = ""
		err = proto.Invalid("ref", "ref has more than %d bytes.", maxRef)
	}
	if err != nil {
		return m, err
	}
	return m, m.check()
}

// messageTypes are the fields of each type of message, besides type and ref: those that it needs, and those that it
// may have.
var messageTypes = map[string]struct{ needs, may []string }{
	TypeExec:   {[]string{"cmd"}, []string{"binary"}}, // the core checks the command, as over HTTP
	TypeAttach: {[]string{"exec_id"}, []string{"stdout_offset", "stderr_offset", "tail_bytes", "binary"}},
	TypeStdin:  {[]string{"exec_id"}, []string{"data", "data_base64", "close"}},
	TypeSignal: {[]string{"exec_id", "signal"}, nil},
	TypeResize: {[]string{"exec_id", "rows", "cols"}, nil},
	TypeWatch:  {},
	TypeDetach: {[]string{"exec_id"}, nil},
}

// check refuses a message that lacks fields of its type or has fields of other types. Those are not ignored: a client
// that sets one expects an effect.
func (m Message) check() error {
	fields, known := messageTypes[m.Type]
	switch {
	case !known:
		return proto.Invalid("type", "type %.40q is not known; it is exec, attach, detach, stdin, signal, resize "+
			"or watch.",
			m.Type)
	case m.Type == TypeAttach && (m.StdoutOffset < 0 || m.StderrOffset < 0):
		return proto.Invalid("stdout_offset", "Offsets count from 0.")
	case m.TailBytes < 0 || m.TailBytes > maxTail:
		return proto.Invalid("tail_bytes", "tail_bytes must be from 0 to %d.", maxTail)
	case m.TailBytes > 0 && (m.StdoutOffset > 0 || m.StderrOffset > 0):
		return proto.Invalid("tail_bytes", "tail_bytes and offsets exclude each other.")
	case m.Type == TypeStdin && m.Data != "" && len(m.DataBase64) > 0:
		return proto.Invalid("data", "data and data_base64 exclude each other.")
	}
	given := m.given()
	for _, name := range fields.needs {
		if !slices.Contains(given, name) {
			needs := strings.Join(fields.needs, ", ")
			return proto.Invalid(needs, "A message of type %s needs %s.", m.Type, needs)
		}
	}
	for _, name := range given {
		if !slices.Contains(fields.needs, name) && !slices.Contains(fields.may, name) {
			return proto.Invalid(name, "A message of type %s has no %s.", m.Type, name)
		}
	}
	return nil
}

// given returns the names of the fields that are set, besides type and ref.
func (m Message) given() (names []string) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"cmd", m.Cmd != nil}, {"binary", m.Binary}, {"exec_id", m.ExecID != ""},
		{"stdout_offset", m.StdoutOffset != 0}, {"stderr_offset", m.StderrOffset != 0},
		{"tail_bytes", m.TailBytes != 0},
		{"data", m.Data != ""}, {"data_base64", len(m.DataBase64) > 0}, {"close", m.Close},
		{"signal", m.Signal != ""}, {"rows", m.Rows != 0}, {"cols", m.Cols != 0},
	} {
		if f.set {
			names = append(names, f.name)
		}
	}
	return names
}

// input returns the bytes of a stdin message.
func (m Message) input() []byte {
	if m.Data != "" {
		return []byte(m.Data)
	}
	return m.DataBase64
}

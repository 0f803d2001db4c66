package native

import (
	"berth/api"
	"berth/proto"
)

// Messages of a client on the live websocket.
const (
	msgExec   = "exec"   // run Cmd
	msgAttach = "attach" // follow ExecID from the offsets on
	msgStdin  = "stdin"  // write Data or DataBase64 to ExecID; with Close, then close its standard input
	msgSignal = "signal" // send Signal to ExecID
	msgResize = "resize" // set the size of the terminal of ExecID
	msgWatch  = "watch"  // follow commands of others
)

// One message of a client on the live websocket. Its type decides which fields it may have.
type message struct {
	// exec, attach, stdin, signal, resize or watch.
	Type string `json:"type"`
	// Chosen by the client, at most 128 bytes; it comes back with the first answer.
	Ref string     `json:"ref,omitempty" schema:"maxLength=128"`
	Cmd *proto.Cmd `json:"cmd,omitempty"` // For exec.
	// For exec and attach: output comes in binary messages, which costs least for large output.
	Binary       bool   `json:"binary,omitempty"`
	ExecID       string `json:"exec_id,omitempty"`       // For attach, stdin, signal and resize.
	StdoutOffset int64  `json:"stdout_offset,omitempty"` // For attach: bytes that the client has.
	StderrOffset int64  `json:"stderr_offset,omitempty"`
	Data         string `json:"data,omitempty"`
	DataBase64   []byte `json:"data_base64,omitempty"`
	Close        bool   `json:"close,omitempty"` // For stdin: close standard input afterwards.
	Signal       string `json:"signal,omitempty"`
	Rows         uint16 `json:"rows,omitempty" schema:"max=65535"`
	Cols         uint16 `json:"cols,omitempty" schema:"max=65535"`
}

// maxRef bounds a ref, in bytes.
const maxRef = 128

// decodeMessage reads one message. With an error it also returns what could be read, so that the answer can have the
// ref.
func decodeMessage(data []byte) (message, error) {
	var m message
	err := api.DecodeBytes(data, &m)
	if len(m.Ref) > maxRef {
		m.Ref = ""
		err = invalid("ref", "ref has more than %d bytes.", maxRef)
	}
	if err != nil {
		return m, err
	}
	return m, m.check()
}

func (m message) check() error {
	switch m.Type {
	case msgExec:
		// The core checks the command, as over HTTP.
		return m.checkFields(m.Cmd != nil, "cmd", message{Cmd: m.Cmd, Binary: m.Binary})
	case msgAttach:
		if m.StdoutOffset < 0 || m.StderrOffset < 0 {
			return invalid("stdout_offset", "Offsets count from 0.")
		}
		return m.checkFields(m.ExecID != "", "exec_id", message{ExecID: m.ExecID, StdoutOffset: m.StdoutOffset,
			StderrOffset: m.StderrOffset, Binary: m.Binary})
	case msgStdin:
		if m.Data != "" && len(m.DataBase64) > 0 {
			return invalid("data", "data and data_base64 exclude each other.")
		}
		return m.checkFields(m.ExecID != "", "exec_id", message{ExecID: m.ExecID, Data: m.Data,
			DataBase64: m.DataBase64,
			Close:      m.Close})
	case msgSignal:
		return m.checkFields(m.ExecID != "" && m.Signal != "", "exec_id and signal", message{ExecID: m.ExecID,
			Signal: m.Signal})
	case msgResize:
		return m.checkFields(m.ExecID != "" && m.Rows > 0 && m.Cols > 0, "exec_id, rows and cols",
			message{ExecID: m.ExecID,
				Rows: m.Rows, Cols: m.Cols})
	case msgWatch:
		return m.checkFields(true, "", message{})
	}
	return invalid("type", "type %.40q is not known; it is exec, attach, stdin, signal, resize or watch.", m.Type)
}

// checkFields refuses a message that lacks fields of its type or has fields of other types. allowed holds the values
// of the fields that the type has.
func (m message) checkFields(complete bool, needs string, allowed message) error {
	if !complete {
		return invalid(needs, "A message of type %s needs %s.", m.Type, needs)
	}
	// Fields of other types are not ignored: a client that sets one expects an effect.
	allowed.Type, allowed.Ref = m.Type, m.Ref
	if extra := m.extraField(allowed); extra != "" {
		return invalid(extra, "A message of type %s has no %s.", m.Type, extra)
	}
	return nil
}

// extraField names the first field that only m has.
func (m message) extraField(allowed message) string {
	// A list instead of reflection: structs with slices cannot be compared.
	for _, f := range []struct {
		name string
		more bool
	}{
		{"cmd", m.Cmd != nil && allowed.Cmd == nil},
		{"binary", m.Binary != allowed.Binary},
		{"exec_id", m.ExecID != allowed.ExecID},
		{"stdout_offset", m.StdoutOffset != allowed.StdoutOffset},
		{"stderr_offset", m.StderrOffset != allowed.StderrOffset},
		{"data", m.Data != allowed.Data},
		{"data_base64", len(m.DataBase64) != len(allowed.DataBase64)},
		{"close", m.Close != allowed.Close},
		{"signal", m.Signal != allowed.Signal},
		{"rows", m.Rows != allowed.Rows},
		{"cols", m.Cols != allowed.Cols},
	} {
		if f.more {
			return f.name
		}
	}
	return ""
}

// input returns the bytes of a stdin message.
func (m message) input() []byte {
	if m.Data != "" {
		return []byte(m.Data)
	}
	return m.DataBase64
}

package proto

import (
	"encoding/binary"
	"errors"
)

// Output in a binary message of the live websocket: the stream (1 byte: 1 is stdout, 2 stderr), the length of the
// exec's ID (1 byte), that ID, the offset in the stream (8 bytes, the most significant first), and the bytes.

var errBinary = errors.New("malformed binary message")

// AppendOutput appends a binary message to b. The ID has at most 255 bytes.
func AppendOutput(b []byte, exec string, s Stream, offset int64, data []byte) []byte {
	b = append(append(b, byte(s), byte(len(exec))), exec...)
	return append(binary.BigEndian.AppendUint64(b, uint64(offset)), data...)
}

// ParseOutput reads a binary message as the event that it stands for, with the bytes, which are a part of b, in
// DataBase64.
func ParseOutput(b []byte) (Event, error) {
	if len(b) < 2 || len(b) < 2+int(b[1])+8 || Stream(b[0]) != Stdout && Stream(b[0]) != Stderr {
		return Event{}, errBinary
	}
	id, rest := b[2:2+int(b[1])], b[2+int(b[1]):]
	offset := int64(binary.BigEndian.Uint64(rest))
	if offset < 0 {
		return Event{}, errBinary
	}
	return Event{Type: EventType(Stream(b[0]).String()), ExecID: string(id), Offset: offset, DataBase64: rest[8:]}, nil
}

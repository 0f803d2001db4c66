package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxFrame is the largest payload of one frame, in bytes, in either direction.
const MaxFrame = 256 << 10

// MaxRequest bounds a whole request, such as a text for bash or a file that the editor creates. Larger content must
// use Write.
const MaxRequest = 32 << 20

// HeaderBytes is the length of a frame's header.
const HeaderBytes = 5

// FrameKind is the first byte of a frame.
type FrameKind byte

// Frames of both directions, then the guest's frames, then the daemon's.
const (
	FramePart  FrameKind = 'c' // a part of the message that a later frame ends
	FrameBody  FrameKind = 'B' // bytes of a file or archive
	FrameClose FrameKind = 'Z' // the body is complete

	FrameReply   FrameKind = 'R' // JSON answer
	FrameError   FrameKind = 'X' // proto.Error
	FrameStarted FrameKind = 'S' // the command runs
	FrameStdout  FrameKind = 'O'
	FrameStderr  FrameKind = 'E'
	FrameCredit  FrameKind = 'F' // bytes of stdin that were taken, 4 bytes
	FrameAck     FrameKind = 'A' // control number (4 bytes) that was handled; then nothing, or a proto.Error
	FrameKept    FrameKind = 'P' // output of a kept command: stream (1 byte), offset (8 bytes), data
	FrameDone    FrameKind = 'D' // the command ended and all its output was sent
	FramePong    FrameKind = 'J' // answer to FramePing: Hello.Boot

	FrameRequest FrameKind = 'Q'
	FramePing    FrameKind = 'H' // asks whether the guest is alive and is the same guest
	FrameStdin   FrameKind = 'I'
	FrameEOF     FrameKind = 'C' // no more stdin
	FrameSignal  FrameKind = 'G' // control number, signal number (4 bytes each)
	FrameKill    FrameKind = 'K' // control number
	FrameResize  FrameKind = 'W' // control number, rows, columns (4 bytes each)
	FrameDrained FrameKind = 'Y' // the daemon has read what it needs from the pipes
	FrameGiveUp  FrameKind = 'U' // end the command with the connection, although it is kept
)

// KeptHeaderBytes is the length of the header before the data of FrameKept.
const KeptHeaderBytes = 9

var ErrFrame = errors.New("malformed frame")

// PutHeader writes the header of a frame of n bytes to h.
func PutHeader(h *[HeaderBytes]byte, kind FrameKind, n int) {
	h[0] = byte(kind)
	binary.BigEndian.PutUint32(h[1:], uint32(n))
}

// ReadFrame reads one frame into buf and grows buf if needed, up to MaxFrame. The payload is valid until the next
// call with the same buf.
func ReadFrame(r io.Reader, buf []byte) (FrameKind, []byte, error) {
	kind, n, err := ReadHeader(r)
	if err != nil {
		return 0, buf[:0], err
	}
	if n > cap(buf) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return 0, buf[:0], UnexpectedEOF(err)
	}
	return kind, buf, nil
}

// ReadHeader reads a frame's header and returns the kind and the length of the payload.
func ReadHeader(r io.Reader) (FrameKind, int, error) {
	var h [HeaderBytes]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, 0, err
	}
	n := binary.BigEndian.Uint32(h[1:])
	if n > MaxFrame {
		return 0, 0, fmt.Errorf("%w: %d bytes announced", ErrFrame, n)
	}
	return FrameKind(h[0]), int(n), nil
}

// readMessage reads one frame and the parts before it, at most limit bytes in total. Frames that are not parts are
// returned unchanged.
func readMessage(next func() (FrameKind, []byte, error), limit int) (FrameKind, []byte, error) {
	var whole []byte
	for {
		kind, body, err := next()
		if err != nil {
			return 0, nil, err
		}
		if len(whole)+len(body) > limit {
			return 0, nil, fmt.Errorf("%w: message over %d bytes", ErrFrame, limit)
		}
		if kind != FramePart {
			if whole == nil {
				return kind, body, nil
			}
			return kind, append(whole, body...), nil
		}
		if len(body) == 0 {
			// otherwise a peer could keep this loop running forever
			return 0, nil, fmt.Errorf("%w: empty part", ErrFrame)
		}
		whole = append(whole, body...)
	}
}

// Decode decodes JSON that must not be empty.
func Decode(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %v", ErrFrame, err)
	}
	return nil
}

// DecodeNumbers reads n 4-byte numbers off the front of b.
func DecodeNumbers(b []byte, n int) ([]uint32, []byte, error) {
	if len(b) < 4*n {
		return nil, nil, fmt.Errorf("%w: %d bytes are too few", ErrFrame, len(b))
	}
	v := make([]uint32, n)
	_, err := binary.Decode(b, binary.BigEndian, v)
	return v, b[4*n:], err
}

// EncodeNumbers is the reverse of DecodeNumbers.
func EncodeNumbers(v ...uint32) []byte {
	b, _ := binary.Append(nil, binary.BigEndian, v) // numbers have a fixed size
	return b
}

// UnexpectedEOF turns io.EOF in the middle of a message into io.ErrUnexpectedEOF.
func UnexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

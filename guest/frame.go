package guest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxFrame is the largest payload of one frame, in bytes, in either direction.
const MaxFrame = 256 << 10

// maxRequest bounds a whole request: a text for bash, a file for the editor to
// create. Whatever is larger belongs into Write.
const maxRequest = 32 << 20

// headerBytes is the length of what stands before a frame's payload.
const headerBytes = 5

// A frameKind is the first byte of a frame.
type frameKind byte

// Frames of both directions, then the guest's, then the daemon's.
const (
	framePart  frameKind = 'c' // a piece of what the next frame ends
	frameBody  frameKind = 'B' // bytes of a file or archive
	frameClose frameKind = 'Z' // the body is complete

	frameReply   frameKind = 'R' // JSON answer
	frameError   frameKind = 'X' // proto.Error
	frameStarted frameKind = 'S' // the command runs
	frameStdout  frameKind = 'O'
	frameStderr  frameKind = 'E'
	frameCredit  frameKind = 'F' // that many bytes of stdin were taken, 4 bytes
	frameAck     frameKind = 'A' // control number (4 bytes) was done; then nothing, or a proto.Error
	frameKept    frameKind = 'P' // output of a command that is kept: stream (1 byte), offset (8 bytes), data
	frameDone    frameKind = 'D' // the command ended and all its output was sent
	frameHere    frameKind = 'J' // answer to frameAsk: Hello.Boot

	frameRequest frameKind = 'Q'
	frameAsk     frameKind = 'H' // whether it is there, and the one that it was
	frameStdin   frameKind = 'I'
	frameEOF     frameKind = 'C' // no more stdin
	frameSignal  frameKind = 'G' // control number, signal number (4 bytes each)
	frameKill    frameKind = 'K' // control number
	frameResize  frameKind = 'W' // control number, rows, columns (4 bytes each)
	frameDrained frameKind = 'Y' // the daemon has read what it wants of the pipes
	frameGiveUp  frameKind = 'U' // the command is to end with the connection, although it is kept
)

// keptHeader is the length of what stands before the data of frameKept.
const keptHeader = 9

var errFrame = errors.New("malformed frame")

// putHeader writes the header of a frame of n bytes to h.
func putHeader(h *[headerBytes]byte, kind frameKind, n int) {
	h[0] = byte(kind)
	binary.BigEndian.PutUint32(h[1:], uint32(n))
}

// readFrame reads one frame into buf, which it grows where needed but never past
// MaxFrame. The payload is valid until the next call with the same buf.
func readFrame(r io.Reader, buf []byte) (frameKind, []byte, error) {
	kind, n, err := readHeader(r)
	if err != nil {
		return 0, buf[:0], err
	}
	if n > cap(buf) {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return 0, buf[:0], noEOF(err)
	}
	return kind, buf, nil
}

// readHeader reads what stands before a frame's payload, and so how long that is.
func readHeader(r io.Reader) (frameKind, int, error) {
	var h [headerBytes]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, 0, err
	}
	n := binary.BigEndian.Uint32(h[1:])
	if n > MaxFrame {
		return 0, 0, fmt.Errorf("%w: %d bytes announced", errFrame, n)
	}
	return frameKind(h[0]), int(n), nil
}

// readMessage reads one frame and the parts before it, limit bytes at most in all.
// Frames that are not parts are returned as they are.
func readMessage(next func() (frameKind, []byte, error), limit int) (frameKind, []byte, error) {
	var whole []byte
	for {
		kind, body, err := next()
		if err != nil {
			return 0, nil, err
		}
		if len(whole)+len(body) > limit {
			return 0, nil, fmt.Errorf("%w: message over %d bytes", errFrame, limit)
		}
		if kind != framePart {
			if whole == nil {
				return kind, body, nil
			}
			return kind, append(whole, body...), nil
		}
		if len(body) == 0 {
			return 0, nil, fmt.Errorf("%w: empty part", errFrame) // else a peer could keep us here for ever
		}
		whole = append(whole, body...)
	}
}

// decode reads JSON that must be there.
func decode(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %v", errFrame, err)
	}
	return nil
}

// numbers reads n 4-byte numbers off the front of b.
func numbers(b []byte, n int) ([]uint32, []byte, error) {
	if len(b) < 4*n {
		return nil, nil, fmt.Errorf("%w: %d bytes are too few", errFrame, len(b))
	}
	v := make([]uint32, n)
	for i := range v {
		v[i] = binary.BigEndian.Uint32(b[4*i:])
	}
	return v, b[4*n:], nil
}

// pack is the reverse of numbers.
func pack(v ...uint32) []byte {
	b := make([]byte, 0, 16)
	for _, n := range v {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

// noEOF turns an end in the middle of something into io.ErrUnexpectedEOF.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

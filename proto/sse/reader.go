package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Errors of a Reader whose limits are exceeded.
var (
	ErrEventTooLong  = errors.New("the event is too long")
	ErrStreamTooLong = errors.New("the event stream is too long")
)

// Options configure a Reader.
type Options struct {
	MaxEvent  int // limit for the lines of one event, in bytes; 0: 1 MiB
	MaxStream int // limit for the whole stream, in bytes; 0: none

	// Lenient accepts what some servers send beside the standard: data in a field named error, a line of bare JSON,
	// and a last event without the empty line behind it. An event whose data is empty is returned too.
	Lenient bool
}

const defaultMaxEvent = 1 << 20

// A Reader reads events from a stream.
type Reader struct {
	in   *bufio.Reader
	opts Options
	read int // bytes of the stream so far
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader, opts Options) *Reader {
	if opts.MaxEvent == 0 {
		opts.MaxEvent = defaultMaxEvent
	}
	return &Reader{in: bufio.NewReaderSize(r, 16<<10), opts: opts}
}

// Next returns the next event that has data. The error is io.EOF at the end of the stream, ErrEventTooLong or
// ErrStreamTooLong beyond a limit, or an error of the underlying reader.
func (r *Reader) Next() (Event, error) {
	var e Event
	for size := 0; ; {
		line, err := r.readLine(r.opts.MaxEvent - size)
		if err != nil && err != io.EOF {
			return Event{}, err
		}
		size += len(line)
		if len(line) == 0 && err == nil || err == io.EOF && r.opts.Lenient {
			r.addLine(&e, line)
			if len(e.Data) > 0 || e.Data != nil && r.opts.Lenient {
				return e, nil
			}
			e, size = Event{}, 0
		}
		if err != nil {
			return Event{}, err
		}
		r.addLine(&e, line)
	}
}

// addLine adds one field to an event.
func (r *Reader) addLine(e *Event, line []byte) {
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "id":
		e.ID = string(value)
	case "event":
		e.Name = string(value)
	case "data":
		e.addData(value)
	case "error":
		if r.opts.Lenient {
			e.addData(value)
		}
	default:
		if r.opts.Lenient && len(line) > 0 && line[0] == '{' {
			e.addData(line)
		}
	}
}

func (e *Event) addData(data []byte) {
	if e.Data != nil {
		e.Data = append(e.Data, '\n')
	}
	e.Data = append(e.Data, data...)
	if e.Data == nil {
		e.Data = []byte{}
	}
}

// readLine returns the next line without its end. At the end of the stream it returns the rest and io.EOF.
func (r *Reader) readLine(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.in.ReadSlice('\n')
		if r.read += len(part); r.opts.MaxStream > 0 && r.read > r.opts.MaxStream {
			return nil, ErrStreamTooLong
		}
		if len(line)+len(part) > limit {
			return nil, ErrEventTooLong
		}
		line = append(line, part...)
		if err != bufio.ErrBufferFull {
			line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
			return bytes.TrimPrefix(line, []byte("\ufeff")), err
		}
	}
}

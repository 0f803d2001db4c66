package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxEvent bounds the data of one event, in bytes.
const maxEvent = 16 << 20

var errEventTooLong = errors.New("the event is too long")

// An eventReader reads server-sent events. It knows what some servers do beside the standard: data in a field named
// error, and errors that are a line of bare JSON.
type eventReader struct{ r *bufio.Reader }

func newEventReader(r io.Reader) *eventReader { return &eventReader{bufio.NewReaderSize(r, 16<<10)} }

// next is the data of the next event that has any. An answer that ends without the empty line behind its last event
// has that one too.
func (e *eventReader) next() ([]byte, error) {
	var data []byte
	for has := false; ; {
		line, err := e.line(maxEvent - len(data))
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) == 0 && has && (err == nil || err == io.EOF):
			return data, nil
		case err != nil && err != io.EOF:
			return nil, err
		case string(field) == "data" || string(field) == "error":
			data, has = join(data, value, has), true
		case len(line) > 0 && line[0] == '{':
			data, has = join(data, line, has), true
		}
		if err == io.EOF && !has {
			return nil, io.EOF
		}
	}
}

func join(data, more []byte, has bool) []byte {
	if has {
		data = append(data, '\n')
	}
	return append(data, more...)
}

// line is the next line without its end. At the end of all it is what is left, and then empty, with io.EOF.
func (e *eventReader) line(most int) ([]byte, error) {
	var line []byte
	for {
		part, err := e.r.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, errEventTooLong
		}
		line = append(line, part...)
		if err != bufio.ErrBufferFull {
			line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
			return bytes.TrimPrefix(line, []byte("\ufeff")), err
		}
	}
}

package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"berth/proto"
)

// maxEvent bounds one event of an upstream, in bytes, and maxAnswer a whole answer.
const (
	maxEvent  = 32 << 20
	maxAnswer = 64 << 20
)

// An event is one of a stream of server-sent events.
type event struct {
	name string
	data []byte
}

// readEvents gives each event of a stream to fn, until the stream ends, is longer than an answer may be, or fn fails.
func readEvents(r io.Reader, fn func(event) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var e event
	for sum := 0; ; {
		line, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if sum += len(line); sum > maxAnswer {
			return longAnswer()
		}
		field, value, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(line) > 0 && len(bytes.TrimRight(line, "\r\n")) == 0:
			if len(e.data) > 0 {
				if err := fn(e); err != nil {
					return err
				}
			}
			e = event{}
		case string(field) == "event":
			e.name = string(value)
		case string(field) == "data":
			if len(e.data)+len(value) > maxEvent {
				return tooLong()
			}
			if e.data != nil {
				e.data = append(e.data, '\n')
			}
			e.data = append(e.data, value...)
		}
		if err != nil {
			return nil
		}
	}
}

// readLine is the next line with its end.
func readLine(in *bufio.Reader) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxEvent {
			return nil, tooLong()
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

func tooLong() error {
	return proto.Errorf(proto.Internal, "", "", "the upstream sent more than %d bytes at once", maxEvent)
}

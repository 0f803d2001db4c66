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

// readEvents gives the data of each server-sent event of a stream to fn, until the stream ends, is longer than an
// answer may be, or fn fails.
func readEvents(r io.Reader, fn func(data []byte) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var data []byte
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
			if len(data) > 0 {
				if err := fn(data); err != nil {
					return err
				}
			}
			data = nil
		case string(field) == "data":
			if len(data)+len(value) > maxEvent {
				return tooLong()
			}
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
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

package term

import (
	"fmt"
	"io"

	"berth/proto"
)

// A Printer writes a command's output unchanged and counts its bytes. It is for one goroutine at a time.
type Printer struct {
	Stdout, Stderr io.Writer // nil discards a stream
	Had            [2]int64  // offsets in stdout and stderr up to which all output was received or lost
	Lost           [2]int64  // bytes that did not come
}

// NewPrinter returns a printer for standard output and standard error. With JSON it discards output, because the
// printed result contains it.
func (o *Output) NewPrinter() *Printer {
	if o.JSON {
		return &Printer{}
	}
	return &Printer{Stdout: o.Stdout, Stderr: o.Stderr}
}

// Print prints one output event and ignores other events.
func (p *Printer) Print(ev proto.Event) error {
	i, w := 0, p.Stdout
	if ev.Type == proto.EventStderr || ev.Type == proto.EventGap && ev.Stream == proto.Stderr.String() {
		i, w = 1, p.Stderr
	}
	switch ev.Type {
	case proto.EventGap:
		// Counted here and reported at the end: a message amid the output could land in the middle of a file.
		p.Lost[i] += ev.Until - ev.Offset
		p.Had[i] = ev.Until
		return nil
	case proto.EventStdout, proto.EventStderr:
		data := ev.DataBase64
		if ev.Data != "" {
			data = []byte(ev.Data)
		}
		p.Had[i] = ev.Offset + int64(len(data))
		// Discarded output counts too: a new connection continues at had.
		if w == nil {
			return nil
		}
		_, err := w.Write(data)
		return err
	}
	return nil
}

// Missed describes missing output. It returns "" if all came.
func (p *Printer) Missed() string {
	switch {
	case p.Lost[0] == 0 && p.Lost[1] == 0:
		return ""
	case p.Lost[1] == 0:
		return fmt.Sprintf("%d bytes of stdout are missing", p.Lost[0])
	case p.Lost[0] == 0:
		return fmt.Sprintf("%d bytes of stderr are missing", p.Lost[1])
	}
	return fmt.Sprintf("%d bytes of stdout and %d of stderr are missing", p.Lost[0], p.Lost[1])
}

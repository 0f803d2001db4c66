package code

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"berth/proto"
	"berth/session"
)

// window is how much of each stream an interpreter's exec keeps, in bytes: what it is held up at when nobody reads.
// What a cell printed is in the cell.
const window = 128 << 10

// An interpreter is an exec that runs a driver, and the cell that it runs now.
type interpreter struct {
	lang language
	exec *session.Exec

	mu      sync.Mutex // guards what follows
	cells   int        // sent so far
	cell    *cell      // nil: none runs
	scan    [2]*scanner
	between [2][]byte // printed since the last cell: the next one's

	ended chan struct{}     // closed when the exec has, or nobody follows it any more; then these are set:
	last  *proto.ExecResult // nil: it is not known
	err   error             // why not
}

// maxBetween is how much of each stream is kept between two cells, in bytes: the newest.
const maxBetween = 64 << 10

// maxShown bounds the code that an exec is recorded with, in bytes.
const maxShown = 16 << 10

// shownAs is what code is called where commands are recorded.
func shownAs(lang language, code string) string {
	if len(code) > maxShown {
		code = code[:maxShown] + "…"
	}
	return lang.name + ": " + code
}

// command is what runs an interpreter with its driver.
func (l language) command() proto.Cmd {
	return proto.Cmd{Argv: l.argv, MaxOutputBytes: window, OnOutputLimit: proto.OutputWait}
}

// launch starts an interpreter. Somebody has to follow it.
func launch(ctx context.Context, s *session.Session, lang language, cmd proto.Cmd) (*interpreter, error) {
	e, err := s.Exec(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return &interpreter{lang: lang, exec: e, ended: make(chan struct{})}, nil
}

// take has what comes from now on belong to a cell, with what came since the one before.
func (in *interpreter) take(c *cell) (number int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.cell = c
	in.cells++
	for i, b := range in.between {
		in.scan[i] = newScanner(c.nonce)
		if len(b) > 0 {
			c.print(proto.Stream(i+1), b)
		}
		in.between[i] = nil
	}
	return in.cells
}

// drop ends take: nothing more belongs to the cell.
func (in *interpreter) drop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.cell == nil {
		return
	}
	for i, scan := range in.scan {
		scan.flush(ear{in.cell, proto.Stream(i + 1)})
	}
	in.cell.out.Finish()
	in.cell = nil
}

// follow reads all that the interpreter writes, until it has ended, and lets everybody know of that.
func (in *interpreter) follow(ctx context.Context) {
	defer close(in.ended)
	in.err = in.exec.FollowRaw(ctx, session.Cursor{}, func(ev proto.Event) error {
		if ev.Type == proto.EventExit {
			in.last = ev.Result
		}
		return nil
	}, func(p session.Piece, _ []byte) error {
		in.hear(p.Stream, p.Data)
		return nil
	})
}

// hear takes output: for the cell that runs, or for the next.
func (in *interpreter) hear(s proto.Stream, b []byte) {
	in.mu.Lock()
	defer in.mu.Unlock()
	i := s - 1
	if in.cell != nil && !in.cell.over(s) {
		in.scan[i].feed(b, ear{in.cell, s})
		return
	}
	b = append(in.between[i], b...)
	in.between[i] = append([]byte(nil), b[max(0, len(b)-maxBetween):]...)
}

// over reports whether a stream of the cell has ended: what follows there is not the cell's.
func (c *cell) over(s proto.Stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended[s-1]
}

// once runs code as a program, to the interpreter's end. When ctx ends first, that is ended.
func once(ctx context.Context, s *session.Session, lang language, cmd proto.Cmd, req Program) (Outcome, error) {
	c := newCell(s, req.MaxOutputBytes)
	defer c.close()
	cmd.Stdin = string(request(c.nonce, 1, modeOnce, req.Code))
	in, err := launch(ctx, s, lang, cmd)
	if err != nil {
		return Outcome{}, err
	}
	in.take(c)
	var listener sync.WaitGroup
	if req.Each != nil {
		// who does not listen any more still gets the result
		listener.Go(func() { _ = c.follow(ctx, in.exec.ID(), req.Each) })
	}
	in.follow(ctx)
	in.drop()
	listener.Wait()
	if in.last == nil {
		in.exec.Abandon(ctx)
		return Outcome{}, in.err
	}
	if in.absent() {
		return Outcome{}, lang.missing(s.Info().Image)
	}
	res := c.result()
	describeOutcome(&res, *in.last)
	return res, nil
}

// absent reports whether the image has no program for the language, or not all that its driver needs, which then says
// so.
func (in *interpreter) absent() bool {
	end, x := in.last.Exec.End, in.last.Result.Result
	if end.ReturnCode != 127 || x == nil {
		return false
	}
	return end.Reason == proto.EndNotStarted || strings.HasPrefix(x.Stderr, "berth: ") &&
		strings.HasSuffix(x.Stderr, " is missing\n")
}

// describeOutcome adds what the end of its interpreter says about code.
func describeOutcome(r *Outcome, x proto.ExecResult) {
	r.ExecID, r.DurationMS = x.Exec.ID, milliseconds(x.Exec.Duration(time.Time{}))
	r.Notes = append(r.Notes, x.Notes...)
	if x.Result.Result != nil {
		r.Files = append(r.Files, x.Result.Result.Content...)
	}
	blameInterpreter(r, *x.Exec.End)
}

// blameInterpreter says that the interpreter ended, where that was no success, or not by what the code told already.
func blameInterpreter(r *Outcome, end proto.End) {
	code := end.ReturnCode
	switch {
	case end.Reason == proto.EndExit && (code == 0 || r.ErrorDetail != nil):
		return
	case end.Reason == proto.EndExit:
		failOutcome(r, ErrorDetail{Name: "exit", Message: fmt.Sprintf("the code exited with status %d", code),
			ReturnCode: &code})
	case end.Reason == proto.EndSignal:
		failOutcome(r, ErrorDetail{Name: "signal", Message: "the interpreter was ended by " + end.Signal, ReturnCode: &code})
	default:
		failOutcome(r, ErrorDetail{Name: string(end.Reason), Message: end.Message, ReturnCode: &code})
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

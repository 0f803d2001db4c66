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

// window is how much of each stream an interpreter's exec keeps, in bytes. The interpreter blocks once that much is
// unread. The output of a cell is kept in the cell.
const window = 128 << 10

// An interpreter is an exec that runs a driver, and the cell that it currently runs.
type interpreter struct {
	lang language
	exec *session.Exec

	mu      sync.Mutex // guards what follows
	cells   int        // sent so far
	cell    *cell      // nil: none runs
	scan    [2]*scanner
	between [2][]byte // printed since the last cell; the next one receives it

	ended chan struct{}     // closed when the exec has ended, or is not followed any more; then these are set:
	last  *proto.ExecResult // nil: it is not known
	err   error             // why last is not known
}

// maxBetween is how much of each stream is kept between two cells, in bytes. The oldest output is dropped.
const maxBetween = 64 << 10

// maxShown limits the code in the record of an exec, in bytes.
const maxShown = 16 << 10

// shownAs is the name of code in the records of commands.
func shownAs(lang language, code string) string {
	if len(code) > maxShown {
		code = code[:maxShown] + "…"
	}
	return lang.name + ": " + code
}

// command returns the command that runs an interpreter with its driver.
func (l language) command() proto.Cmd {
	return proto.Cmd{Argv: l.argv, MaxOutputBytes: window, OnOutputLimit: proto.OutputWait}
}

// startInterpreter starts an interpreter. The caller must follow it.
func startInterpreter(ctx context.Context, s *session.Session, lang language, cmd proto.Cmd) (*interpreter, error) {
	e, err := s.Exec(ctx, cmd)
	if err != nil {
		return nil, err
	}
	return &interpreter{lang: lang, exec: e, ended: make(chan struct{})}, nil
}

// attachCell gives further output to a cell, with what was printed since the last one.
func (in *interpreter) attachCell(c *cell) (number int) {
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

// detachCell ends attachCell: the cell receives no more output.
func (in *interpreter) detachCell() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.cell == nil {
		return
	}
	for i, scan := range in.scan {
		scan.flush(cellListener{in.cell, proto.Stream(i + 1)})
	}
	in.cell.out.Finish()
	in.cell = nil
}

// follow reads all output of the interpreter until it ends, and then closes ended.
func (in *interpreter) follow(ctx context.Context) {
	defer close(in.ended)
	in.err = in.exec.FollowRaw(ctx, session.Cursor{}, func(ev proto.Event) error {
		if ev.Type == proto.EventExit {
			in.last = ev.Result
		}
		return nil
	}, func(p session.Piece, _ []byte) error {
		in.receiveOutput(p.Stream, p.Data)
		return nil
	})
}

// receiveOutput gives output to the cell that runs, or keeps it for the next.
func (in *interpreter) receiveOutput(s proto.Stream, b []byte) {
	in.mu.Lock()
	defer in.mu.Unlock()
	i := s - 1
	if in.cell != nil && !in.cell.over(s) {
		in.scan[i].feed(b, cellListener{in.cell, s})
		return
	}
	b = append(in.between[i], b...)
	in.between[i] = append([]byte(nil), b[max(0, len(b)-maxBetween):]...)
}

// over reports whether a stream of the cell has ended. Later output there belongs to the next cell.
func (c *cell) over(s proto.Stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended[s-1]
}

// runOnce runs code as a program until its interpreter ends. If ctx ends first, it ends the interpreter.
func runOnce(ctx context.Context, s *session.Session, lang language, cmd proto.Cmd, req Program) (Outcome, error) {
	c := newCell(s, req.MaxOutputBytes)
	defer c.close()
	cmd.Stdin = string(request(c.nonce, 1, modeOnce, req.Code))
	in, err := startInterpreter(ctx, s, lang, cmd)
	if err != nil {
		return Outcome{}, err
	}
	in.attachCell(c)
	var listener sync.WaitGroup
	if req.Each != nil {
		// an error means that the client has gone; the code goes on
		listener.Go(func() { _ = c.follow(ctx, in.exec.ID(), req.Each) })
	}
	in.follow(ctx)
	in.detachCell()
	listener.Wait()
	if in.last == nil {
		in.exec.Abandon(ctx)
		return Outcome{}, in.err
	}
	if in.isMissing() {
		return Outcome{}, lang.missing(s.Info().Image)
	}
	res := c.result()
	describeOutcome(&res, *in.last)
	return res, nil
}

// isMissing reports whether the image lacks the program of the language, or something that its driver needs. The
// driver prints what is missing.
func (in *interpreter) isMissing() bool {
	end, x := in.last.Exec.End, in.last.Result.Result
	if end.ReturnCode != 127 || x == nil {
		return false
	}
	return end.Reason == proto.EndNotStarted || strings.HasPrefix(x.Stderr, "berth: ") &&
		strings.HasSuffix(x.Stderr, " is missing\n")
}

// describeOutcome adds to an outcome how the interpreter ended.
func describeOutcome(r *Outcome, x proto.ExecResult) {
	r.ExecID, r.DurationMS = x.Exec.ID, milliseconds(x.Exec.Duration(time.Time{}))
	r.Notes = append(r.Notes, x.Notes...)
	if x.Result.Result != nil {
		r.Files = append(r.Files, x.Result.Result.Content...)
	}
	blameInterpreter(r, *x.Exec.End)
}

// blameInterpreter makes the end of the interpreter the error, unless it was a success or the code has reported an
// error itself.
func blameInterpreter(r *Outcome, end proto.End) {
	code := end.ReturnCode
	switch {
	case end.Reason == proto.EndExit && (code == 0 || r.ErrorDetail != nil):
		return
	case end.Reason == proto.EndExit:
		failOutcome(r, ErrorDetail{Name: "exit", Message: fmt.Sprintf("the code exited with status %d", code),
			ReturnCode: &code})
	case end.Reason == proto.EndSignal:
		failOutcome(r, ErrorDetail{Name: "signal", Message: "the interpreter was ended by " + end.Signal,
			ReturnCode: &code})
	default:
		failOutcome(r, ErrorDetail{Name: string(end.Reason), Message: end.Message, ReturnCode: &code})
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

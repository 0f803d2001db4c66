package code

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"berth/code/cell"
	"berth/proto"
	"berth/session"
)

// window is how much of each stream an interpreter's exec keeps, in bytes. The interpreter blocks once that much is
// unread. The cell keeps the output of the cell.
const window = 128 << 10

// maxBetween is how much of each stream is kept between two cells, in bytes. The oldest output is dropped.
const maxBetween = 64 << 10

// An interpreter is an exec that runs a driver, and the cell that it currently runs.
type interpreter struct {
	lang language
	exec *session.Exec

	mu      sync.Mutex // guards what follows
	cells   int        // sent so far
	cell    *cell.Cell // nil: none runs
	between [2][]byte  // printed since the last cell; the next one receives it

	ended chan struct{}     // closed when the exec has ended, or is not followed any more; then these are set:
	last  *proto.ExecResult // nil: it is not known
	err   error             // why last is not known
}

// maxShown limits the code in the record of an exec, in bytes.
const maxShown = 16 << 10

// shownAs is the name of code in the records of commands.
func shownAs(language, code string) string {
	if len(code) > maxShown {
		code = code[:maxShown] + "…"
	}
	return language + ": " + code
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

// startResident starts an interpreter that waits for cells, and follows it until the runner closes.
func (r *Runner) startResident(ctx context.Context, s *session.Session, lang language, cmd proto.Cmd) (
	*interpreter, error) {
	cmd.OpenStdin, cmd.Resident = true, true
	in, err := startInterpreter(ctx, s, lang, cmd)
	if err == nil {
		r.wg.Go(func() { in.follow(r.ctx) })
	}
	return in, err
}

// nextNumber counts a cell and returns its number.
func (in *interpreter) nextNumber() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.cells++
	return in.cells
}

// attachCell directs further output to a cell, with the output since the last one.
func (in *interpreter) attachCell(c *cell.Cell) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.cell = c
	for i, b := range in.between {
		if len(b) > 0 {
			c.Print(proto.Stream(i+1), b)
		}
		in.between[i] = nil
	}
}

// detachCell ends attachCell: the cell receives no more output.
func (in *interpreter) detachCell() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.cell != nil {
		in.cell.Finish()
		in.cell = nil
	}
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
	if in.cell != nil && !in.cell.Ended(s) {
		in.cell.Receive(s, b)
		return
	}
	b = append(in.between[s-1], b...)
	in.between[s-1] = append([]byte(nil), b[max(0, len(b)-maxBetween):]...)
}

// endUnsendable ends an interpreter that has not received a cell, unless it ends by itself, and waits for its end.
func (in *interpreter) endUnsendable() {
	timer := time.NewTimer(interruptTime)
	defer timer.Stop()
	select {
	case <-in.ended: // it was ending, which is why
	case <-timer.C: // a part of the cell may have arrived
		in.exec.Cancel(proto.EndLost, "a cell could not be sent to it")
		<-in.ended
	}
}

// over reports whether the interpreter has ended.
func (in *interpreter) over() bool {
	select {
	case <-in.ended:
		return true
	default:
		return false
	}
}

// endReason says why an interpreter ended. The caller has seen that it has.
func (in *interpreter) endReason() string {
	if in.last == nil {
		return "the daemon lost track of it"
	}
	return endReason(*in.last.Exec.End)
}

func endReason(end proto.End) string {
	switch {
	case end.Reason == proto.EndExit:
		return fmt.Sprintf("it exited with status %d", end.ReturnCode)
	case end.Reason == proto.EndSignal:
		return "it was ended by " + end.Signal
	case end.Message == "":
		return string(end.Reason)
	default:
		return end.Message
	}
}

// checkInstalled fails if the interpreter ended because the image lacks the program of the language, or something
// that its driver needs. The driver prints what is missing.
func (in *interpreter) checkInstalled(s *session.Session) error {
	if in.last == nil {
		return nil
	}
	end, x := in.last.Exec.End, in.last.Result.Result
	if end.ReturnCode != 127 || x == nil || end.Reason != proto.EndNotStarted &&
		!(strings.HasPrefix(x.Stderr, "berth: ") && strings.HasSuffix(x.Stderr, " is missing\n")) {
		return nil
	}
	image := s.Info().Image
	return proto.Errorf(proto.Unsupported, "", "language", "image %s cannot run %s: it has no %s; use an image that "+
		"has it, such as %s", image, in.lang.name, in.lang.program, in.lang.image)
}

// describeEnd adds to an outcome how the interpreter ended. Its end is the error, unless it was a success or the code
// has reported an error itself.
func describeEnd(r *Outcome, x proto.ExecResult) {
	r.ExecID, r.DurationMS = x.Exec.ID, milliseconds(x.Exec.Duration(time.Time{}))
	r.Notes = append(r.Notes, x.Notes...)
	if x.Result.Result != nil {
		r.Files = append(r.Files, x.Result.Result.Content...)
	}
	end := x.Exec.End
	code := end.ReturnCode
	d := ErrorDetail{Name: string(end.Reason), Message: end.Message, ReturnCode: &code}
	switch {
	case end.Reason == proto.EndExit && (code == 0 || r.ErrorDetail != nil):
		return
	case end.Reason == proto.EndExit:
		d.Name, d.Message = "exit", fmt.Sprintf("the code exited with status %d", code)
	case end.Reason == proto.EndSignal:
		d.Name, d.Message = "signal", "the interpreter was ended by "+end.Signal
	}
	cell.SetError(r, d)
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

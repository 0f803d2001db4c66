package envd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"berth/api/e2b/connectrpc"
	"berth/proto"
	"berth/session"
)

const (
	// pieceBytes is the longest output in one message.
	pieceBytes = 32 << 10
	// longestRun is the longest time limit of a process that the core takes.
	longestRun = 24 * time.Hour
	// rememberedFor is how long after its end a process can be connected to.
	rememberedFor = 30 * time.Second
)

// A processConfig is a program and how it runs.
type processConfig struct {
	Cmd  string            `json:"cmd,omitempty"`
	Args []string          `json:"args,omitempty"`
	Envs map[string]string `json:"envs,omitempty"`
	Cwd  string            `json:"cwd,omitempty"`
}

// A terminal is a request for one, or for another size.
type terminal struct {
	Size struct {
		Cols uint16 `json:"cols"`
		Rows uint16 `json:"rows"`
	} `json:"size"`
}

func (t *terminal) window() *proto.WindowSize {
	if t == nil {
		return nil
	}
	return &proto.WindowSize{Rows: cmp.Or(t.Size.Rows, 24), Cols: cmp.Or(t.Size.Cols, 80)}
}

// A startRequest asks for a process.
type startRequest struct {
	Process processConfig `json:"process"`
	PTY     *terminal     `json:"pty"`
	Tag     string        `json:"tag"`
	Stdin   *bool         `json:"stdin"` // absent: true
}

// A selector names a process.
type selector struct {
	PID uint32 `json:"pid"`
	Tag string `json:"tag"`
}

func (s selector) String() string {
	if s.Tag != "" {
		return "tag " + strconv.Quote(proto.Shorten(s.Tag, 80))
	}
	return "pid " + strconv.FormatUint(uint64(s.PID), 10)
}

// A selected request is for one process.
type selected struct {
	Process selector  `json:"process"`
	Input   input     `json:"input"`
	Signal  string    `json:"signal"`
	PTY     *terminal `json:"pty"`
}

// An input has one of the two.
type input struct {
	Stdin []byte `json:"stdin"`
	PTY   []byte `json:"pty"`
}

// A streamedInput is one message of StreamInput.
type streamedInput struct {
	Start *selected `json:"start"`
	Data  *selected `json:"data"`
}

// Messages of a process.
type (
	processEvent struct {
		Event event `json:"event"`
	}
	event struct {
		Start     *startEvent `json:"start,omitempty"`
		Data      *dataEvent  `json:"data,omitempty"`
		End       *endEvent   `json:"end,omitempty"`
		Keepalive *struct{}   `json:"keepalive,omitempty"`
	}
	startEvent struct {
		PID int `json:"pid,omitempty"`
	}
	dataEvent struct {
		Stdout []byte `json:"stdout,omitempty"`
		Stderr []byte `json:"stderr,omitempty"`
		PTY    []byte `json:"pty,omitempty"`
	}
	endEvent struct {
		ExitCode int    `json:"exitCode,omitempty"`
		Exited   bool   `json:"exited,omitempty"`
		Status   string `json:"status,omitempty"`
		Error    string `json:"error,omitempty"`
	}
)

// A listedProcess is a process in a list.
type listedProcess struct {
	Config processConfig `json:"config"`
	PID    int           `json:"pid,omitempty"`
	Tag    string        `json:"tag,omitempty"`
}

type processList struct {
	Processes []listedProcess `json:"processes,omitempty"`
}

// nothing is the answer of calls that have none.
type nothing struct{}

// process serves a method of process.Process.
func (b box) process(w http.ResponseWriter, r *http.Request, method string) error {
	alive := processEvent{event{Keepalive: &struct{}{}}}
	switch method {
	case "Start":
		limit, err := connectrpc.Timeout(r)
		return connectrpc.ServerStream(w, r, alive, func(ctx context.Context, in startRequest,
			s *connectrpc.Stream) error {
			if err != nil {
				return err
			}
			return b.broken(b.start(ctx, in, limit, s))
		})
	case "Connect":
		return connectrpc.ServerStream(w, r, alive, func(ctx context.Context, in selected, s *connectrpc.Stream) error {
			return b.broken(b.connect(ctx, r, in, s))
		})
	case "List":
		return connectrpc.Unary(w, r, b.listProcesses)
	case "SendInput":
		return connectrpc.Unary(w, r, b.sendInput)
	case "StreamInput":
		return b.streamInput(w, r)
	case "CloseStdin":
		return connectrpc.Unary(w, r, b.closeStdin)
	case "SendSignal":
		return connectrpc.Unary(w, r, b.sendSignal)
	case "Update":
		return connectrpc.Unary(w, r, b.update)
	}
	return unknownMethod(w, r, method)
}

// start starts a process and follows it to its end. limit bounds the process.
func (b box) start(ctx context.Context, in startRequest, limit time.Duration, s *connectrpc.Stream) error {
	dir, err := b.path(ctx, cmp.Or(in.Process.Cwd, b.dir))
	if err != nil {
		return err
	}
	if in.Process.Cmd == "" {
		return proto.Invalid("process.cmd", "process.cmd must name a program")
	}
	cmd := proto.Cmd{Argv: append([]string{in.Process.Cmd}, in.Process.Args...), Env: in.Process.Envs, Cwd: dir,
		User: b.user, TTY: in.PTY.window(), OpenStdin: in.PTY == nil && (in.Stdin == nil || *in.Stdin),
		Background: true, Detach: true, Followed: true, OnOutputLimit: proto.OutputWait,
		TimeoutSeconds: min(limit, longestRun).Seconds()}
	x, err := b.s.Exec(ctx, cmd)
	if err != nil && in.Process.Cwd == "" && b.missing(ctx, dir) { // the user has no home
		cmd.Cwd = "/"
		x, err = b.s.Exec(ctx, cmd)
	}
	if err != nil {
		if b.missing(ctx, dir) {
			return proto.Invalid("cwd", "cwd '%s' does not exist", dir)
		}
		return err
	}
	if in.Tag != "" {
		b.tags.add(b.ctx, x, in.Tag)
	}
	return b.follow(ctx, x, s)
}

// missing reports whether there is no such directory.
func (b box) missing(ctx context.Context, dir string) bool {
	_, err := b.s.Stat(ctx, b.user, dir)
	var known *proto.Error
	return errors.As(err, &known) && known.Code == proto.NotFound && known.Item == dir
}

// connect follows a process that was started before, up to the time limit of the request.
func (b box) connect(ctx context.Context, r *http.Request, in selected, s *connectrpc.Stream) error {
	limit, err := connectrpc.Timeout(r)
	if err != nil {
		return err
	}
	x, err := b.find(in.Process, true)
	if err != nil {
		return err
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return b.follow(ctx, x, s)
}

// follow sends what a process writes, from its start, and how it ends.
func (b box) follow(ctx context.Context, x *session.Exec, s *connectrpc.Stream) error {
	info := x.Info()
	var end *proto.ExecResult
	err := x.FollowRaw(ctx, session.Cursor{}, func(ev proto.Event) error {
		switch ev.Type {
		case proto.EventStart:
			return s.Send(processEvent{event{Start: &startEvent{info.PID}}})
		case proto.EventExit:
			end = ev.Result
		}
		return nil
	}, func(p session.Piece, _ []byte) error { return sendOutput(s, p, info.Terminal) })
	switch {
	case err != nil:
		return err
	case end == nil || end.Exec.End == nil:
		return connectrpc.Abort(errors.New("the process was left without its end"))
	}
	return sendEnd(s, *end.Exec.End)
}

// sendOutput sends a piece of output in messages of bounded size.
func sendOutput(s *connectrpc.Stream, p session.Piece, terminal bool) error {
	for rest := p.Data; len(rest) > 0; {
		part := rest[:min(len(rest), pieceBytes)]
		rest = rest[len(part):]
		var d dataEvent
		switch {
		case terminal:
			d.PTY = part
		case p.Stream == proto.Stderr:
			d.Stderr = part
		default:
			d.Stdout = part
		}
		if err := s.Send(processEvent{event{Data: &d}}); err != nil {
			return err
		}
	}
	return nil
}

// sendEnd tells how a process ended. If its sandbox ended, the stream breaks off.
func sendEnd(s *connectrpc.Stream, end proto.End) error {
	out := endEvent{ExitCode: end.ReturnCode, Exited: true, Status: fmt.Sprintf("exit status %d", end.ReturnCode)}
	switch end.Reason {
	case proto.EndStopped, proto.EndExpired, proto.EndHostRestart, proto.EndLost:
		return connectrpc.Abort(proto.Errorf(proto.Unavailable, "", "", "the sandbox ended: %s", end.Reason))
	case proto.EndTimeout:
		return proto.Errorf(proto.TimedOut, "", "", "the process ran longer than its time limit and was killed")
	case proto.EndNotStarted:
		if err := s.Send(processEvent{event{Data: &dataEvent{Stderr: []byte(end.Message + "\n")}}}); err != nil {
			return err
		}
	case proto.EndExit:
	default:
		out = endEvent{ExitCode: -1, Status: "signal: " + signalName(cmp.Or(end.Signal, "SIGKILL"))}
	}
	if out.ExitCode != 0 {
		out.Error = out.Status
	}
	return s.Send(processEvent{event{End: &out}})
}

// signalName returns what clients call a signal, such as killed for SIGKILL.
func signalName(name string) string {
	if n := unix.SignalNum(name); n != 0 {
		return n.String()
	}
	return name
}

// listProcesses lists what runs, apart from the interpreters of code.
func (b box) listProcesses(context.Context, nothing) (out processList, err error) {
	for _, x := range b.s.Execs() {
		info := x.Info()
		if info.State != proto.ExecRunning || !x.Outlives() || info.PID == 0 {
			continue
		}
		c := processConfig{Cmd: "/bin/bash", Args: []string{"-c", info.Command}}
		if len(info.Argv) > 0 {
			c = processConfig{Cmd: info.Argv[0], Args: info.Argv[1:]}
		}
		out.Processes = append(out.Processes, listedProcess{c, info.PID, b.tags.of(x)})
	}
	return out, nil
}

// find finds a process that runs or, if ended is set, one that ended a moment ago.
func (b box) find(sel selector, ended bool) (*session.Exec, error) {
	list := b.s.Execs()
	generation := b.s.Info().Generation
	for i := len(list) - 1; i >= 0; i-- {
		info := list[i].Info()
		if sel.Tag != "" && b.tags.of(list[i]) != sel.Tag || sel.Tag == "" && info.PID != int(sel.PID) ||
			info.PID == 0 || info.Generation != generation {
			continue
		}
		if info.EndedAt == nil || ended && time.Since(info.EndedAt.Time) < rememberedFor {
			return list[i], nil
		}
	}
	return nil, proto.Errorf(proto.NotFound, "", "", "process with %s not found", sel)
}

func (b box) sendInput(ctx context.Context, in selected) (none nothing, err error) {
	x, err := b.find(in.Process, false)
	if err != nil {
		return none, err
	}
	return none, write(ctx, x, in.Input)
}

// write gives a process input of the kind that it takes.
func write(ctx context.Context, x *session.Exec, in input) error {
	info := x.Info()
	switch {
	case in.PTY != nil && !info.Terminal:
		return connectrpc.Errorf(connectrpc.Internal, proto.Conflict, "the process has no terminal")
	case in.Stdin != nil && (info.Terminal || !info.OpenStdin):
		return connectrpc.Errorf(connectrpc.Internal, proto.Conflict, "the standard input of the process is not open")
	}
	if data := append(in.Stdin, in.PTY...); len(data) > 0 {
		return x.Write(ctx, data)
	}
	return nil
}

// streamInput gives one process input as it comes.
func (b box) streamInput(w http.ResponseWriter, r *http.Request) error {
	var x *session.Exec
	return connectrpc.ClientStream(w, r, func(in streamedInput) (err error) {
		switch {
		case in.Start != nil:
			x, err = b.find(in.Start.Process, false)
		case in.Data != nil && x == nil:
			err = proto.Invalid("start", "the first message must be start, which names the process")
		case in.Data != nil:
			err = write(r.Context(), x, in.Data.Input)
		}
		return err
	}, nothing{})
}

func (b box) closeStdin(_ context.Context, in selected) (none nothing, err error) {
	x, err := b.find(in.Process, false)
	if err != nil {
		return none, err
	}
	if x.Info().Terminal {
		return none, connectrpc.Errorf(connectrpc.Unknown, proto.Conflict, "a terminal has no standard input to "+
			"close; send it the byte 4")
	}
	return none, x.CloseStdin()
}

func (b box) sendSignal(ctx context.Context, in selected) (none nothing, err error) {
	name := map[string]string{"SIGNAL_SIGTERM": "SIGTERM", "SIGNAL_SIGKILL": "SIGKILL"}[in.Signal]
	if name == "" {
		return none, proto.Invalid("signal", "signal must be SIGNAL_SIGTERM or SIGNAL_SIGKILL")
	}
	x, err := b.find(in.Process, false)
	if err != nil {
		return none, err
	}
	return none, x.Signal(ctx, name)
}

func (b box) update(ctx context.Context, in selected) (none nothing, err error) {
	x, err := b.find(in.Process, false)
	if err != nil || in.PTY == nil {
		return none, err
	}
	return none, x.Resize(ctx, *in.PTY.window())
}

// tags remembers the tags of processes.
type tags struct {
	mu  sync.Mutex
	all map[string]string // by exec
}

// add remembers a tag until some time after the end of its process, or until ctx ends.
func (t *tags) add(ctx context.Context, x *session.Exec, tag string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]string{}
	}
	t.all[x.ID()] = tag
	go func() {
		select {
		case <-x.Done():
			time.AfterFunc(rememberedFor, func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.all, x.ID())
			})
		case <-ctx.Done():
		}
	}()
}

// of returns the tag of a process, or "".
func (t *tags) of(x *session.Exec) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all[x.ID()]
}

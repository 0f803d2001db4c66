package code

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"berth/code/cell"
	"berth/proto"
	"berth/proto/span"
	"berth/session"
	"berth/session/fleeting"
)

// maxTimeout is the longest time limit of code. It equals that of commands.
const maxTimeout = 24 * time.Hour

// Config configures a Runner. Sessions must be set.
type Config struct {
	Sessions *session.Sessions
	Timeout  time.Duration // of a cell or a program without a limit of its own; 0 is 5 minutes
	// MayPrestart reports whether a container may be kept ready for an API key that has run code, for a minute; nil:
	// for none. The container counts as one of the key's.
	MayPrestart func(key string) bool
	Log         *slog.Logger // nil: slog.Default
}

// A Runner runs code for all sessions.
type Runner struct {
	sessions    *session.Sessions
	timeout     time.Duration
	mayPrestart func(key string) bool
	log         *slog.Logger

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // goroutines that follow interpreters, and that create and delete prestarted ones

	mu        sync.Mutex                      // guards what follows
	notebooks map[string]map[string]*notebook // by container and name
	ready     map[prestartKey]*prestarted
}

// Open creates a runner.
func Open(cfg Config) *Runner {
	r := &Runner{sessions: cfg.Sessions, timeout: cmp.Or(cfg.Timeout, 5*time.Minute), mayPrestart: cfg.MayPrestart,
		log: cmp.Or(cfg.Log, slog.Default()), notebooks: map[string]map[string]*notebook{},
		ready: map[prestartKey]*prestarted{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Close stops following interpreters, which end with their sessions, and deletes the prestarted ones.
func (r *Runner) Close() error {
	r.cancel()
	r.deleteAllPrestarted()
	r.wg.Wait()
	return nil
}

// Wire types that this package reads and writes.
type (
	Cell        = proto.Cell
	Outcome     = proto.Outcome
	ErrorDetail = proto.ErrorDetail
	Bundle      = proto.Bundle
	Progress    = proto.Progress
	Context     = proto.CodeContext
)

// Once runs a program in a fresh interpreter and gives the result to answer. Without a container in the request, Once
// creates one. It deletes that container once answer has returned, even if the code or the client has failed. each
// gets the output while the code runs in a named container; it may be nil.
func (r *Runner) Once(ctx context.Context, owner string, req proto.Program, each func(Progress) error,
	answer func(Outcome) error) (err error) {
	lang, err := checkProgram(req)
	if err != nil {
		return err
	}
	ctx, traced := span.Start(ctx, "code")
	traced.String(span.Language, lang.name)
	defer func() { traced.End(err) }()
	k, may := r.prestartKeyFor(ctx, owner, req, lang)
	var sp *prestarted
	if may {
		sp = r.takePrestarted(ctx, k)
	}
	if sp == nil {
		s, err := r.findContainer(ctx, owner, req)
		if err != nil {
			return err
		}
		sp = &prestarted{s: s}
	}
	if req.Container == "" {
		defer fleeting.Delete(ctx, r.sessions, sp.s, r.log)
	}
	if may {
		defer func() {
			if proto.CodeOf(err) != proto.Unsupported { // the image has the language
				r.prestart(ctx, k, lang) // while this container is deleted
			}
		}()
	}
	var res Outcome
	if sp.in != nil {
		res, err = r.runPrestarted(ctx, sp, req)
	} else {
		res, err = runFresh(ctx, sp.s, lang, req, each)
	}
	if err != nil {
		return err
	}
	return answer(res)
}

// runFresh starts an interpreter and runs a program in it. If ctx ends first, it ends the interpreter.
func runFresh(ctx context.Context, s *session.Session, lang language, req proto.Program, each func(Progress) error) (
	Outcome, error) {
	c := cell.New(req.MaxOutputBytes, s.OutputBudget())
	defer c.Close()
	cmd := lang.command()
	cmd.Shown = cmp.Or(req.Shown, shownAs(lang.name, req.Code))
	cmd.Files, cmd.Env, cmd.Secrets, cmd.Cwd = req.Files, req.Env, req.Secrets, req.Cwd
	cmd.TimeoutSeconds = req.TimeoutSeconds
	cmd.Stdin = string(c.Request(1, cell.ModeOnce, req.Code))
	in, err := startInterpreter(ctx, s, lang, cmd)
	if err != nil {
		return Outcome{}, err
	}
	if each != nil {
		c.KeepDisplays()
	}
	in.attachCell(c)
	var listener sync.WaitGroup
	// an error means that the client has gone; the code goes on
	listener.Go(func() { _ = followCell(ctx, c, in.exec.ID(), each) })
	in.follow(ctx)
	in.detachCell()
	listener.Wait()
	if in.last == nil {
		in.exec.Abandon(ctx)
		return Outcome{}, in.err
	}
	if err := in.checkInstalled(s); err != nil {
		return Outcome{}, err
	}
	res := c.Outcome()
	describeEnd(&res, *in.last)
	nameMissing(&res, s)
	if req.Container != "" {
		ref := s.Ref()
		res.Container = &ref
	}
	return res, nil
}

// findContainer returns the container that a request names, or creates one.
func (r *Runner) findContainer(ctx context.Context, owner string, req proto.Program) (*session.Session, error) {
	if req.Container != "" {
		return r.sessions.Get(owner, req.Container)
	}
	return fleeting.Create(ctx, r.sessions, owner, proto.CreateContainer{Image: req.Image,
		RuntimeClass: req.RuntimeClass, Limits: req.Limits, Network: req.Network, NetworkSecrets: req.NetworkSecrets})
}

// CellOf returns a program as a cell of its context. It refuses options that a context cannot take.
func CellOf(p proto.Program) (Cell, error) {
	if p.Container == "" {
		return Cell{}, proto.Invalid("container", "a context belongs to a container; name it, or leave context out")
	}
	if err := checkContainer(p); err != nil {
		return Cell{}, err
	}
	if len(p.Env)+len(p.Secrets) > 0 {
		return Cell{}, proto.Invalid("env", "a running interpreter keeps its environment; create the context with "+
			"env and secrets, or run the code as a cell of it, which takes env")
	}
	return Cell{Code: p.Code, Language: p.Language, Cwd: p.Cwd, Files: p.Files, TimeoutSeconds: p.TimeoutSeconds,
		MaxOutputBytes: p.MaxOutputBytes}, nil
}

// checkContainer refuses options for a new container beside the name of a container.
func checkContainer(p proto.Program) error {
	switch {
	case p.Container != "" && p.Image != "":
		return proto.Invalid("image", "image is for a new container; leave it out where container names one")
	case p.Container != "" && (!p.Network.IsZero() || len(p.NetworkSecrets) > 0):
		return proto.Invalid("network", "network is for a new container; change that of a container that exists")
	case p.Container != "":
		return p.WithContainer()
	}
	return nil
}

// checkProgram validates a request before anything is created for it.
func checkProgram(p proto.Program) (language, error) {
	if err := checkCode(p.Code); err != nil {
		return language{}, err
	}
	if p.MaxOutputBytes < 0 || p.MaxOutputBytes > cell.MaxOutput {
		return language{}, proto.Invalid("max_output_bytes", "max_output_bytes must be from 1 to %d", cell.MaxOutput)
	}
	if t := p.TimeoutSeconds; !(t >= 0 && t <= maxTimeout.Seconds()) {
		return language{}, proto.Invalid("timeout_seconds", "timeout_seconds must be from 0 to %d",
			int64(maxTimeout.Seconds()))
	}
	if err := checkContainer(p); err != nil {
		return language{}, err
	}
	return languageOf(p.Language)
}

func checkCode(code string) error {
	switch {
	case strings.TrimSpace(code) == "":
		return proto.Invalid("code", "there is no code to run; set code to the text of a program")
	case len(code) > proto.MaxCode:
		return proto.Errorf(proto.TooLarge, "", "code", "the code has %d bytes; %d is the limit; put it into a file "+
			"of a container and run that", len(code), proto.MaxCode)
	case strings.ContainsRune(code, 0) || !utf8.ValidString(code):
		return proto.Invalid("code", "code must be UTF-8 without NUL bytes")
	}
	return nil
}

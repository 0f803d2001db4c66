package code

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"berth/proto"
	"berth/session"
)

// maxTimeout is the longest time limit of code. It equals that of commands.
const maxTimeout = 24 * time.Hour

// freshLifetime is the lifetime of a container that was created for one run: longer than any run may take. It deletes
// the container if the daemon has crashed.
const freshLifetime = 25 * time.Hour

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
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	r := &Runner{sessions: cfg.Sessions, timeout: cmp.Or(cfg.Timeout, 5*time.Minute), mayPrestart: cfg.MayPrestart,
		log:       cfg.Log,
		notebooks: map[string]map[string]*notebook{}, ready: map[prestartKey]*prestarted{}}
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

// Once runs a program in a fresh interpreter and gives the result to answer. Without a container in the request, Once
// creates one. It deletes that container once answer has returned, even if the code or the client has failed.
func (r *Runner) Once(ctx context.Context, owner string, req Program, answer func(Outcome) error) error {
	lang, err := req.check()
	if err != nil {
		return err
	}
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
		defer r.deleteContainer(ctx, owner, sp.s)
	}
	if may { // the next one starts while this one is deleted
		defer r.prestart(ctx, k, lang)
	}
	res, err := r.runProgram(ctx, sp, lang, req)
	if err != nil {
		return err
	}
	return answer(res)
}

// runProgram runs a program in the prestarted interpreter, or in one that it starts.
func (r *Runner) runProgram(ctx context.Context, sp *prestarted, lang language, req Program) (Outcome, error) {
	if sp.in != nil {
		return r.runPrestarted(ctx, sp, req)
	}
	return r.runFresh(ctx, sp.s, lang, req)
}

// runFresh starts an interpreter and runs a program in it.
func (r *Runner) runFresh(ctx context.Context, s *session.Session, lang language, req Program) (Outcome, error) {
	cmd := lang.command()
	if cmd.Shown = req.Shown; cmd.Shown == "" {
		cmd.Shown = shownAs(lang, req.Code)
	}
	cmd.Files, cmd.Env, cmd.Secrets, cmd.TimeoutSeconds = req.Files, req.Env, req.Secrets, req.TimeoutSeconds
	res, err := runOnce(ctx, s, lang, cmd, req)
	if err == nil && req.Container != "" {
		ref := s.Ref()
		res.Container = &ref
	}
	return res, err
}

// findContainer returns the container that a request names, or creates one.
func (r *Runner) findContainer(ctx context.Context, owner string, req Program) (*session.Session, error) {
	if req.Container != "" {
		return r.sessions.Get(owner, req.Container)
	}
	return r.sessions.Create(ctx, owner, proto.CreateContainer{Image: req.Image, Network: req.Network,
		NetworkSecrets: req.NetworkSecrets, Fleeting: true, MaxLifetimeSeconds: int64(freshLifetime.Seconds())})
}

// deleteContainer deletes a container that no client knows.
func (r *Runner) deleteContainer(ctx context.Context, owner string, s *session.Session) {
	err := r.sessions.Delete(context.WithoutCancel(ctx), owner, s.ID(), false)
	if err != nil && proto.CodeOf(err) != proto.NotFound {
		r.log.Error("deleting a container that code ran in; a sweep will try again", "container", s.ID(), "error", err)
	}
}

// Cell returns the request as a cell of its context. It refuses options that a context cannot take.
func (req Program) Cell() (Cell, error) {
	switch {
	case req.Container == "":
		return Cell{}, proto.Errorf(proto.InvalidArgument, "", "container", "a context belongs to a container; name "+
			"it, or leave context out")
	case req.Image != "":
		return Cell{}, proto.Errorf(proto.InvalidArgument, "", "image", "image is for a container that is made; "+
			"leave it out where container names one")
	case !req.Network.IsZero() || len(req.NetworkSecrets) > 0:
		return Cell{}, proto.Errorf(proto.InvalidArgument, "", "network", "network is for a container that is made; "+
			"create the context's container with it")
	case len(req.Env)+len(req.Secrets) > 0:
		return Cell{}, proto.Errorf(proto.InvalidArgument, "", "env", "an interpreter that runs has its "+
			"environment; create the context with env and secrets")
	}
	return Cell{Code: req.Code, Language: req.Language, Files: req.Files, TimeoutSeconds: req.TimeoutSeconds,
		MaxOutputBytes: req.MaxOutputBytes}, nil
}

// check validates a request before anything is created for it.
func (req Program) check() (language, error) {
	if err := checkCode(req.Code); err != nil {
		return language{}, err
	}
	if req.MaxOutputBytes < 0 || req.MaxOutputBytes > maxOutput {
		return language{}, proto.Errorf(proto.InvalidArgument, "", "max_output_bytes", "max_output_bytes must be "+
			"from 1 to %d", maxOutput)
	}
	if t := req.TimeoutSeconds; !(t >= 0 && t <= maxTimeout.Seconds()) {
		return language{}, proto.Errorf(proto.InvalidArgument, "", "timeout_seconds",
			"timeout_seconds must be from 0 to %d", int64(maxTimeout.Seconds()))
	}
	if req.Container != "" && req.Image != "" {
		return language{}, proto.Errorf(proto.InvalidArgument, "", "image", "image is for a container that is made; "+
			"leave it out where container names one")
	}
	if req.Container != "" && (!req.Network.IsZero() || len(req.NetworkSecrets) > 0) {
		return language{}, proto.Errorf(proto.InvalidArgument, "", "network", "network is for a container that is "+
			"made; leave it out where container names one, which keeps what it has")
	}
	return languageOf(req.Language)
}

func checkCode(code string) error {
	switch {
	case strings.TrimSpace(code) == "":
		return proto.Errorf(proto.InvalidArgument, "", "code",
			"there is no code to run; set code to the text of a program")
	case len(code) > proto.MaxCode:
		return proto.Errorf(proto.TooLarge, "", "code", "the code has %d bytes; %d is the limit; put it into a file "+
			"of a container and run that", len(code), proto.MaxCode)
	case strings.ContainsRune(code, 0) || !utf8.ValidString(code):
		return proto.Errorf(proto.InvalidArgument, "", "code",
			"code must be UTF-8 without NUL bytes")
	}
	return nil
}

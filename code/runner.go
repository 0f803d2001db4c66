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

// maxTimeout is the most time that code may ask for, as commands may.
const maxTimeout = 24 * time.Hour

// freshLifetime is the net under the deletion of a container that was made for one run: longer than any run may take.
// After a crash of the daemon the next one deletes it.
const freshLifetime = 25 * time.Hour

// Config is what Open needs. Sessions must be set.
type Config struct {
	Sessions *session.Sessions
	Timeout  time.Duration // of a cell, and of a program, that asks for none; 0 is 5 minutes
	// Spare says for which API keys a container is kept ready once they have run code, for a minute; nil: for none.
	// It counts as one of theirs.
	Spare func(key string) bool
	Log   *slog.Logger // nil: slog.Default
}

// A Runner runs code for all sessions.
type Runner struct {
	sessions *session.Sessions
	timeout  time.Duration
	spare    func(key string) bool
	log      *slog.Logger

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // who follow interpreters, and make and delete spares

	mu        sync.Mutex                      // guards what follows
	notebooks map[string]map[string]*notebook // by container and name
	spares    map[spareKey]*spare
}

// Open makes a runner. It starts nothing.
func Open(cfg Config) *Runner {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	r := &Runner{sessions: cfg.Sessions, timeout: cmp.Or(cfg.Timeout, 5*time.Minute), spare: cfg.Spare, log: cfg.Log,
		notebooks: map[string]map[string]*notebook{}, spares: map[spareKey]*spare{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Close lets go of all interpreters, which end with the sessions', and deletes what was kept ready.
func (r *Runner) Close() error {
	r.cancel()
	r.dropSpares()
	r.wg.Wait()
	return nil
}

// Once runs code afresh and gives the result to answer. Without a container one is made, and deleted with all that is
// in it once answer has returned, whatever became of the code and of whoever asked for it.
func (r *Runner) Once(ctx context.Context, owner string, req Program, answer func(Outcome) error) error {
	lang, err := req.check()
	if err != nil {
		return err
	}
	k, may := r.spareFor(ctx, owner, req, lang)
	var sp *spare
	if may {
		sp = r.claim(ctx, k)
	}
	if sp == nil {
		s, err := r.where(ctx, owner, req)
		if err != nil {
			return err
		}
		sp = &spare{s: s}
	}
	if req.Container == "" {
		defer r.discard(ctx, owner, sp.s)
	}
	if may { // the next one is made while this is deleted
		defer r.refill(ctx, k, lang)
	}
	res, err := r.program(ctx, sp, lang, req)
	if err != nil {
		return err
	}
	return answer(res)
}

// program runs a program in the interpreter that there is, or in one that is started for it.
func (r *Runner) program(ctx context.Context, sp *spare, lang language, req Program) (Outcome, error) {
	if sp.in != nil {
		return r.with(ctx, sp, req)
	}
	return r.fresh(ctx, sp.s, lang, req)
}

// fresh runs a program in an interpreter that is started for it.
func (r *Runner) fresh(ctx context.Context, s *session.Session, lang language, req Program) (Outcome, error) {
	cmd := lang.command()
	if cmd.Shown = req.Shown; cmd.Shown == "" {
		cmd.Shown = shownAs(lang, req.Code)
	}
	cmd.Files, cmd.Env, cmd.Secrets, cmd.TimeoutSeconds = req.Files, req.Env, req.Secrets, req.TimeoutSeconds
	res, err := once(ctx, s, lang, cmd, req)
	if err == nil && req.Container != "" {
		ref := s.Ref()
		res.Container = &ref
	}
	return res, err
}

// where is the container that a request names, or a new one.
func (r *Runner) where(ctx context.Context, owner string, req Program) (*session.Session, error) {
	if req.Container != "" {
		return r.sessions.Get(owner, req.Container)
	}
	return r.sessions.Create(ctx, owner, proto.CreateContainer{Image: req.Image, Network: req.Network,
		NetworkSecrets: req.NetworkSecrets, Fleeting: true, MaxLifetimeSeconds: int64(freshLifetime.Seconds())})
}

// discard deletes a container that nobody knows of.
func (r *Runner) discard(ctx context.Context, owner string, s *session.Session) {
	err := r.sessions.Delete(context.WithoutCancel(ctx), owner, s.ID(), false)
	if err != nil && proto.CodeOf(err) != proto.NotFound {
		r.log.Error("deleting a container that code ran in; a sweep will try again", "container", s.ID(), "error", err)
	}
}

// Cell is the request as one for a cell of its context. What a context cannot take is refused.
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

// check says what is wrong with a request before anything is made for it.
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
			"the code is no text: it holds a NUL byte, or is not UTF-8")
	}
	return nil
}

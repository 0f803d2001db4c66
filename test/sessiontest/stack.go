package sessiontest

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/artifacts"
	"berth/files"
	"berth/proto"
	"berth/session"
	"berth/session/asking"
	"berth/state/keys"
	"berth/state/ledger"
	"berth/state/vault"
	"berth/tools/bridge"
)

// Owner is the owner of the tests' sessions.
const Owner = keys.DefaultOwner

// Secret is the API key of Owner, as if it were in the daemon's key file. It is an admin's key, so tests that are not
// about rights need no other.
const Secret = "berth_sessiontest-key-0123456789"

// imageDigest is the digest that every image name resolves to here. It need not be real: this runtime has no images.
const imageDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// A Stack is the whole core over a Runtime: a daemon without its edges.
type Stack struct {
	Dir      string
	Runtime  session.Runtime
	Images   session.Images
	Ledger   *ledger.DB
	Keys     *keys.Store
	Files    *files.Store
	Jobs     *artifacts.Jobs
	Sessions *session.Sessions
	Desk     *asking.Desk
	Bridge   *bridge.Bridge // nil if the test brings its own tools

	cfg     session.Config
	prepare func(*Stack, *session.Config) // adds a part that needs the ledger, in place of Bridge; nil: nothing
}

// New opens a stack over a Runtime without containers. It uses the limits and times of cfg; the parts are the stack's
// own.
func New(t testing.TB, cfg session.Config) *Stack {
	t.Helper()
	return Over(t, NewRuntime(t), Images{}, cfg)
}

// Over opens a stack over any Runtime.
func Over(t testing.TB, rt session.Runtime, images session.Images, cfg session.Config) *Stack {
	t.Helper()
	return OverWith(t, rt, images, cfg, nil)
}

// OverWith opens a stack as Over does, with a part that the sessions need and that needs the ledger itself. Each Open
// calls prepare before there are sessions.
func OverWith(t testing.TB, rt session.Runtime, images session.Images, cfg session.Config,
	prepare func(*Stack, *session.Config)) *Stack {
	t.Helper()
	st := &Stack{Dir: t.TempDir(), Runtime: rt, Images: images, cfg: cfg, prepare: prepare}
	st.Open(t)
	t.Cleanup(func() { st.Close(t) })
	return st
}

// Reboot makes the next Open believe that the host was restarted. By the boot ID the core distinguishes a restart of
// the daemon, after which sandboxes still run, from one of the host, after which none does.
func (st *Stack) Reboot() { st.cfg.Boot += "again" }

// AcceptLoss makes the next Open take a runtime that lacks workspaces, or refuse it again.
func (st *Stack) AcceptLoss(accept bool) { st.cfg.AcceptLoss = accept }

// Open opens the core as a daemon does at its start, in the same order and with the same parts, but without the
// edges, the audit log and the sweeper. Tests sweep by themselves at a time of their choice.
func (st *Stack) Open(t testing.TB) {
	t.Helper()
	if err := st.TryOpen(t); err != nil {
		t.Fatal(err)
	}
}

// TryOpen is Open for a core that may refuse. What was opened is closed then.
func (st *Stack) TryOpen(t testing.TB) error {
	t.Helper()
	// Warnings go to the test's log, beside the failure that they explain.
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var err error
	if st.Ledger, err = ledger.Open(filepath.Join(st.Dir, "ledger.db")); err != nil {
		t.Fatal(err)
	}
	if st.Keys, err = keys.Open(keys.Config{Ledger: st.Ledger, Secret: Secret, Log: log, Now: st.cfg.Now}); err != nil {
		t.Fatal(err)
	}
	if st.Files, err = files.Open(files.Config{Dir: filepath.Join(st.Dir, "files"), Ledger: st.Ledger,
		KeyQuota: st.Keys.MaxStorage, Log: log, Now: st.cfg.Now}); err != nil {
		t.Fatal(err)
	}
	st.Jobs = artifacts.New(artifacts.Config{Files: st.Files, Ledger: st.Ledger, Log: log, Now: st.cfg.Now})
	cfg := st.cfg
	cfg.Quotas = st.Keys
	if cfg.Vault, err = vault.Open(filepath.Join(st.Dir, "secret-key"), st.Ledger); err != nil {
		t.Fatal(err)
	}
	cfg.Dir, cfg.Runtime, cfg.Images, cfg.Ledger, cfg.Jobs, cfg.Log = st.Dir, st.Runtime, st.Images, st.Ledger, st.Jobs,
		log
	st.Desk = asking.Open(asking.Config{Ledger: st.Ledger, Log: log, Now: st.cfg.Now})
	if st.prepare != nil {
		st.prepare(st, &cfg)
	} else {
		st.Bridge = bridge.Open(bridge.Config{Ledger: st.Ledger, Log: log})
		cfg.Tools = st.Bridge
	}
	if st.Sessions, err = session.Open(context.Background(), cfg); err != nil {
		st.Sessions = nil
		st.closeParts(t)
		return err
	}
	if st.Bridge != nil {
		st.Bridge.Attach(st.Sessions)
	}
	if err := st.Desk.Attach(st.Sessions); err != nil {
		t.Fatal(err)
	}
	st.Sessions.HandshakeAll()
	return nil
}

// Close closes the core as a daemon does at its end. Sandboxes keep running.
func (st *Stack) Close(t testing.TB) {
	t.Helper()
	if st.Sessions == nil {
		return
	}
	if err := st.Sessions.Close(); err != nil {
		t.Error(err)
	}
	st.closeParts(t)
	st.Sessions = nil
}

// closeParts closes what the sessions use, in the reverse order of opening: the ledger goes last, since the others
// write to it when they close.
func (st *Stack) closeParts(t testing.TB) {
	t.Helper()
	open := []io.Closer{st.Desk, st.Files, st.Keys, st.Ledger}
	if st.Bridge != nil {
		open = slices.Insert(open, 0, io.Closer(st.Bridge))
	}
	for _, c := range open {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Reopen calls Close and Open: a restart of the daemon. Durability tests call it between two steps: whatever a daemon
// must not forget has to be in the ledger by then.
func (st *Stack) Reopen(t testing.TB) {
	t.Helper()
	st.Close(t)
	st.Open(t)
}

// Create makes a session and fails the test if that fails.
func (st *Stack) Create(t testing.TB, req proto.CreateContainer) *session.Session {
	t.Helper()
	s, err := st.Sessions.Create(context.Background(), Owner, req)
	if err != nil {
		t.Fatalf("creating a session: %v", err)
	}
	return s
}

// Bash runs text in a session and returns its result. Any other end than an exit fails the test. It is for steps that
// prepare a test.
func Bash(t testing.TB, s *session.Session, text string) proto.BashResult {
	t.Helper()
	res, err := s.Run(context.Background(), proto.Cmd{Command: text})
	if err != nil {
		t.Fatalf("running %q: %v", text, err)
	}
	if res.Result.Result == nil {
		t.Fatalf("running %q: %+v, %+v", text, res.Exec.End, res.Partial)
	}
	return *res.Result.Result
}

// testWriter sends a logger's lines to the test's log, until the test is over. Without it the lines of parallel tests
// would mix.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

// Images has the one image of a Runtime without containers.
type Images struct{}

// Resolve knows "base". Any other name is NotFound in the words of a real store, for tests of the edges.
func (Images) Resolve(_ context.Context, ref string) (session.Image, error) {
	if ref != "base" {
		return session.Image{}, proto.Errorf(proto.NotFound, "", ref,
			"image %.80q is not here; import or pull it first", ref)
	}
	return session.Image{Name: ref, Digest: imageDigest, CreatedAt: time.Unix(0, 0), Platform: "linux/amd64"}, nil
}

// List returns "base".
func (i Images) List(ctx context.Context) ([]session.Image, error) {
	img, err := i.Resolve(ctx, "base")
	return []session.Image{img}, err
}

// unsupported returns the error of everything that needs an image store. A test that gets it should run against the
// real runtime.
func unsupported() error {
	return proto.Errorf(proto.Unsupported, "", "", "a runtime without containers has no images")
}

// Import fails: it is not supported.
func (Images) Import(context.Context, string, io.Reader, func(session.ImageProgress)) (session.Image, error) {
	return session.Image{}, unsupported()
}

// Pull fails: it is not supported.
func (Images) Pull(context.Context, string, func(session.ImageProgress)) (session.Image, error) {
	return session.Image{}, unsupported()
}

// Remove fails: it is not supported.
func (Images) Remove(context.Context, string) error { return unsupported() }

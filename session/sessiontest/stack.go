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
	"berth/state/keys"
	"berth/state/ledger"
	"berth/state/vault"
	"berth/tools/bridge"
)

// Owner is whose sessions the tests make.
const Owner = keys.DefaultOwner

// Secret is the API key of Owner, an admin's, as if it were in the daemon's key file.
// An admin's key can do everything, so tests that are not about rights need no other.
const Secret = "berth_sessiontest-key-0123456789"

// imageDigest is what every image name resolves to here.
// It need not be true: this runtime has no images, and nobody unpacks it.
const imageDigest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// A Stack is the whole core over a Runtime: what a daemon has without its edges.
type Stack struct {
	Dir      string
	Runtime  session.Runtime
	Images   session.Images
	Ledger   *ledger.DB
	Keys     *keys.Store
	Files    *files.Store
	Jobs     *artifacts.Jobs
	Sessions *session.Sessions
	Bridge   *bridge.Bridge // nil where the test brings its own

	cfg     session.Config
	prepare func(*Stack, *session.Config) // adds what needs the ledger, in the place of Bridge; nil: nothing
}

// New opens a stack over a Runtime without containers. cfg's limits and times are used; its
// parts are the stack's own.
func New(t testing.TB, cfg session.Config) *Stack {
	t.Helper()
	return Over(t, NewRuntime(t), Images{}, cfg)
}

// Over opens a stack over any Runtime.
func Over(t testing.TB, rt session.Runtime, images session.Images, cfg session.Config) *Stack {
	t.Helper()
	return OverWith(t, rt, images, cfg, nil)
}

// OverWith is Over with a part that the sessions need, and that needs the ledger itself: prepare is called at each
// Open, before there are sessions.
func OverWith(t testing.TB, rt session.Runtime, images session.Images, cfg session.Config,
	prepare func(*Stack, *session.Config)) *Stack {
	t.Helper()
	st := &Stack{Dir: t.TempDir(), Runtime: rt, Images: images, cfg: cfg, prepare: prepare}
	st.Open(t)
	t.Cleanup(func() { st.Close(t) })
	return st
}

// Reboot makes the next Open believe that the host was started anew.
// The boot ID is how the core tells a restart of the daemon, after which sandboxes still run, from one of
// the host, after which none does.
func (st *Stack) Reboot() { st.cfg.Boot += "again" }

// Open opens the core, as a daemon does when it starts.
// The order and the parts are those of the daemon, without the edges, the audit log and the sweeper; tests
// sweep by hand, at a time of their choice.
func (st *Stack) Open(t testing.TB) {
	t.Helper()
	// Warnings go to the test's log, where they stand beside the failure that they explain.
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
	if st.prepare != nil {
		st.prepare(st, &cfg)
	} else {
		st.Bridge = bridge.Open(bridge.Config{Ledger: st.Ledger, Log: log})
		cfg.Tools = st.Bridge
	}
	if st.Sessions, err = session.Open(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	if st.Bridge != nil {
		st.Bridge.Attach(st.Sessions)
	}
	st.Sessions.HandshakeAll()
}

// Close closes the core, as a daemon does when it ends. Sandboxes go on.
func (st *Stack) Close(t testing.TB) {
	t.Helper()
	if st.Sessions == nil {
		return
	}
	// The reverse order of opening: the ledger goes last, since the others write to it when they close.
	open := []io.Closer{st.Sessions, st.Files, st.Keys, st.Ledger}
	if st.Bridge != nil {
		open = slices.Insert(open, 1, io.Closer(st.Bridge))
	}
	for _, c := range open {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	st.Sessions = nil
}

// Reopen is Close and Open: a restart of the daemon.
// It is what the durability tests do between two steps, since all that a daemon must not forget has to be
// in the ledger by then.
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

// Bash runs text in a session and returns its result; anything but an ordinary end fails the test.
// It is for the steps that prepare a test, where any failure is one of the test's surroundings.
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

// testWriter sends a logger's lines to the test, until it is over.
// Without it, lines of many tests that run at once could not be told apart.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

// Images knows the one image that a Runtime without containers has.
type Images struct{}

// Resolve knows "base".
// Any other name is NotFound in the words of a real store, for tests of the edges.
func (Images) Resolve(_ context.Context, ref string) (session.Image, error) {
	if ref != "base" {
		return session.Image{}, proto.Errorf(proto.NotFound, "", ref,
			"image %.80q is not here; import or pull it first", ref)
	}
	return session.Image{Name: ref, Digest: imageDigest, CreatedAt: time.Unix(0, 0), Platform: "linux/amd64"}, nil
}

// List is "base".
func (i Images) List(ctx context.Context) ([]session.Image, error) {
	img, err := i.Resolve(ctx, "base")
	return []session.Image{img}, err
}

// unsupported is the answer to all that needs a store of images. A test that gets it should run against
// the real runtime.
func unsupported() error {
	return proto.Errorf(proto.Unsupported, "", "", "a runtime without containers has no images")
}

// Import is not supported.
func (Images) Import(context.Context, string, io.Reader, func(session.ImageProgress)) (session.Image, error) {
	return session.Image{}, unsupported()
}

// Pull is not supported.
func (Images) Pull(context.Context, string, func(session.ImageProgress)) (session.Image, error) {
	return session.Image{}, unsupported()
}

// Remove is not supported.
func (Images) Remove(context.Context, string) error { return unsupported() }

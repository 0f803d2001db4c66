// Package envd is the agent of a sandbox as E2B's clients know it, on port 49983: processes, terminals, files and
// watches of directories. It is served by the daemon, for the container that api/e2b has found and allowed.
//
//	process.go     process.Process: commands and terminals
//	filesystem.go  filesystem.Filesystem: entries of directories
//	watch.go       its watches
//	files.go       /files: contents of files
//
// A process is an exec that goes on without its client. What clients may still ask for after a call is in memory:
// tags of processes, and watchers that are polled.
package envd

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"path"
	"strings"
	"time"

	"berth/api"
	"berth/api/e2b/connectrpc"
	"berth/api/e2b/usage"
	"berth/proto"
	"berth/session"
	"berth/session/stats"
)

// A Config has what the agent of every sandbox uses.
type Config struct {
	Stats *stats.Store // nil: nothing is measured
	// Gone reports whether a sandbox has ended or is paused. Its streams then break off.
	Gone func(*session.Session) bool
	// Begin returns the user and the directory of processes that name none, or "" for the usual ones. nil: they are
	// always the usual ones.
	Begin func(context.Context, *session.Session) (user, dir string)
}

// An Agent serves the agents of all sandboxes.
type Agent struct {
	cfg      Config
	tags     tags
	homes    homes
	watchers watchers
	ctx      context.Context
	close    context.CancelFunc
}

// New makes an agent.
func New(cfg Config) *Agent {
	a := &Agent{cfg: cfg}
	a.ctx, a.close = context.WithCancel(context.Background())
	return a
}

// Close ends the watchers.
func (a *Agent) Close() error {
	a.close()
	a.watchers.wg.Wait()
	return nil
}

// A box is the sandbox of one request, and the user that the request is for.
type box struct {
	*Agent
	s    *session.Session
	user string
	dir  string // of processes that name none; "" is the home of the user
}

// Serve serves one request to the agent of a sandbox, whose caller api/e2b has checked.
func (a *Agent) Serve(w http.ResponseWriter, r *http.Request, s *session.Session) error {
	switch r.Method + " " + r.URL.Path {
	case "GET /files", "HEAD /files":
		return fileError(a.readFile(w, r, s))
	case "POST /files":
		return fileError(a.writeFiles(w, r, s))
	case "GET /metrics":
		return fileError(a.metrics(w, s))
	}
	service, method, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if r.Method != http.MethodPost || !ok || service != "process.Process" && service != "filesystem.Filesystem" {
		return fileError(proto.Errorf(proto.NotFound, "", "", "the agent has no %s %.80q", r.Method, r.URL.Path))
	}
	b := a.boxOf(r, s, userOf(r))
	if service == "process.Process" {
		return b.process(w, r, method)
	}
	return b.filesystem(w, r, method)
}

// broken returns the error that ends a stream. Where the sandbox is gone, it breaks the stream off.
func (b box) broken(err error) error {
	if err != nil && b.cfg.Gone(b.s) {
		return connectrpc.Abort(err)
	}
	return b.s.HideError(err)
}

// unknownMethod refuses a method that a service does not have.
func unknownMethod(w http.ResponseWriter, r *http.Request, method string) error {
	return connectrpc.Unary(w, r, func(context.Context, struct{}) (struct{}, error) {
		return struct{}{}, proto.Errorf(proto.Unsupported, "", "", "the service has no method %.80q", method)
	})
}

// boxOf returns the box of a request. named is the user that it names, or "".
func (a *Agent) boxOf(r *http.Request, s *session.Session, named string) box {
	b := box{Agent: a, s: s, user: named}
	if a.cfg.Begin != nil {
		var user string
		user, b.dir = a.cfg.Begin(r.Context(), s)
		b.user = cmp.Or(b.user, user)
	}
	b.user = cmp.Or(b.user, proto.UserDefault)
	return b
}

// userOf returns the user that a request names as Basic authentication does, without a password, or "".
func userOf(r *http.Request) string {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Basic") {
		if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err == nil {
			if name, _, _ := strings.Cut(string(plain), ":"); name != "" {
				return name
			}
		}
	}
	return ""
}

// path returns the absolute path that a client means: relative to the home of the user, which ~ stands for.
func (b box) path(ctx context.Context, text string) (string, error) {
	if path.IsAbs(text) {
		_, err := b.home(ctx) // the user must exist
		return path.Clean(text), err
	}
	home, err := b.home(ctx)
	if err != nil {
		return "", err
	}
	if rest, ok := strings.CutPrefix(text, "~"); ok {
		if rest != "" && rest[0] != '/' {
			return "", proto.Invalid("path", "path %.80q: the home of another user cannot be named by ~", text)
		}
		text = "." + rest
	}
	return path.Join(home, text), nil
}

// A fileFailure is an error whose body has the HTTP status as its code.
type fileFailure struct{ error }

// Unwrap returns the cause.
func (f fileFailure) Unwrap() error { return f.error }

// Shape returns the body of the answer.
func (f fileFailure) Shape(message string) any {
	return struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}{api.PlainStatus[proto.CodeOf(f.error)], message}
}

func fileError(err error) error {
	if err == nil {
		return nil
	}
	return fileFailure{err}
}

// mib is what clients count memory in, in bytes.
const mib = 1 << 20

func (a *Agent) metrics(w http.ResponseWriter, s *session.Session) error {
	now := proto.Stats{Timestamp: proto.At(time.Now())}
	if a.cfg.Stats != nil {
		now = a.cfg.Stats.Now(s.Info())
	}
	u := usage.Of(now)
	return api.JSON(w, http.StatusOK, map[string]any{"ts": now.Timestamp.Unix(), "cpu_count": u.CPUCount,
		"cpu_used_pct": u.CPUPercent, "mem_total": u.MemTotal, "mem_used": u.MemUsed, "mem_cache": u.MemCache,
		"mem_total_mib": u.MemTotal / mib, "mem_used_mib": u.MemUsed / mib, "disk_used": u.DiskUsed,
		"disk_total": u.DiskTotal})
}

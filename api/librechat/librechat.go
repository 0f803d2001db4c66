// Package librechat is the edge that LibreChat's clients of a code API speak, unmodified: the tools execute_code,
// bash_tool and run_tools_with_code of its agents library, and the application's uploads and downloads.
//
// A session of clients is a container; its ID is spelled as they take IDs (id.go). Its files are stored files of the
// scope of that container, so they outlive it. The parts:
//
//	routes.go     the table of all routes
//	exec.go       a run of code: container, inputs, command, outputs
//	language.go   how each language runs
//	data.go       what is in the working directory before and after
//	program.go    programs that call tools of the client, which live from request to request
//	upload.go, files.go    stored files
//
// Clients put the key into the path of their base URL, since new ones send none; api takes it out.
package librechat

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"time"

	"berth/api"
	"berth/files"
	"berth/proto"
	"berth/session"
	"berth/state/keylock"
	"berth/tools/bridge"
)

// A FileStore has the stored files. files.Store is one.
type FileStore interface {
	Get(ctx context.Context, owner, id string) (proto.StoredFile, error)
	Open(ctx context.Context, owner, id string) (io.ReadSeekCloser, proto.StoredFile, error)
	List(ctx context.Context, owner string, q files.Query) (files.Page, error)
	Stage(ctx context.Context, up files.Upload, r io.Reader) (files.Pending, error)
	Delete(ctx context.Context, owner, id string) error
}

// A Config is what the edge serves. Sessions, Files and Bridge must be set.
type Config struct {
	Sessions     *session.Sessions
	Files        FileStore
	Bridge       *bridge.Bridge
	MaxFileBytes int64         // of one file; 0 is files.DefaultMaxFileBytes
	HoldTime     time.Duration // how long a program waits for the client's answer to its calls; 0 is 10 minutes
	Log          *slog.Logger  // nil: slog.Default
}

// keepTime is how long files are kept, as in the hosted service. The application looks before it uses one again.
const keepTime = 24 * time.Hour

// An Edge serves the routes.
type Edge struct {
	cfg      Config
	locks    keylock.Set // by container: the runs of one take turns, or their files could not be told apart
	programs programs
}

// New makes the edge.
func New(cfg Config) *Edge {
	cfg.MaxFileBytes = cmp.Or(cfg.MaxFileBytes, files.DefaultMaxFileBytes)
	cfg.HoldTime = cmp.Or(cfg.HoldTime, 10*time.Minute)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return &Edge{cfg: cfg}
}

// Close ends programs that wait for their client.
func (e *Edge) Close() error {
	e.programs.close()
	return nil
}

// statuses are those of errors. What is over is not there, and what an image cannot do is wrong with the request:
// clients take other statuses for failures that pass.
var statuses = func() map[proto.Code]int {
	m := map[proto.Code]int{}
	for code, status := range api.PlainStatus {
		m[code] = status
	}
	m[proto.Expired], m[proto.Unsupported] = 404, 422
	return m
}()

// rateLimited is the error by which clients know that the daemon is busy.
const rateLimited = "rate_limited"

// dialect writes errors. Clients show few of them; people read error.
var dialect = api.Dialect{Status: statuses, Body: func(f api.Failure) any {
	body := errorBody{Error: f.Err.Message, Code: f.Err.Code, RequestID: f.RequestID}
	if f.Err.Code == proto.TooMany {
		body.Error, body.Message, body.RetryAfter = rateLimited, f.Err.Message, max(f.Err.RetryAfter, 1)
	}
	return body
}}

// An errorBody is the body of every error.
type errorBody struct {
	Error      string     `json:"error"`
	Code       proto.Code `json:"code"`
	Message    string     `json:"message,omitempty"`
	RetryAfter int64      `json:"retry_after_seconds,omitempty"`
	RequestID  string     `json:"request_id"`
}

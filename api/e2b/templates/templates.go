// Package templates builds what clients of E2B call templates: images, from the steps that clients send. The daemon's
// image builder does the work; this package translates a template to a Dockerfile, keeps the files of its COPY steps
// until then, and remembers builds while clients ask for them.
//
//	recipe.go      a template as clients send it, and its check
//	dockerfile.go  the Dockerfile that it becomes
//	names.go       names and tags of templates
//	uploads.go     files of COPY steps, by owner and hash
//	context.go     the build context
//	builds.go      builds, their states and logs
//	facts.go       what an image remembers of its template
//
// Images are the daemon's, so who calls must be an admin. Builds, uploads and the right to replace a template belong to
// the owner who made them. api/e2b calls this package.
package templates

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"time"

	"berth/build"
	"berth/proto"
)

// A Builder builds images. Package build has one.
type Builder interface {
	Build(ctx context.Context, o proto.BuildOptions, in io.Reader, emit func(proto.BuildEvent)) (proto.Image, error)
}

// A Config has what templates need. Builds, Images and Dir are required.
type Config struct {
	Builds   Builder
	Images   build.Images
	Dir      string        // for uploads
	Network  proto.Network // of the steps of builds
	Limits   proto.Limits  // the most that a sandbox may have
	Reserved []string      // names that no template may have
	// What a name stands for that clients take for granted, the best first.
	Aliases map[string][]string

	MaxUploadBytes  int64 // of one COPY, unpacked; 0 is 4 GiB
	KeepUploadBytes int64 // of all uploads of one owner; 0 is 8 GiB
}

// Templates are the templates of a daemon.
type Templates struct {
	cfg     Config
	uploads uploads
	key     []byte // signs links for uploads; they end with the daemon
	ctx     context.Context
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup // builds

	mu     sync.Mutex // guards what follows
	builds map[string]*entry
	closed bool
}

// New makes the templates of a daemon.
func New(cfg Config) *Templates {
	if cfg.MaxUploadBytes == 0 {
		cfg.MaxUploadBytes = 4 << 30
	}
	if cfg.KeepUploadBytes == 0 {
		cfg.KeepUploadBytes = 8 << 30
	}
	t := &Templates{cfg: cfg, key: []byte(rand.Text()), builds: map[string]*entry{},
		uploads: uploads{dir: filepath.Join(cfg.Dir, "uploads"), most: cfg.MaxUploadBytes, keep: cfg.KeepUploadBytes}}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	return t
}

// errEnds is the end of builds when the daemon ends.
var errEnds = proto.Errorf(proto.Unavailable, "build", "", "the daemon ends; build again")

// Close ends all builds.
func (t *Templates) Close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel(errEnds)
	t.wg.Wait()
	return nil
}

// now is the time of records.
func now() time.Time { return time.Now().UTC() }

// cause returns why a context ended, or err.
func cause(ctx context.Context, err error) error {
	var known *proto.Error
	if errors.As(context.Cause(ctx), &known) {
		return known
	}
	return err
}

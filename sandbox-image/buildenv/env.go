// Package buildenv has what all parts of an image build share: the cache directory and its lock, progress reports, the
// running of programs in namespaces of their own, and errors. Package sandboximage and the packages below it use it. It
// knows nothing about images.
package buildenv

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// The steps of a build, in order.
const (
	StepWaiting        = "waiting"         // another build holds the cache
	StepUpdating       = "updating"        // fetching package lists, in files
	StepDownloading    = "downloading"     // in packages
	StepUnpackingLayer = "unpacking layer" // of the image below, or of an earlier build; in bytes
	StepUnpacking      = "unpacking"       // in packages
	StepConfiguring    = "configuring"     // in packages; overlaps with unpacking
	StepInstalling     = "installing"      // Python packages and modules of npm, in wheels
	StepFinishing      = "finishing"       // setting up users, links and caches; no count
	StepPacking        = "packing"         // in bytes of the image's files
)

// A Step is the progress of a build. The counts of a step only grow.
type Step struct {
	Name  string // one of the Step constants
	Layer string // the layer being built, of an image that extends another; may be empty
	Item  string // the present item, such as a package; may be empty
	Done  int64
	Total int64 // 0 if unknown
	Bytes bool  // Done and Total are bytes, not a number of items
}

// An Env is what all parts of a build share.
type Env struct {
	Cache    string     // the cache directory, absolute
	Log      io.Writer  // gets the output of programs; nil: none
	Progress func(Step) // gets every step; nil: not called
	Layer    string     // Step.Layer
}

// Step reports progress.
func (e *Env) Step(s Step) {
	s.Layer = e.Layer
	if e.Progress != nil {
		e.Progress(s)
	}
}

// lockPoll is the time between two attempts of a waiting build. A context cannot interrupt flock(2).
const lockPoll = 200 * time.Millisecond

// Lock makes this the only build in the cache, and returns the function that ends that. The kernel drops the lock of
// a dead process.
func (e *Env) Lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(e.Cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, IOError("the cache's lock", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, IOError("the cache's lock", err)
		}
		e.Step(Step{Name: StepWaiting})
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

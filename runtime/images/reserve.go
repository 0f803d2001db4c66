package images

import (
	"context"
	"io"
	"time"

	"berth/proto"
	"berth/runtime/diskpool"
)

// The maker of an image decides how much it unpacks to: a few MiB can become any number of TiB. No limit of a
// container applies, so the store watches the disk of the daemon's own records while an image arrives.

const (
	// Images leave free the smaller of mostReserve, in bytes, and a twentieth of the disk.
	mostReserve = 1 << 30
	// ReserveEvery is the interval between two checks of the disk. In between, a fast disk takes less than the
	// reserve.
	ReserveEvery = 100 * time.Millisecond
)

// KeepReserve returns a context that ends, with an error for the caller, when images have left too little free space
// on the data directory's disk. The returned function ends the watch.
func (i *Store) KeepReserve(ctx context.Context, op, image string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		tick := time.NewTicker(ReserveEvery)
		defer tick.Stop()
		for i.hasReserve() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		cancel(proto.Errorf(proto.QuotaExceeded, op, image, "the image does not fit on the disk of the data "+
			"directory; make room, or give the daemon a larger one"))
	}()
	return ctx, func() { cancel(nil); <-watched }
}

// whileWanted reads from in until ctx ends. containerd copies an image's blobs without looking at a context, and a
// compressed blob can have any size.
type whileWanted struct {
	ctx context.Context
	in  io.Reader
}

func (w whileWanted) Read(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, context.Cause(w.ctx)
	}
	return w.in.Read(p)
}

// hasReserve reports whether the data directory's disk has the reserve free. A disk that does not report its free
// space counts as having it.
func (i *Store) hasReserve() bool {
	free, _, err := diskpool.DiskSpace(i.cfg.Dir)
	return err != nil || free > i.Reserve
}

// reserveOf returns how much images leave free on the disk of dir, in bytes.
func reserveOf(dir string) int64 {
	_, size, err := diskpool.DiskSpace(dir)
	if err != nil {
		return mostReserve
	}
	return min(mostReserve, size/20)
}

package images

import (
	"context"
	"io"
	"time"

	"berth/proto"
	"berth/runtime/diskpool"
)

// What an image unpacks to is for whoever made it to decide: a few MiB can become any number of TiB. Nothing that
// containers hold limits it, so the disk that the daemon's own records are on is watched while an image arrives.

const (
	// mostReserve and a twentieth of the disk, whichever is less, images leave free.
	mostReserve = 1 << 30
	// ReserveEvery is how often the disk is looked at; in between a fast one takes less than the reserve.
	ReserveEvery = 100 * time.Millisecond
)

// KeepReserve returns a context that ends, with an error to show, when images have left too little of the data
// directory's disk. The returned function ends the watch.
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

// whileWanted is in for as long as ctx is. Whoever copies an image's blobs does not look at a context, and one that
// was compressed can be of any size.
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

// hasReserve reports whether the data directory's disk has what must stay free. A disk that cannot be asked has.
func (i *Store) hasReserve() bool {
	free, _, err := diskpool.DiskSpace(i.cfg.Dir)
	return err != nil || free > i.Reserve
}

// reserveOf is what images leave free on the disk of dir, in bytes.
func reserveOf(dir string) int64 {
	_, size, err := diskpool.DiskSpace(dir)
	if err != nil {
		return mostReserve
	}
	return min(mostReserve, size/20)
}

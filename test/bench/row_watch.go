package bench

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"berth/client"
	"berth/proto"
)

// watch measures how long after a write a client that watches the directory knows of it: a write over HTTP, which
// takes turns with one that nobody watches, and one of a program in the container.
func (b *bench) watch(ctx context.Context, res *Result) error {
	d, err := b.daemon(ctx)
	if err != nil {
		return err
	}
	id, err := d.container(ctx)
	if err != nil {
		return err
	}
	defer d.leave(ctx)
	const watched, other = proto.WorkspaceDir + "/watched", proto.WorkspaceDir + "/unwatched"
	if err := d.bash(ctx, id, "mkdir -p "+watched+" "+other); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := d.watching(ctx, id, watched)
	if _, err := w.await(ctx, proto.FileWatched, ""); err != nil {
		return err
	}
	n, fs := 0, d.FS(id, proto.UserDefault)
	write := func(dir string) (string, error) {
		n++
		name := fmt.Sprint("file", n)
		_, err := fs.Write(ctx, path.Join(dir, name), 0, strings.NewReader("x"), 1)
		return name, err
	}
	const alone, known, within = "a write", "a write until its event", "a write inside until its event"
	err = b.inTurns(ctx, res, b.rounds(200), []*turn{
		{name: pingFloor, role: Floor, op: func(ctx context.Context) (float64, error) {
			return timed(func() error { return d.Ping(ctx) })
		}},
		{name: alone, role: Floor, op: func(context.Context) (float64, error) {
			return timed(func() error { _, err := write(other); return err })
		}},
		{name: known, role: Ours, loud: true, op: func(context.Context) (float64, error) {
			return timed(func() error {
				name, err := write(watched)
				if err == nil {
					_, err = w.await(ctx, proto.FileCreated, name)
				}
				return err
			})
		}},
		{name: within, role: Ours, loud: true, op: func(ctx context.Context) (float64, error) {
			// A file's name is the time at which it is made.
			if err := d.bash(ctx, id, ": >"+watched+"/"+timeName+"$EPOCHREALTIME"); err != nil {
				return 0, err
			}
			ev, err := w.await(ctx, proto.FileCreated, timeName)
			if err != nil {
				return 0, err
			}
			return ev.age()
		}},
	})
	if err != nil {
		return err
	}
	res.against(known, atMost(1.5), alone)
	res.against(within, lower, pingFloor)
	res.note("A write inside is one of a program: its time is from there to the client, and contains no request. " +
		"Containers have the host's clock.")
	return nil
}

// timeName begins the names of files that end with the time at which they were made.
const timeName = "at-"

// A seen is an event of a watch, with the time at which the client had it.
type seen struct {
	proto.FileEvent
	at time.Time
}

// age returns the time from the file's name until the event arrived, in ms.
func (s seen) age() (float64, error) {
	// seconds, a dot and six digits
	micros, err := strconv.ParseInt(strings.Replace(strings.TrimPrefix(s.Name, timeName), ".", "", 1), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the file %q has no time: %w", s.Name, err)
	}
	return float64(s.at.UnixMicro()-micros) / 1000, nil
}

// A watcher watches a directory until its context ends.
type watcher struct {
	events chan seen
	ended  chan error
}

// watching begins to watch a directory of a container.
func (d *daemon) watching(ctx context.Context, id, dir string) *watcher {
	w := &watcher{events: make(chan seen, 64), ended: make(chan error, 1)}
	go func() {
		w.ended <- d.FS(id, proto.UserDefault).Watch(ctx, dir, client.WatchOptions{}, func(ev proto.FileEvent) error {
			w.events <- seen{ev, time.Now()}
			return nil
		})
	}()
	return w
}

// await returns the next event of a kind about a file whose name begins like that.
func (w *watcher) await(ctx context.Context, kind proto.FileEventType, name string) (seen, error) {
	for {
		select {
		case ev := <-w.events:
			if ev.Type == kind && strings.HasPrefix(ev.Name, name) {
				return ev, nil
			}
		case err := <-w.ended:
			return seen{}, errors.Join(errors.New("the watch has ended"), err)
		case <-ctx.Done():
			return seen{}, ctx.Err()
		}
	}
}

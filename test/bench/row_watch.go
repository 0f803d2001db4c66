package bench

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"berth/client"
	"berth/proto"
)

// watch measures how long after a write over HTTP a client that watches the directory knows of it. The write alone
// takes turns with it.
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
	fs := d.FS(id, proto.UserDefault)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, ended := make(chan proto.FileEvent, 64), make(chan error, 1)
	go func() {
		ended <- fs.Watch(ctx, watched, client.WatchOptions{}, func(ev proto.FileEvent) error {
			events <- ev
			return nil
		})
	}()
	await := func(kind proto.FileEventType, name string) error {
		for {
			select {
			case ev := <-events:
				if ev.Type == kind && ev.Name == name {
					return nil
				}
			case err := <-ended:
				return errors.Join(errors.New("the watch has ended"), err)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if err := await(proto.FileWatched, ""); err != nil {
		return err
	}
	n := 0
	write := func(dir string) (string, error) {
		n++
		name := fmt.Sprint("file", n)
		_, err := fs.Write(ctx, path.Join(dir, name), 0, strings.NewReader("x"), 1)
		return name, err
	}
	const alone, known = "a write", "a write until its event"
	err = b.inTurns(ctx, res, b.rounds(200), []*turn{
		{name: alone, role: Floor, op: func(context.Context) (float64, error) {
			return timed(func() error { _, err := write(other); return err })
		}},
		{name: known, role: Ours, loud: true, op: func(context.Context) (float64, error) {
			return timed(func() error {
				name, err := write(watched)
				if err != nil {
					return err
				}
				return await(proto.FileCreated, name)
			})
		}},
	})
	if err != nil {
		return err
	}
	res.against(known, atMost(1.5), alone)
	return nil
}

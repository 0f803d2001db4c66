package bench

import (
	"context"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
)

const goClient = "containerd's Go client" // name of the comparator

// A library uses ctr's containerd as Go programs do: over one connection, without command lines.
type library struct {
	ctr    *comparator
	client *containerd.Client
	image  containerd.Image
}

// library connects to containerd. The caller must close the client.
func (c *comparator) library(ctx context.Context) (*library, error) {
	client, err := containerd.New(c.socket, containerd.WithDefaultNamespace("default")) // the namespace that ctr uses
	if err != nil {
		return nil, err
	}
	l := &library{ctr: c, client: client}
	if l.image, err = client.GetImage(ctx, image); err != nil {
		_ = client.Close() // the first error says more
		return nil, err
	}
	return l, nil
}

// whole is like comparator.whole, with the same time limit and cleanup.
func (l *library) whole(ctx context.Context, id string) error {
	ctx, cancel := within(ctx, lineMost)
	defer cancel()
	err := l.live(ctx, id)
	if err != nil {
		_ = l.ctr.delete(ctx, id) // it may be gone already
	}
	return err
}

// live creates a container that runs `true`, waits for its end, and deletes it with its snapshot.
func (l *library) live(ctx context.Context, id string) error {
	container, err := l.client.NewContainer(ctx, id, containerd.WithImage(l.image), containerd.WithNewSnapshot(
		id, l.image),
		containerd.WithNewSpec(oci.WithImageConfig(l.image), oci.WithProcessArgs("true")))
	if err != nil {
		return err
	}
	task, err := container.NewTask(ctx, cio.NullIO)
	if err != nil {
		return err
	}
	ended, err := task.Wait(ctx)
	if err != nil {
		return err
	}
	if err := task.Start(ctx); err != nil {
		return err
	}
	switch status, _, err := (<-ended).Result(); {
	case err != nil:
		return err
	case status != 0:
		return fmt.Errorf("true ended with %d", status)
	}
	if _, err := task.Delete(ctx); err != nil {
		return err
	}
	return container.Delete(ctx, containerd.WithSnapshotCleanup)
}

package client

import (
	"context"
	"net/http"
	"net/url"

	"berth/proto"
)

// CreateSnapshot keeps all files of a container as they are now.
func (c *Client) CreateSnapshot(ctx context.Context, container string, req proto.CreateSnapshot) (proto.Snapshot,
	error) {
	return post[proto.Snapshot](ctx, c, at("containers", container, "snapshots"), req)
}

// Snapshots lists the snapshots of the key's owner, newest first: of the container with that ID, or of all if it is "".
func (c *Client) Snapshots(ctx context.Context, container string, labels []string) ([]proto.Snapshot, error) {
	q := url.Values{"label": labels}
	if container != "" {
		q.Set("container", container)
	}
	return listPages[proto.Snapshot](ctx, c, at("snapshots"), q)
}

// Snapshot returns the snapshot with that ID or name.
func (c *Client) Snapshot(ctx context.Context, ref string) (proto.Snapshot, error) {
	return get[proto.Snapshot](ctx, c, at("snapshots", ref), nil)
}

// DeleteSnapshot removes the snapshot with that ID or name. Containers that were made of it stay.
func (c *Client) DeleteSnapshot(ctx context.Context, ref string) error {
	return c.do(ctx, http.MethodDelete, at("snapshots", ref))
}

// Restore gives a container the files of a snapshot in place of its own, and ends its processes.
func (c *Client) Restore(ctx context.Context, container, snapshot string) (proto.Container, error) {
	return post[proto.Container](ctx, c, at("containers", container, "restore"),
		proto.RestoreContainer{Snapshot: snapshot})
}

// Fork makes copies of a container. If one of them cannot be made, none is.
func (c *Client) Fork(ctx context.Context, container string, count int) ([]proto.Container, error) {
	type forks struct {
		Data []proto.Container `json:"data"`
	}
	made, err := post[forks](ctx, c, at("containers", container, "fork"), proto.ForkContainer{Count: count})
	return made.Data, err
}

// ExportSnapshot opens an OCI archive with the image and the files of a snapshot. The caller closes it.
func (c *Client) ExportSnapshot(ctx context.Context, ref, name string) (*Download, error) {
	r := request{method: http.MethodGet, path: at("snapshots", ref, "archive"), query: url.Values{}}
	if name != "" {
		r.query.Set("name", name)
	}
	return c.download(ctx, r)
}

// CommitSnapshot makes an image of a snapshot.
func (c *Client) CommitSnapshot(ctx context.Context, ref, name string, progress func(proto.ImageProgress)) (proto.Image,
	error) {
	body := struct {
		Name string `json:"name,omitempty"`
	}{name}
	return c.imageStream(ctx, request{method: http.MethodPost, path: at("snapshots", ref, "image"), body: body},
		progress)
}

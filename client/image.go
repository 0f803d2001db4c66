package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"berth/proto"
)

// Images lists the daemon's images.
func (c *Client) Images(ctx context.Context) ([]proto.Image, error) {
	return list[proto.Image](ctx, c, at("images"), nil)
}

// ImportImage sends an OCI or Docker archive of size bytes (0: unknown). With an empty name, the image gets the name
// in the archive.
func (c *Client) ImportImage(ctx context.Context, name string, archive io.Reader, size int64,
	progress func(proto.ImageProgress)) (proto.Image, error) {
	q := url.Values{}
	if name != "" {
		q.Set("name", name)
	}
	return c.imageStream(ctx, request{method: http.MethodPost, path: at("images", "import"), query: q, raw: archive,
		size: size}, progress)
}

// PullImage makes the daemon pull an image from its registry.
//
// With Config.Wait, the pull begins anew when the daemon goes away.
func (c *Client) PullImage(ctx context.Context, ref string, progress func(proto.ImageProgress)) (img proto.Image,
	err error) {
	body := struct {
		Ref string `json:"ref"`
	}{ref}
	r := request{method: http.MethodPost, path: at("images", "pull"), body: body}
	err = c.Redo(ctx, func() error { // layers that have come stay
		img, err = c.imageStream(ctx, r, progress)
		return err
	})
	return img, err
}

// RemoveImage removes an image's name. The name is in the query, because it contains slashes.
func (c *Client) RemoveImage(ctx context.Context, ref string) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: at("images"), query: url.Values{"ref": {ref}}}, nil)
	return err
}

// An imageLine is one line of the answer to an import or pull: progress, the image, or an error.
type imageLine struct {
	proto.ImageProgress
	Image *proto.Image `json:"image"`
	Error *proto.Error `json:"error"`
}

// imageStream reads lines until one has the image or an error. An answer without either was cut off.
func (c *Client) imageStream(ctx context.Context, r request, progress func(proto.ImageProgress)) (img proto.Image,
	err error) {
	res, err := c.send(ctx, r)
	if err != nil {
		return img, err
	}
	defer res.Body.Close()
	// The daemon sends lines while it receives the body, so an import shows progress before the upload ends.
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var line imageLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return img, c.decode(ctx, bytes.NewReader(lines.Bytes()), &line)
		}
		switch {
		// Status 200 was sent before the work began, so only a line can report an error.
		case line.Error != nil:
			return img, line.Error
		case line.Image != nil:
			return *line.Image, nil
		case progress != nil:
			progress(line.ImageProgress)
		}
	}
	if err := lines.Err(); err != nil {
		return img, c.broken(ctx, err)
	}
	return img, c.brokenOff("the daemon broke off before the image was complete; send it again")
}

// Registries lists the registries that the daemon has credentials for.
func (c *Client) Registries(ctx context.Context) ([]proto.Registry, error) {
	return list[proto.Registry](ctx, c, at("registries"), nil)
}

// SetRegistry sets the credentials for a registry. The daemon asks the registry whether it takes them.
func (c *Client) SetRegistry(ctx context.Context, host string, req proto.SetRegistry) (proto.Registry, error) {
	return put[proto.Registry](ctx, c, at("registries", host), req)
}

// RemoveRegistry makes the daemon forget the credentials for a registry.
func (c *Client) RemoveRegistry(ctx context.Context, host string) error {
	return c.do(ctx, http.MethodDelete, at("registries", host))
}

// PushImage makes the daemon push an image to a registry. The result has the name there.
func (c *Client) PushImage(ctx context.Context, req proto.PushImage, progress func(proto.ImageProgress)) (proto.Image,
	error) {
	return c.imageStream(ctx, request{method: http.MethodPost, path: at("images", "push"), body: req}, progress)
}

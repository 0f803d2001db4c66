package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"berth/proto"
	"berth/proto/sse"
)

// BuildImage sends a build context, a tar with a Dockerfile, and builds an image from it. Secrets of o go before it.
// emit gets each event; it may be nil. The build ends with ctx.
func (c *Client) BuildImage(ctx context.Context, o proto.BuildOptions, archive io.Reader,
	emit func(proto.BuildEvent)) (img proto.Image, err error) {
	r := request{method: http.MethodPost, path: at("images", "build"), query: buildQuery(o), raw: archive}
	if len(o.Secrets) > 0 {
		form, contentType, err := buildForm(o.Secrets, archive)
		if err != nil {
			return img, err
		}
		r.raw, r.header = form, map[string]string{"Content-Type": contentType}
	}
	res, err := c.send(ctx, r)
	if err != nil {
		return img, err
	}
	defer res.Body.Close()
	events := sse.NewReader(res.Body, sse.Options{MaxEvent: maxProgress})
	for {
		raw, err := events.Next()
		if err == io.EOF {
			return img, c.brokenOff("the daemon broke off before the build ended; build again, finished steps are in " +
				"the cache")
		}
		if err != nil {
			return img, c.broken(ctx, err)
		}
		var ev proto.BuildEvent
		if err := json.Unmarshal(raw.Data, &ev); err != nil {
			return img, proto.Errorf(proto.Unavailable, "", c.Host(), "the daemon's answer cannot be read: %v", err)
		}
		switch {
		case ev.Error != nil:
			if emit != nil {
				emit(ev) // it says more than the error
			}
			return img, ev.Error.Error
		case ev.Image != nil:
			return *ev.Image, nil
		case emit != nil:
			emit(ev)
		}
	}
}

// buildForm returns a form of secrets with a build context after them, and its type.
func buildForm(secrets map[string][]byte, archive io.Reader) (body io.Reader, contentType string, err error) {
	if err := proto.CheckBuildSecrets(secrets); err != nil {
		return nil, "", err
	}
	var frame bytes.Buffer
	form := multipart.NewWriter(&frame)
	for _, id := range slices.Sorted(maps.Keys(secrets)) {
		part, err := form.CreateFormFile("secret", id)
		if err == nil {
			_, err = part.Write(secrets[id])
		}
		if err != nil {
			return nil, "", err
		}
	}
	if _, err := form.CreateFormFile("context", "context.tar"); err != nil {
		return nil, "", err
	}
	headLen := frame.Len()
	if err := form.Close(); err != nil {
		return nil, "", err
	}
	head, tail := frame.Bytes()[:headLen], frame.Bytes()[headLen:]
	return io.MultiReader(bytes.NewReader(head), archive, bytes.NewReader(tail)), form.FormDataContentType(), nil
}

// buildQuery returns the options as a query.
func buildQuery(o proto.BuildOptions) url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"name": o.Name, "dockerfile": o.Dockerfile, "target": o.Target,
		"platform": o.Platform, "network": string(o.Network.Mode), "runtime_class": string(o.Class)} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, value := range map[string]int64{"memory_bytes": o.Limits.MemoryBytes, "pids": o.Limits.PIDs,
		"disk_bytes": o.Limits.DiskBytes, "timeout_seconds": o.TimeoutSeconds} {
		if value != 0 {
			q.Set(name, strconv.FormatInt(value, 10))
		}
	}
	for name, value := range map[string]bool{"no_cache": o.NoCache, "pull": o.Pull} {
		if value {
			q.Set(name, "true")
		}
	}
	if o.Limits.CPUs != 0 {
		q.Set("cpus", strconv.FormatFloat(o.Limits.CPUs, 'g', -1, 64))
	}
	for _, name := range o.MoreNames {
		q.Add("name", name)
	}
	for name, value := range o.Args {
		q.Add("build_arg", name+"="+value)
	}
	for name, value := range o.Labels {
		q.Add("label", name+"="+value)
	}
	for _, host := range o.Network.Allow {
		q.Add("allow", host)
	}
	return q
}

// Builds are the caller's builds that wait or run, and the size of its cache.
type Builds struct {
	Builds []proto.Build    `json:"builds"`
	Cache  proto.BuildCache `json:"cache"`
}

// Builds lists the caller's builds.
func (c *Client) Builds(ctx context.Context) (list Builds, err error) {
	_, err = c.call(ctx, request{method: http.MethodGet, path: at("images", "builds")}, &list)
	return list, err
}

// CancelBuild ends a build.
func (c *Client) CancelBuild(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: at("images", "builds", id)}, nil)
	return err
}

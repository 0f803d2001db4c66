package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"berth/proto"
	"berth/proto/sse"
)

// BuildImage sends a build context, a tar with a Dockerfile, and builds an image from it. emit gets each event; it may
// be nil. The build ends with ctx.
func (c *Client) BuildImage(ctx context.Context, o proto.BuildOptions, archive io.Reader,
	emit func(proto.BuildEvent)) (img proto.Image, err error) {
	res, err := c.send(ctx, request{method: http.MethodPost, path: at("images", "build"), query: buildQuery(o),
		raw: archive})
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

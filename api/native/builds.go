package native

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"berth/api"
	"berth/api/buildform"
	"berth/api/openapi"
	"berth/build"
	"berth/proto"
)

// A Builder builds images. Package build has one.
type Builder interface {
	Build(ctx context.Context, o proto.BuildOptions, in io.Reader, emit func(proto.BuildEvent)) (proto.Image, error)
	List(owner string) ([]proto.Build, proto.BuildCache)
	Cancel(owner, id string) error
}

const buildMore = "The body is the build context: a tar with the Dockerfile, which may be compressed with gzip or " +
	"zstd. BuildKit builds it. Each RUN is a command in a sandbox of its own, as root of the image, and has the " +
	"network of this request. Base images come from the daemon, which pulls those that it does not have. Steps that " +
	"an earlier build of the same owner has run are taken from the cache. The answer is a stream of events; the last " +
	"is an image or an error. The build ends when the client goes away. Builds of one owner run one after another. " +
	"Secrets for RUN --mount=type=secret are parts of a form before the context; they are in no layer, cache or record."

// buildQuery are the options of a build.
var buildQuery = []openapi.Param{
	{Name: "name", Required: true, Repeat: true, Description: "Name of the image; with several, it gets all of them."},
	{Name: "platform", Description: "Platform of the image: that of the daemon's host, such as linux/amd64, or none."},
	{Name: "dockerfile", Description: "Path of the Dockerfile in the context; default Dockerfile."},
	{Name: "target", Description: "Stage that becomes the image; default the last."},
	{Name: "build_arg", Repeat: true, Description: "NAME=value for an ARG."},
	{Name: "label", Repeat: true, Description: "key=value: a label of the image."},
	{Name: "no_cache", Kind: openapi.Flag, Description: "Run every step."},
	{Name: "pull", Kind: openapi.Flag, Description: "Ask registries also for base images that the daemon has."},
	{Name: "network", Choices: []string{"", "none", "allowlist", "open"},
		Description: "What RUN and ADD may reach; default allowlist if there are hosts to allow, otherwise none."},
	{Name: "allow", Repeat: true, Description: "A host that RUN and ADD may reach, such as pypi.org or *.debian.org."},
	{Name: "runtime_class", Description: "Class of the sandboxes of steps."},
	{Name: "cpus", Description: "Cores of a step, such as 1.5; default the daemon's limit for containers."},
	{Name: "memory_bytes", Kind: openapi.Whole, Min: 16 << 20,
		Description: "Memory of a step; default the daemon's limit."},
	{Name: "pids", Kind: openapi.Whole, Min: 16,
		Description: "Processes and threads of a step; default the daemon's limit."},
	{Name: "disk_bytes", Kind: openapi.Whole, Min: 16 << 20,
		Description: "Most bytes that the build writes; default the daemon's limit."},
	{Name: "timeout_seconds", Kind: openapi.Whole, Max: int64(build.MaxTimeout / time.Second),
		Description: "The build ends after this time; 0 is the default, an hour."},
}

// The builds of a caller that wait or run, and what the daemon keeps of earlier ones.
type buildList struct {
	page[proto.Build]
	Builds []proto.Build    `json:"builds" schema:"deprecated"` // The same as data.
	Cache  proto.BuildCache `json:"cache"`                      // After the last build.
}

func (e *edge) listBuilds(c *call) (buildList, error) {
	builds, cache := e.Builds.List(c.owner)
	one, err := list(builds, nil)
	return buildList{one, one.Data, cache}, err
}

type cancelledBuild struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"` // Always true.
}

func (e *edge) cancelBuild(c *call) (cancelledBuild, error) {
	id := c.r.PathValue("id")
	return cancelledBuild{id, true}, e.Builds.Cancel(c.owner, id)
}

// buildImage answers with the events of the build. An error before the first event is an ordinary error.
func (e *edge) buildImage(c *call) (any, error) {
	o, err := c.buildOptions()
	if err != nil {
		return nil, err
	}
	var archive io.Reader
	if o.Secrets, archive, err = buildform.Open(c.r); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(c.ctx())
	defer cancel()
	var es *api.EventStream
	send := func(ev proto.BuildEvent) {
		if es == nil {
			es = api.NewEventStream(c.w, c.r)
			context.AfterFunc(es.Context(), cancel) // the client went away, or the daemon drains
		}
		_ = es.Send(string(ev.Type), ev) // a failure ends its context
	}
	img, err := e.Builds.Build(ctx, o, archive, send)
	if es == nil && err != nil {
		return nil, err
	}
	last := proto.BuildEvent{Type: proto.BuildImage, Image: &img}
	if err != nil {
		api.NoteFailure(c.ctx(), err) // the status was 200, so the audit log does not have the failure yet
		last = proto.BuildEvent{Type: proto.BuildFailed, Error: build.Describe(err)}
	}
	send(last)
	es.Close()
	return nil, nil
}

// buildOptions reads the options of a build from the query.
func (c *call) buildOptions() (o proto.BuildOptions, err error) {
	q := c.query
	o = proto.BuildOptions{
		Name: q.Get("name"), Platform: q.Get("platform"), Dockerfile: q.Get("dockerfile"), Target: q.Get("target"),
		NoCache: c.flag("no_cache"),
		Pull:    c.flag("pull"), Class: proto.RuntimeClass(q.Get("runtime_class")), Args: map[string]string{},
		Network: proto.Network{Mode: proto.NetworkMode(q.Get("network")), Allow: q["allow"]},
		Limits: proto.Limits{MemoryBytes: c.limit("memory_bytes"), PIDs: c.limit("pids"),
			DiskBytes: c.limit("disk_bytes")},
		TimeoutSeconds: c.whole("timeout_seconds"),
	}
	if names := q["name"]; len(names) > 1 {
		o.MoreNames = names[1:]
	}
	if text := q.Get("cpus"); text != "" {
		if o.Limits.CPUs, err = strconv.ParseFloat(text, 64); err != nil || o.Limits.CPUs != o.Limits.CPUs {
			return o, proto.Invalid("cpus", "cpus must be a number such as 1.5, not %.80q.", text)
		}
		if o.Limits.CPUs == 0 {
			o.Limits.CPUs = proto.NoLimit
		}
	}
	for _, pair := range q["build_arg"] {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return o, proto.Invalid("build_arg", "build_arg %.80q: write build_arg=NAME=value.", pair)
		}
		o.Args[name] = value
	}
	o.Labels, err = c.labels()
	return o, err
}

// Package inprocess runs containerd's server inside the daemon and calls it without a socket. It sends what
// containerd and its shims log to our log, moves layers aside that only a lost database knew, and removes snapshots
// that a killed daemon did not finish. Package containerd, the runtime, is its only caller.
package inprocess

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	diffapi "github.com/containerd/containerd/api/services/diff/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	namespacesapi "github.com/containerd/containerd/api/services/namespaces/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/cmd/containerd/server"
	srvconfig "github.com/containerd/containerd/v2/cmd/containerd/server/config"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/introspection"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/containerd/v2/plugins/services"
	"github.com/containerd/containerd/v2/version"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"

	// The parts of containerd that we use. We leave out CRI, NRI, its gRPC and metrics servers, other snapshotters,
	// restart and transfer. We also leave out its mount manager, which asks the shim about itself at each create and
	// which plain mounts do not need.
	_ "github.com/containerd/containerd/v2/core/runtime/v2"
	_ "github.com/containerd/containerd/v2/plugins/content/local/plugin"
	_ "github.com/containerd/containerd/v2/plugins/diff/walking/plugin"
	_ "github.com/containerd/containerd/v2/plugins/events"
	_ "github.com/containerd/containerd/v2/plugins/gc"
	_ "github.com/containerd/containerd/v2/plugins/leases"
	_ "github.com/containerd/containerd/v2/plugins/metadata"
	_ "github.com/containerd/containerd/v2/plugins/server/ttrpc"
	_ "github.com/containerd/containerd/v2/plugins/services/containers"
	_ "github.com/containerd/containerd/v2/plugins/services/content"
	_ "github.com/containerd/containerd/v2/plugins/services/diff"
	_ "github.com/containerd/containerd/v2/plugins/services/events"
	_ "github.com/containerd/containerd/v2/plugins/services/images"
	_ "github.com/containerd/containerd/v2/plugins/services/introspection"
	_ "github.com/containerd/containerd/v2/plugins/services/leases"
	_ "github.com/containerd/containerd/v2/plugins/services/namespaces"
	_ "github.com/containerd/containerd/v2/plugins/services/snapshots"
	_ "github.com/containerd/containerd/v2/plugins/services/tasks"
	_ "github.com/containerd/containerd/v2/plugins/services/warning"
	_ "github.com/containerd/containerd/v2/plugins/snapshots/overlay/plugin"

	"berth/runtime/images"
)

// inProcess is the plugin that gives us containerd's services without a socket between. We request it last, when all
// that it needs is loaded.
const inProcess plugin.Type = "berth.client.v1"

func init() {
	registry.Register(&plugin.Registration{
		Type: inProcess,
		ID:   "client",
		Requires: []plugin.Type{
			plugins.EventPlugin, plugins.LeasePlugin, plugins.ServicePlugin, plugins.GCPlugin,
			plugins.RuntimePluginV2, plugins.GRPCPlugin,
		},
		InitFn: func(ic *plugin.InitContext) (any, error) {
			opt, err := localServices(ic)
			if err != nil {
				return nil, err
			}
			c, err := client.New("", opt, client.WithDefaultNamespace(images.Namespace))
			if err != nil {
				return nil, err
			}
			services, err := ic.GetByType(plugins.GRPCPlugin)
			if err != nil {
				return nil, err
			}
			handOver <- loaded{c, services}
			return c, nil
		},
	})
}

// handOver carries what the plugin above has found to Start. Plugins are registered for the whole process, so they
// cannot know which Runtime starts them.
var handOver = make(chan loaded, 1)

// loaded are the parts of a containerd that has loaded.
type loaded struct {
	client   *client.Client
	services map[string]any // that can be served over gRPC, by name
}

// A Containerd runs in this process.
type Containerd struct {
	Client *client.Client
	Stop   func() // ends it; sandboxes and their shims go on

	services map[string]any
}

// A Config says where a containerd keeps its data. All fields are required.
type Config struct {
	Dir string // the daemon's data directory
	Run string // directory of its state and sockets
	Log *slog.Logger

	Running func() ([]string, error) // lists the sandboxes that may run on its layers
}

// Start runs a containerd in this process until Stop is called. It lives longer than the call that ctx belongs to.
func Start(ctx context.Context, cfg Config) (_ *Containerd, err error) {
	if err := logShims(cfg.Log); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(logContext(context.WithoutCancel(ctx), cfg.Log))
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	if err := settleLayers(cfg); err != nil {
		return nil, err
	}
	if err := dropUncommitted(ctx, filepath.Join(cfg.Dir, "ctr", layersDir)); err != nil {
		return nil, err
	}
	conf, err := embedConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	srv, err := server.New(ctx, conf)
	if err != nil {
		return nil, fmt.Errorf("loading containerd: %w", err)
	}
	stop := func() { cancel(); srv.Stop() }
	select {
	case c := <-handOver:
		if err := srv.Start(ctx); err != nil {
			stop()
			return nil, fmt.Errorf("serving containerd's events: %w", err)
		}
		return &Containerd{Client: c.client, Stop: stop, services: c.services}, nil
	default:
		stop()
		return nil, fmt.Errorf("containerd did not load all its parts")
	}
}

// embedConfig returns containerd's configuration. Its database is synced (no_sync stays off). That costs half a
// millisecond of some 70 for each start. A database torn by a power cut would cost all images.
func embedConfig(ctx context.Context, cfg Config) (*srvconfig.Config, error) {
	run := cfg.Run
	conf := &srvconfig.Config{
		Version: version.ConfigVersion,
		Root:    filepath.Join(cfg.Dir, "ctr"),
		State:   filepath.Join(run, "c"),
		Plugins: map[string]any{
			"io.containerd.server.v1.ttrpc": map[string]any{"address": filepath.Join(run, "t")},
			"io.containerd.shim.v1.manager": map[string]any{"socket_dir": filepath.Join(run, "s")},
			// If unset, shims would be told the address of another containerd on this host.
			"io.containerd.server.v1.grpc": map[string]any{"address": filepath.Join(run, "g")},
		},
		RequiredPlugins: []string{string(inProcess) + ".client"},
	}
	if err := os.MkdirAll(filepath.Join(run, "s"), 0o700); err != nil {
		return nil, err
	}
	return conf, server.CreateTopLevelDirectories(conf)
}

// localServices collects containerd's services in the form that the client takes.
func localServices(ic *plugin.InitContext) (client.Opt, error) {
	events, err := ic.GetSingle(plugins.EventPlugin)
	if err != nil {
		return nil, err
	}
	lease, err := ic.GetSingle(plugins.LeasePlugin)
	if err != nil {
		return nil, err
	}
	all, err := ic.GetByType(plugins.ServicePlugin)
	if err != nil {
		return nil, err
	}
	opts := []client.ServicesOpt{
		client.WithEventService(events.(client.EventService)),
		client.WithLeasesService(lease.(leases.Manager)),
	}
	for name, with := range serviceOpts {
		if all[name] == nil {
			return nil, fmt.Errorf("containerd's %s is missing", name)
		}
		opts = append(opts, with(all[name]))
	}
	return client.WithServices(opts...), nil
}

var serviceOpts = map[string]func(any) client.ServicesOpt{
	services.ContentService: func(s any) client.ServicesOpt {
		return client.WithContentStore(s.(content.Store))
	},
	services.ImagesService: func(s any) client.ServicesOpt {
		return client.WithImageClient(s.(imagesapi.ImagesClient))
	},
	services.SnapshotsService: func(s any) client.ServicesOpt {
		return client.WithSnapshotters(s.(map[string]snapshots.Snapshotter))
	},
	services.ContainersService: func(s any) client.ServicesOpt {
		return client.WithContainerClient(s.(containersapi.ContainersClient))
	},
	services.TasksService: func(s any) client.ServicesOpt {
		return client.WithTaskClient(s.(tasksapi.TasksClient))
	},
	services.DiffService: func(s any) client.ServicesOpt {
		return client.WithDiffClient(s.(diffapi.DiffClient))
	},
	services.NamespacesService: func(s any) client.ServicesOpt {
		return client.WithNamespaceClient(s.(namespacesapi.NamespacesClient))
	},
	services.IntrospectionService: func(s any) client.ServicesOpt {
		return client.WithIntrospectionService(s.(introspection.Service))
	},
}

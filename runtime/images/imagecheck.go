package images

import (
	"context"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"berth/proto"
)

// Limits of an image. An import or a pull checks them, so that the error does not come with the start of a container.
const (
	// maxLayers is more than builders make, which stop at 127. It is less than overlayfs accepts when each layer is
	// mapped to a container's users.
	maxLayers = 128
	// MaxVariable and maxEnvironment, in bytes, are below the kernel's 128 KiB for one variable and 2 MiB for all.
	// The rest is for the variables of a command.
	MaxVariable    = 64 << 10
	MaxEnvironment = 512 << 10
)

// checkImage refuses an image that no container could use.
func (i *Store) checkImage(ctx context.Context, op, name string, desc ocispec.Descriptor) error {
	mf, err := images.Manifest(ctx, i.documents(), desc, platforms.All)
	if err != nil {
		return i.ArchiveError(ctx, op, name, err)
	}
	conf, err := i.config(ctx, desc)
	if err != nil {
		return i.ArchiveError(ctx, op, name, err)
	}
	bad := func(format string, args ...any) error {
		return proto.Errorf(proto.InvalidArgument, op, name, format, args...)
	}
	switch n := len(mf.Layers); {
	case n == 0 || len(conf.RootFS.DiffIDs) != n:
		return bad("the image has %d layers, its configuration %d; it takes one, and as many of both", n,
			len(conf.RootFS.DiffIDs))
	case n > maxLayers:
		return bad("the image has %d layers, %d are the most; build it with fewer", n, maxLayers)
	}
	all := 0
	for _, kv := range conf.Config.Env {
		if all += len(kv) + 1; len(kv) > MaxVariable || all > MaxEnvironment {
			return bad("the image's environment is too large: %d bytes are the most for one variable, %d for all",
				MaxVariable, MaxEnvironment)
		}
	}
	return nil
}

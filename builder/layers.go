package main

import (
	"context"
	"errors"
	"reflect"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/moby/buildkit/executor"
	"github.com/moby/buildkit/snapshot"
)

// sharedLayers are containerd's layers, in which BuildKit also finds those that the daemon has unpacked. BuildKit names
// the layers of images in its own way, and would unpack every base image once more. The daemon's have been checked
// against the image's configuration when they were unpacked.
type sharedLayers struct{ snapshots.Snapshotter }

// actual returns the name of an existing layer.
func (s sharedLayers) actual(ctx context.Context, key string) string {
	chain, ok := snapshot.ParseLayerSnapshotID(key)
	if !ok {
		return key
	}
	if _, err := s.Snapshotter.Stat(ctx, key); !errdefs.IsNotFound(err) {
		return key
	}
	if info, err := s.Snapshotter.Stat(ctx, chain.String()); err == nil && info.Kind == snapshots.KindCommitted {
		return chain.String()
	}
	return key
}

// Stat implements snapshots.Snapshotter.
func (s sharedLayers) Stat(ctx context.Context, key string) (snapshots.Info, error) {
	return s.Snapshotter.Stat(ctx, s.actual(ctx, key))
}

// Update implements snapshots.Snapshotter. The labels of the daemon's layers stay.
func (s sharedLayers) Update(ctx context.Context, info snapshots.Info, paths ...string) (snapshots.Info, error) {
	if actual := s.actual(ctx, info.Name); actual != info.Name {
		return s.Snapshotter.Stat(ctx, actual)
	}
	return s.Snapshotter.Update(ctx, info, paths...)
}

// Usage implements snapshots.Snapshotter.
func (s sharedLayers) Usage(ctx context.Context, key string) (snapshots.Usage, error) {
	return s.Snapshotter.Usage(ctx, s.actual(ctx, key))
}

// Prepare implements snapshots.Snapshotter.
func (s sharedLayers) Prepare(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	return s.Snapshotter.Prepare(ctx, key, s.actual(ctx, parent), opts...)
}

// View implements snapshots.Snapshotter.
func (s sharedLayers) View(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	return s.Snapshotter.View(ctx, key, s.actual(ctx, parent), opts...)
}

// AddResource implements leases.Manager. A layer of the daemon's is kept under its own name, too.
func (l ownedLeases) AddResource(ctx context.Context, lease leases.Lease, r leases.Resource) error {
	if chain, ok := snapshot.ParseLayerSnapshotID(r.ID); ok {
		also := leases.Resource{ID: chain.String(), Type: r.Type}
		if err := l.Manager.AddResource(ctx, lease, also); err != nil && !errdefs.IsAlreadyExists(err) {
			return err
		}
	}
	return l.Manager.AddResource(ctx, lease, r)
}

// overlayOf returns a mount as containerd describes it. BuildKit mounts writable layers itself and passes on the mount
// point, so that steps can share them; the daemon has to mount them for a sandbox, with its users. The type that hides
// the description is not exported, but the field is.
func overlayOf(m executor.MountableRef) (executor.MountableRef, error) {
	v := reflect.ValueOf(m)
	if v.Kind() != reflect.Pointer || v.Elem().Type().Name() != "sharableMountable" {
		return m, nil
	}
	inner, ok := v.Elem().FieldByName("Mountable").Interface().(executor.MountableRef)
	if !ok {
		return nil, errors.New("BuildKit does not describe its mount")
	}
	return inner, nil
}

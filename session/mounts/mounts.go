// Package mounts puts trees into containers that are not of their workspaces, such as skills.
//
// In scope: how a tree comes to its path, whole or not at all. Out of scope: which mounts a session has, and when they
// are put there; package session, the only caller, decides that.
package mounts

import (
	"context"
	"io"
	"path"
	"slices"
	"time"

	"berth/guest/client"
	"berth/guest/wire"
	"berth/proto"
)

// A Mount is a tree outside of a session's workspace, such as a skill. Root owns it, so the ordinary user can only
// read it. It is in the session's layer, which may change meanwhile and may be reset. So the session remembers its
// mounts and provisions each generation.
type Mount struct {
	Path       string `json:"path"`       // in the container, absolute and clean
	Key        string `json:"key"`        // names the tree in the Source
	Generation int64  `json:"generation"` // the last generation that has it
}

// A Source has the trees of mounts.
type Source interface {
	// Tar opens an owner's tree as a tar archive. It is NotFound if there is no tree with that key any more.
	Tar(ctx context.Context, owner, key string) (io.ReadCloser, error)
}

// Exists reports whether a directory is at a mount's path. Code that runs as root may have removed it.
func Exists(ctx context.Context, g *client.Client, path string) bool {
	fi, err := g.Stat(ctx, proto.UserRoot, path)
	return err == nil && fi.Type == proto.TypeDirectory
}

// placeTimeout bounds the last steps of a mount, which run even if the request has ended.
const placeTimeout = 30 * time.Second

// Place unpacks a tree of the owner beside its path and moves it there, so that no program sees a part of it. A source
// of nil has no trees.
func Place(ctx context.Context, g *client.Client, from Source, owner string, f Mount) error {
	if from == nil {
		return proto.Errorf(proto.Unsupported, "", f.Path, "this daemon has no files to mount in containers")
	}
	archive, err := from.Tar(ctx, owner, f.Key)
	if err != nil {
		return err
	}
	defer archive.Close()
	fresh := path.Join(path.Dir(f.Path), ".new-"+path.Base(f.Path))
	if err := Remove(ctx, g, fresh); err != nil { // left by an interrupted call
		return err
	}
	err = g.Untar(ctx, proto.UserRoot, fresh, archive, wire.UntarLimits{})
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), placeTimeout)
	defer cancel()
	if err == nil {
		err = Remove(late, g, f.Path)
	}
	if err == nil {
		err = g.Move(late, proto.UserRoot, fresh, f.Path)
	}
	if err != nil {
		_ = Remove(late, g, fresh) // else the next call does
	}
	return err
}

// Remove removes what is at path, if anything is.
func Remove(ctx context.Context, g *client.Client, path string) error {
	err := g.Remove(ctx, proto.UserRoot, path, true)
	if proto.CodeOf(err) == proto.NotFound {
		return nil
	}
	return err
}

// With returns list with f in place of a mount at its path. It copies the list, which other copies of a record share.
func With(list []Mount, f Mount) []Mount {
	list = slices.DeleteFunc(slices.Clone(list), func(old Mount) bool { return old.Path == f.Path })
	return append(list, f)
}

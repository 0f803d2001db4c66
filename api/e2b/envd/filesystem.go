package envd

import (
	"context"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"

	"berth/api/e2b/connectrpc"
	"berth/proto"
	"berth/session/filework"
)

// Types of entries.
const (
	typeFile      = "FILE_TYPE_FILE"
	typeDirectory = "FILE_TYPE_DIRECTORY"
	typeSymlink   = "FILE_TYPE_SYMLINK"
)

const (
	maxLinks   = 40     // that are followed to the end of a path, as the kernel does
	maxEntries = 50_000 // of one answer
	// directorySize is that of a directory on a file system that counts none for it, in bytes. Clients take a directory
	// to have a size.
	directorySize = 4096
)

// An entry describes a file. A link has the type and the mode of what it leads to.
type entry struct {
	Name          string `json:"name,omitempty"`
	Type          string `json:"type,omitempty"`
	Path          string `json:"path,omitempty"`
	Size          int64  `json:"size,omitempty,string"`
	Mode          uint32 `json:"mode,omitempty"`
	Permissions   string `json:"permissions,omitempty"`
	Owner         string `json:"owner,omitempty"`
	Group         string `json:"group,omitempty"`
	ModifiedTime  string `json:"modifiedTime,omitempty"`
	SymlinkTarget string `json:"symlinkTarget,omitempty"`
	IsSymlink     bool   `json:"isSymlink,omitempty"`

	Metadata map[string]string `json:"metadata,omitempty"`
}

type (
	pathRequest struct {
		Path  string `json:"path"`
		Depth uint32 `json:"depth"`
	}
	moveRequest struct {
		Source      string `json:"source"`
		Destination string `json:"destination"`
	}
	entryAnswer struct {
		Entry *entry `json:"entry"`
	}
	entriesAnswer struct {
		Entries []entry `json:"entries,omitempty"`
	}
)

// filesystem serves a method of filesystem.Filesystem.
func (b box) filesystem(w http.ResponseWriter, r *http.Request, method string) error {
	switch method {
	case "Stat":
		return connectrpc.Unary(w, r, b.stat)
	case "ListDir":
		return connectrpc.Unary(w, r, b.listDir)
	case "MakeDir":
		return connectrpc.Unary(w, r, b.makeDir)
	case "Move":
		return connectrpc.Unary(w, r, b.move)
	case "Remove":
		return connectrpc.Unary(w, r, b.remove)
	case "WatchDir":
		return b.watchDir(w, r)
	case "CreateWatcher":
		return connectrpc.Unary(w, r, b.createWatcher)
	case "GetWatcherEvents":
		return connectrpc.Unary(w, r, b.watcherEvents)
	case "RemoveWatcher":
		return connectrpc.Unary(w, r, b.removeWatcher)
	}
	return unknownMethod(w, r, method)
}

func (b box) stat(ctx context.Context, in pathRequest) (out entryAnswer, err error) {
	at, err := b.path(ctx, in.Path)
	if err != nil {
		return out, err
	}
	return b.describe(ctx, at)
}

// describe answers with the entry at a path.
func (b box) describe(ctx context.Context, at string) (out entryAnswer, err error) {
	fi, err := b.s.Stat(ctx, b.user, at)
	if err != nil {
		return out, b.s.HideError(err)
	}
	e := b.entry(ctx, fi)
	return entryAnswer{&e}, nil
}

// entry describes a file. A link costs further requests to the container.
func (b box) entry(ctx context.Context, fi proto.FileInfo) entry {
	mode, _ := strconv.ParseUint(fi.Mode, 8, 32) // the guest wrote it
	e := entry{Name: path.Base(fi.Path), Path: fi.Path, Size: fi.SizeBytes, Mode: uint32(mode) & 0o777,
		Owner: fi.Owner, Group: fi.Group, ModifiedTime: fi.ModifiedAt.UTC().Format("2006-01-02T15:04:05.999999999Z"),
		Type: typeOf(fi.Type), Metadata: metadataOf(fi)}
	if fi.Type == proto.TypeDirectory && e.Size == 0 {
		e.Size = directorySize
	}
	if e.Owner == "" {
		e.Owner = strconv.FormatUint(uint64(fi.UID), 10)
	}
	if e.Group == "" {
		e.Group = strconv.FormatUint(uint64(fi.GID), 10)
	}
	e.Permissions = permissions(fi.Type, e.Mode)
	if fi.Type == proto.TypeSymlink {
		b.describeLink(ctx, &e, fi)
	}
	return e
}

// describeLink completes the entry of a link. One that leads nowhere has itself as its target.
func (b box) describeLink(ctx context.Context, e *entry, fi proto.FileInfo) {
	e.IsSymlink, e.Permissions, e.SymlinkTarget = true, "Lrwxrwxrwx", fi.Path
	if fi.TargetType == "" {
		return
	}
	target, err := b.resolve(ctx, fi.Path)
	if err != nil {
		return
	}
	e.SymlinkTarget, e.Type = target.Path, typeOf(target.Type)
	mode, _ := strconv.ParseUint(target.Mode, 8, 32)
	e.Mode = uint32(mode) & 0o777
}

// resolve follows all links of a path and describes what is at its end.
func (b box) resolve(ctx context.Context, at string) (fi proto.FileInfo, err error) {
	done, rest := "/", strings.TrimPrefix(path.Clean(at), "/")
	for links := 0; rest != ""; {
		name, more, _ := strings.Cut(rest, "/")
		next := path.Join(done, name)
		if fi, err = b.s.Stat(ctx, b.user, next); err != nil {
			return fi, err
		}
		if fi.Type != proto.TypeSymlink {
			done, rest = next, more
			continue
		}
		if links++; links > maxLinks {
			return fi, connectrpc.Errorf(connectrpc.FailedPrecondition, proto.InvalidArgument,
				"path '%s' has too many links", at)
		}
		if target := path.Join(fi.Target, more); path.IsAbs(fi.Target) {
			done, rest = "/", strings.TrimPrefix(target, "/")
		} else {
			done, rest = "/", strings.TrimPrefix(path.Join(done, target), "/")
		}
	}
	if done == "/" {
		return b.s.Stat(ctx, b.user, done)
	}
	return fi, nil
}

func typeOf(t proto.FileType) string {
	switch t {
	case proto.TypeFile:
		return typeFile
	case proto.TypeDirectory:
		return typeDirectory
	case proto.TypeSymlink:
		return typeSymlink
	}
	return ""
}

// permissions writes a mode as ls does.
func permissions(t proto.FileType, mode uint32) string {
	m := fs.FileMode(mode)
	if t == proto.TypeDirectory {
		m |= fs.ModeDir
	}
	return m.String()
}

func (b box) listDir(ctx context.Context, in pathRequest) (out entriesAnswer, err error) {
	at, err := b.path(ctx, in.Path)
	if err != nil {
		return out, err
	}
	fi, err := b.resolve(ctx, at)
	if err != nil {
		return out, b.s.HideError(err)
	}
	if fi.Type != proto.TypeDirectory {
		return out, proto.Invalid("path", "path is not a directory: %s", at)
	}
	o := proto.FindOptions{Depth: int(min(max(in.Depth, 1), proto.MaxFindDepth))}
	for {
		page, err := filework.Find(ctx, b.s.Files, b.user, at, o)
		if err != nil {
			return out, b.s.HideError(err)
		}
		for _, fi := range page.Files {
			out.Entries = append(out.Entries, b.entry(ctx, fi))
		}
		if o.Cursor = page.Next; len(o.Cursor) == 0 {
			return out, nil
		}
		if len(out.Entries) >= maxEntries {
			return out, proto.Errorf(proto.TooMany, "", "depth", "there are more than %d entries; list with less depth",
				maxEntries)
		}
	}
}

func (b box) makeDir(ctx context.Context, in pathRequest) (out entryAnswer, err error) {
	at, err := b.path(ctx, in.Path)
	if err != nil {
		return out, err
	}
	switch fi, err := b.resolve(ctx, at); {
	case err == nil && fi.Type == proto.TypeDirectory:
		return out, proto.Errorf(proto.AlreadyExists, "", at, "directory already exists: %s", at)
	case err == nil:
		return out, proto.Invalid("path", "path already exists but it is not a directory: %s", at)
	case proto.CodeOf(err) != proto.NotFound:
		return out, b.s.HideError(err)
	}
	if err := b.s.Mkdir(ctx, b.user, at); err != nil {
		return out, b.s.HideError(err)
	}
	return b.describe(ctx, at)
}

func (b box) move(ctx context.Context, in moveRequest) (out entryAnswer, err error) {
	from, err := b.path(ctx, in.Source)
	if err != nil {
		return out, err
	}
	to, err := b.path(ctx, in.Destination)
	if err != nil {
		return out, err
	}
	if err := b.s.MoveFile(ctx, b.user, from, to); err != nil {
		return out, b.s.HideError(err)
	}
	return b.describe(ctx, to)
}

func (b box) remove(ctx context.Context, in pathRequest) (none nothing, err error) {
	at, err := b.path(ctx, in.Path)
	if err != nil {
		return none, err
	}
	if err = b.s.RemoveFile(ctx, b.user, at, true); proto.CodeOf(err) == proto.NotFound {
		err = nil
	}
	return none, b.s.HideError(err)
}

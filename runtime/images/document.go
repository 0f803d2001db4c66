package images

import (
	"bytes"
	"context"
	"encoding/json"
	"io"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"berth/proto"
)

// JSON documents describe an image: its indexes, its manifest and its configuration. They are read into memory as a
// whole, and the maker of the image decides their content. An archive of a few MiB can hold GiBs of blanks, and a
// value of three bytes can take 150 bytes in memory.

const (
	// MaxDocument is the maximum size of a document, in bytes. Registries accept at most half of that.
	MaxDocument = 8 << 20
	// MaxValues bounds the values in a document, counted by the commas between them. An index of MaxDocument bytes
	// with all usual fields for each image has as many.
	MaxValues = 256 << 10
)

// documents is a content store that reads documents only.
type documents struct{ content.Provider }

// documents returns the documents of the stored images.
func (i *Store) documents() documents { return documents{i.cfg.Client.ContentStore()} }

// ReaderAt reads a document into memory and checks it there. It takes the size from the store: the size in a
// descriptor comes from the maker of the image.
func (d documents) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	if err := ctx.Err(); err != nil { // the store ignores the context
		return nil, err
	}
	blob, err := d.Provider.ReaderAt(ctx, desc)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	if blob.Size() > MaxDocument {
		return nil, unreadable("%d MiB of a description; %d MiB are the most", blob.Size()>>20, MaxDocument>>20)
	}
	text, err := io.ReadAll(content.NewReader(blob))
	if err != nil {
		return nil, err
	}
	if bytes.Count(text, []byte(",")) > MaxValues {
		return nil, unreadable("a description of more than %d values", MaxValues)
	}
	return document{bytes.NewReader(text)}, nil
}

// unembedded returns desc without embedded content. Such content would be read in place of the store's, without a
// check.
func unembedded(desc ocispec.Descriptor) ocispec.Descriptor {
	desc.Data = nil
	return desc
}

// children returns the descriptors in an index or a manifest.
func (d documents) children(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	list, err := images.Children(ctx, d, unembedded(desc))
	for i := range list {
		// other sources of the content: an image must not choose the hosts that the daemon contacts
		list[i].URLs = nil
	}
	return list, err
}

// unreadable returns the error for an image that exceeds a limit.
func unreadable(format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "reading the image", "", "the image has "+format+"; build it anew",
		args...)
}

// A document is a document in memory.
type document struct{ *bytes.Reader }

func (document) Close() error { return nil }

// config reads the configuration that a manifest names.
func (i *Store) config(ctx context.Context, desc ocispec.Descriptor) (conf ocispec.Image, err error) {
	docs := i.documents()
	at, err := images.Config(ctx, docs, desc, platforms.All)
	if err != nil {
		return conf, err
	}
	text, err := content.ReadBlob(ctx, docs, unembedded(at))
	if err != nil {
		return conf, err
	}
	return conf, json.Unmarshal(text, &conf)
}

// An Archived is the store that an archive is read into. Its reader looks at layers too, which may have any size.
type Archived struct {
	content.Store
	Configs int // read so far
}

// ReaderAt bounds how much is read of configurations, the only content that is read into memory as a whole. An
// archive may name the same configuration any number of times.
func (a *Archived) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	if !images.IsConfigType(desc.MediaType) {
		return a.Store.ReaderAt(ctx, desc)
	}
	if a.Configs++; a.Configs > MaxDescriptors {
		return nil, tooMany()
	}
	return documents{a.Store}.ReaderAt(ctx, desc)
}

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

// An image is described by documents of JSON: its indexes, its manifest and its configuration. They are read whole,
// and whoever made the image decides what is in them: GiBs of blanks are MiBs in an archive, and a value of three
// bytes can take 150 in memory.

const (
	// MaxDocument is how many bytes a document may have. Registries take half of that at most.
	MaxDocument = 8 << 20
	// MaxValues bounds the values in a document, which are counted by the commas between them: as many as a whole
	// index of maxDocument has when it says of each image what there is to say.
	MaxValues = 256 << 10
)

// documents is a content store of which nothing but documents is read.
type documents struct{ content.Provider }

// documents are those of the images that are here.
func (i *Store) documents() documents { return documents{i.cfg.Client.ContentStore()} }

// ReaderAt reads a document into memory and judges it there. What a descriptor says of its size is its maker's word;
// the store knows.
func (d documents) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	if err := ctx.Err(); err != nil { // which the store does not look at
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

// unembedded is desc without the content that it may have with it, which would be read instead of the store's and
// judged by nobody.
func unembedded(desc ocispec.Descriptor) ocispec.Descriptor {
	desc.Data = nil
	return desc
}

// children are what an index or a manifest names.
func (d documents) children(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	list, err := images.Children(ctx, d, unembedded(desc))
	for i := range list {
		list[i].URLs = nil // where else it could be had: an image must not have the daemon ask whom it likes
	}
	return list, err
}

// unreadable is the answer for an image that has more than is read of one.
func unreadable(format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, "reading the image", "", "the image has "+format+"; build it anew",
		args...)
}

// A document is one in memory.
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

// An archived is the store that an archive is read into. Layers are looked at there too, and may be of any size.
type Archived struct {
	content.Store
	Configs int // read so far
}

// ReaderAt bounds what is read of configurations, which is all that is read whole. An archive may name the same one
// any number of times.
func (a *Archived) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	if !images.IsConfigType(desc.MediaType) {
		return a.Store.ReaderAt(ctx, desc)
	}
	if a.Configs++; a.Configs > MaxDescriptors {
		return nil, tooMany()
	}
	return documents{a.Store}.ReaderAt(ctx, desc)
}

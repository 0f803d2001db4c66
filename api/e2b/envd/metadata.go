package envd

import (
	"net/http"
	"strings"

	"berth/proto"
)

// Metadata of a file are extended attributes of it, so that programs in the sandbox see and set them, too.
const (
	metadataHeader = "X-Metadata-" // begins the headers of an upload that have the metadata
	metadataPrefix = "e2b."        // begins the attributes, in the user's space
	// attributeSpace is the user's space, which counts in the lengths below.
	attributeSpace = "user." + metadataPrefix
	maxMetadataKey = 246  // bytes of a key: what the kernel leaves
	maxMetadata    = 4096 // bytes of all keys and values of a file, with their prefixes
)

// metadata reads the metadata in the headers of an upload. Keys are in lower case.
func metadata(h http.Header) (map[string]string, error) {
	meta, size := map[string]string{}, 0
	for name, values := range h {
		key, ok := strings.CutPrefix(name, metadataHeader)
		if !ok {
			continue
		}
		key, value := strings.ToLower(key), strings.Join(values, ", ")
		if key == "" || len(key) > maxMetadataKey {
			return nil, proto.Invalid(name, "%.300s: a key of metadata has 1 to %d bytes", name, maxMetadataKey)
		}
		if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }) {
			return nil, proto.Invalid(name, "%s: a value of metadata is printable ASCII", name)
		}
		if size += len(attributeSpace) + len(key) + len(value); size > maxMetadata {
			return nil, proto.Invalid(name, "the metadata of a file has more than %d bytes", maxMetadata)
		}
		meta[key] = value
	}
	return meta, nil
}

// metadataOf returns the metadata of a file.
func metadataOf(fi proto.FileInfo) (meta map[string]string) {
	for name, value := range fi.Attributes {
		key, ok := strings.CutPrefix(name, metadataPrefix)
		if !ok || key == "" {
			continue
		}
		if meta == nil {
			meta = map[string]string{}
		}
		meta[key] = value
	}
	return meta
}

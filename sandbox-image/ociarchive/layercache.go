package ociarchive

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"berth/sandbox-image/buildenv"
	"berth/sandbox-image/layer"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// A layerCache has the finished layers of unfinished images, and those of the last archive.
type Cache struct {
	dir    string
	layers []layer.Layer
}

// OpenCache opens the directory dir, and reads the archive at path. If the archive is unreadable, its layers are
// missing.
func OpenCache(dir, path string) (*Cache, error) {
	c := &Cache{dir: dir}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, err
	}
	notes, err := filepath.Glob(filepath.Join(c.dir, "*.json"))
	for _, note := range notes {
		if l, ok := c.read(note); ok {
			c.layers = append(c.layers, l)
		}
	}
	if a, err := Read(path); err == nil {
		c.layers = append(c.layers, a.Layers()...)
	}
	return c, err
}

// Find returns the layer with this key.
func (c *Cache) Find(key string) (layer.Layer, bool) {
	i := slices.IndexFunc(c.layers, func(l layer.Layer) bool { return l.Key == key })
	if i < 0 {
		return layer.Layer{}, false
	}
	return c.layers[i], true
}

func (c *Cache) path(key, suffix string) string { return filepath.Join(c.dir, key+suffix) }

// Add moves a finished layer here. The note is written last: it marks the layer as whole.
func (c *Cache) Add(l layer.Layer) (layer.Layer, error) {
	path := c.path(l.Key, ".tar.zst")
	if err := os.Rename(l.Path, path); err != nil {
		return l, err
	}
	l.Path = path
	return l, buildenv.ReplaceFile(c.path(l.Key, ".json"), func(f *os.File) error {
		return json.NewEncoder(f).Encode(descriptorOf(l))
	})
}

// read returns the layer that a note describes.
func (c *Cache) read(note string) (layer.Layer, bool) {
	data, err := os.ReadFile(note)
	if err != nil {
		return layer.Layer{}, false
	}
	var d v1.Descriptor
	if err := json.Unmarshal(data, &d); err != nil {
		return layer.Layer{}, false
	}
	l := layerOf(d)
	l.Path = c.path(l.Key, ".tar.zst")
	info, err := os.Stat(l.Path)
	return l, err == nil && info.Size() == l.Size
}

// Remove removes a broken layer, so that the next build makes it again.
func (c *Cache) Remove(l layer.Layer) {
	if filepath.Dir(l.Path) == c.dir {
		_ = os.Remove(c.path(l.Key, ".json"))
	}
}

// Clear removes all layers except those of the archive.
func (c *Cache) Clear() error {
	entries, err := os.ReadDir(c.dir)
	for _, e := range entries {
		if err := os.Remove(filepath.Join(c.dir, e.Name())); err != nil {
			return err
		}
	}
	return err
}

package sandboximage

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// A layerCache has the finished layers of unfinished images, and those of the last archive.
type layerCache struct {
	dir    string
	layers []blob
}

// openLayerCache opens the directory dir, and reads the archive at path. If the archive is unreadable, its layers are
// missing.
func openLayerCache(dir, path string) (*layerCache, error) {
	c := &layerCache{dir: dir}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, err
	}
	notes, err := filepath.Glob(filepath.Join(c.dir, "*.json"))
	for _, note := range notes {
		if l, ok := c.read(note); ok {
			c.layers = append(c.layers, l)
		}
	}
	if a, err := readArchive(path); err == nil {
		c.layers = append(c.layers, a.layers()...)
	}
	return c, err
}

// find returns the layer with this key.
func (c *layerCache) find(key string) (blob, bool) {
	i := slices.IndexFunc(c.layers, func(l blob) bool { return l.key == key })
	if i < 0 {
		return blob{}, false
	}
	return c.layers[i], true
}

func (c *layerCache) path(key, suffix string) string { return filepath.Join(c.dir, key+suffix) }

// add moves a finished layer here. The note is written last: it marks the layer as whole.
func (c *layerCache) add(l blob) (blob, error) {
	path := c.path(l.key, ".tar.zst")
	if err := os.Rename(l.path, path); err != nil {
		return l, err
	}
	l.path = path
	return l, replaceFile(c.path(l.key, ".json"), func(f *os.File) error {
		return json.NewEncoder(f).Encode(l.descriptor())
	})
}

// read returns the layer that a note describes.
func (c *layerCache) read(note string) (blob, bool) {
	data, err := os.ReadFile(note)
	if err != nil {
		return blob{}, false
	}
	var d v1.Descriptor
	if err := json.Unmarshal(data, &d); err != nil {
		return blob{}, false
	}
	l := layerOf(d)
	l.path = c.path(l.key, ".tar.zst")
	info, err := os.Stat(l.path)
	return l, err == nil && info.Size() == l.size
}

// remove removes a broken layer, so that the next build makes it again.
func (c *layerCache) remove(l blob) {
	if filepath.Dir(l.path) == c.dir {
		_ = os.Remove(c.path(l.key, ".json"))
	}
}

// clear removes all layers except those of the archive.
func (c *layerCache) clear() error {
	entries, err := os.ReadDir(c.dir)
	for _, e := range entries {
		if err := os.Remove(filepath.Join(c.dir, e.Name())); err != nil {
			return err
		}
	}
	return err
}

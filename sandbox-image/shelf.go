package sandboximage

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// A shelf keeps finished layers of unfinished images, and offers those of the last archive.
type shelf struct {
	dir    string
	layers []blob
}

// shelf opens the cache's shelf. An unreadable archive offers no layers.
func (b *build) shelf() (*shelf, error) {
	s := &shelf{dir: filepath.Join(b.cache, "layers")}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, err
	}
	notes, err := filepath.Glob(filepath.Join(s.dir, "*.json"))
	for _, note := range notes {
		if l, ok := s.read(note); ok {
			s.layers = append(s.layers, l)
		}
	}
	if a, err := readArchive(b.archive()); err == nil {
		s.layers = append(s.layers, a.layers(b.archive())...)
	}
	return s, err
}

// find returns the layer with this key.
func (s *shelf) find(key string) (blob, bool) {
	i := slices.IndexFunc(s.layers, func(l blob) bool { return l.key == key })
	if i < 0 {
		return blob{}, false
	}
	return s.layers[i], true
}

func (s *shelf) path(key, suffix string) string { return filepath.Join(s.dir, key+suffix) }

// keep moves a finished layer here. The note is written last: it marks the layer as whole.
func (s *shelf) keep(l blob) (blob, error) {
	path := s.path(l.key, ".tar.zst")
	if err := os.Rename(l.path, path); err != nil {
		return l, err
	}
	l.path = path
	return l, replaceFile(s.path(l.key, ".json"), func(f *os.File) error {
		return json.NewEncoder(f).Encode(l.descriptor())
	})
}

// read returns the layer that a note describes.
func (s *shelf) read(note string) (blob, bool) {
	data, err := os.ReadFile(note)
	if err != nil {
		return blob{}, false
	}
	var d v1.Descriptor
	if err := json.Unmarshal(data, &d); err != nil {
		return blob{}, false
	}
	l := layerOf(d)
	l.path = s.path(l.key, ".tar.zst")
	info, err := os.Stat(l.path)
	return l, err == nil && info.Size() == l.size
}

// drop removes a broken layer, so that the next build makes it again.
func (s *shelf) drop(l blob) {
	if filepath.Dir(l.path) == s.dir {
		_ = os.Remove(s.path(l.key, ".json"))
	}
}

// clear removes all layers except those of the archive.
func (s *shelf) clear() error {
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
			return err
		}
	}
	return err
}

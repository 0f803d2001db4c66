// Command ociimage writes the image of the daemon, of one layer, as an archive that is an OCI layout and that
// `docker load` of every version takes as well. Its bytes depend on the layer and SOURCE_DATE_EPOCH alone.
package main

import (
	"archive/tar"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	arch := flag.String("arch", "", "architecture of the programs in the layer")
	version := flag.String("version", "", "version of the release")
	layer := flag.String("layer", "", "the root file system, a .tar.gz")
	out := flag.String("out", "", "archive to write")
	flag.Parse()
	if err := run(*arch, *version, *layer, *out); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

func run(arch, version, layer, out string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("reading SOURCE_DATE_EPOCH: %w", err)
	}
	epoch := time.Unix(seconds, 0).UTC()
	image, err := newImage(arch, version, layer, epoch)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "berth-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	name := "berth:" + version
	if err := writeLayout(dir, image, name); err != nil {
		return err
	}
	return pack(dir, out, epoch)
}

// newImage returns the image: the daemon, for a privileged container whose volume is the data directory.
func newImage(arch, version, layer string, epoch time.Time) (v1.Image, error) {
	l, err := tarball.LayerFromFile(layer, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.Append(image, mutate.Addendum{Layer: l,
		History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "make release"}}); err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, &v1.ConfigFile{
		Architecture: arch, OS: "linux", Created: v1.Time{Time: epoch},
		History: []v1.History{{Created: v1.Time{Time: epoch}, CreatedBy: "make release"}},
		RootFS:  must(image.ConfigFile()).RootFS,
		Config: v1.Config{
			Entrypoint: []string{"/usr/bin/berth"},
			// Other containers and the host reach the port that Docker publishes, not loopback in here.
			Cmd:          []string{"serve", "--config", "/etc/berth/berth.toml", "--listen", "0.0.0.0:7117"},
			Env:          []string{"PATH=/usr/bin:/usr/sbin:/bin:/sbin"},
			ExposedPorts: map[string]struct{}{"7117/tcp": {}},
			Volumes:      map[string]struct{}{"/var/lib/berth": {}},
			StopSignal:   "SIGTERM",
			Labels: map[string]string{
				"org.opencontainers.image.title": "berth", "org.opencontainers.image.version": version,
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) // of an image in memory
	}
	return v
}

// writeLayout writes the image as an OCI layout, with the manifest.json that Docker before version 25 reads.
func writeLayout(dir string, image v1.Image, name string) error {
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := at.AppendImage(image, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": name, "io.containerd.image.name": "docker.io/library/" + name,
	})); err != nil {
		return err
	}
	m, err := image.Manifest()
	if err != nil {
		return err
	}
	blob := func(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }
	docker, err := json.Marshal([]map[string]any{{"Config": blob(m.Config.Digest), "RepoTags": []string{name},
		"Layers": []string{blob(m.Layers[0].Digest)}}})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "manifest.json"), docker, 0o644)
}

// pack writes the files below dir into an archive, sorted by name.
func pack(dir, out string, epoch time.Time) error {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	archive := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(path, dir+"/"), Mode: 0o644,
			Size: int64(len(data)), ModTime: epoch}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		_, err = archive.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return f.Close()
}

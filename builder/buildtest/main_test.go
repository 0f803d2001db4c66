package buildtest

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"berth/client"
	"berth/proto"
	"berth/test/daemontest"
)

// daemon serves all tests but those that kill one; registryHost has the base image as berth/base:1.
var (
	daemon       *daemontest.Daemon
	registryHost string
)

// moreFlags returns further flags of the daemon, which replace earlier ones. The tests of published packages set it.
var moreFlags func() ([]string, error)

// classes are those in which steps run.
var classes = []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor}

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	srv := httptest.NewServer(registry.New())
	defer srv.Close()
	registryHost = strings.TrimPrefix(srv.URL, "http://")
	files := httptest.NewServer(http.HandlerFunc(serveFiles))
	defer files.Close()
	filesURL = files.URL
	if err := pushBase(registryHost+"/berth/base:1", nil); err != nil {
		return 1, fmt.Errorf("filling the registry: %w", err)
	}
	flags := []string{"--warm-max", "0", "--network-max", "open", "--egress-allow-private", "127.0.0.1",
		"--memory-bytes", "536870912", "--disk-bytes", "268435456"}
	if moreFlags != nil {
		more, err := moreFlags()
		if err != nil {
			return 1, err
		}
		flags = append(flags, more...)
	}
	if daemon, err = daemontest.New(flags...); err != nil {
		return 1, err
	}
	defer daemon.Close()
	return m.Run(), nil
}

// pushBase pushes the base image, an OCI archive, to a registry. change may be nil.
func pushBase(ref string, change func(v1.Image) (v1.Image, error)) error {
	dir, err := os.MkdirTemp("", "berth-base-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := unpack(os.Getenv("BERTH_BASE_IMAGE"), dir); err != nil {
		return err
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return err
	}
	image, err := index.Image(list.Manifests[0].Digest)
	if err != nil {
		return err
	}
	if change != nil {
		if image, err = change(image); err != nil {
			return err
		}
	}
	to, err := name.ParseReference(ref)
	if err != nil {
		return err
	}
	return remote.Write(to, image)
}

// unpack unpacks a tar of directories and files, which the test trusts.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	for tr := tar.NewReader(f); ; {
		hdr, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, hdr.Name)
		if hdr.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			var out *os.File
			if out, err = os.Create(path); err == nil {
				_, err = io.Copy(out, tr)
				out.Close()
			}
		}
		if err != nil {
			return err
		}
	}
}

// connect returns a client of a daemon.
func connect(t *testing.T, d *daemontest.Daemon) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Host: d.URL, Key: d.Key})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// contextOf returns a build context. Names that end in a slash are directories; "name -> target" is a link.
func contextOf(t *testing.T, files map[string]string) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for path, text := range files {
		hdr := &tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}
		if link, target, ok := strings.Cut(path, " -> "); ok {
			hdr.Name, hdr.Typeflag, hdr.Linkname, hdr.Size, text = link, tar.TypeSymlink, target, 0, ""
		}
		if err := w.WriteHeader(hdr); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

// A record is what a build said.
type record struct {
	logs   string
	ran    int // steps of the Dockerfile that ran
	cached int
	last   proto.BuildCache
}

// build builds and records.
func build(ctx context.Context, c *client.Client, o proto.BuildOptions, in io.Reader,
	each func(proto.BuildEvent)) (proto.Image, record, error) {
	var r record
	states := map[int]string{}
	img, err := c.BuildImage(ctx, o, in, func(ev proto.BuildEvent) {
		switch {
		case ev.Log != nil:
			r.logs += ev.Log.Data
		case ev.Step != nil && !strings.HasPrefix(ev.Step.Name, "[internal]"):
			states[ev.Step.Number] = ev.Step.State + " " + ev.Step.Name
		case ev.Cache != nil:
			r.last = *ev.Cache
		}
		if each != nil {
			each(ev)
		}
	})
	for _, s := range states {
		if !strings.Contains(s, " RUN ") && !strings.Contains(s, " COPY ") {
			continue
		}
		if strings.HasPrefix(s, "cached") {
			r.cached++
		} else {
			r.ran++
		}
	}
	return img, r, err
}

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// root unpacks the base image and returns its directory. The bare machine and crun run their commands there, so that
// all participants run the same bash. It returns "" without an archive or without the right to chroot.
func (b *bench) root(ctx context.Context) (string, error) {
	if b.Base == "" || os.Geteuid() != 0 {
		return "", nil
	}
	if !b.unpack.done {
		b.unpack.done, b.unpack.root = true, filepath.Join(b.tmp, "root")
		b.unpack.err = unpackImage(ctx, b.Base, filepath.Join(b.tmp, "image"), b.unpack.root)
	}
	return b.unpack.root, b.unpack.err
}

// A descriptor is a reference in an OCI layout.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
}

// unpackImage unpacks an OCI archive that this project built. It unpacks layers over one another and ignores
// whiteouts.
func unpackImage(ctx context.Context, archive, layout, root string) error {
	for _, dir := range []string{layout, root} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := command(ctx, "tar", "-xf", archive, "-C", layout); err != nil {
		return err
	}
	var index struct {
		Manifests []descriptor `json:"manifests"`
		Layers    []descriptor `json:"layers"`
	}
	file := filepath.Join(layout, "index.json")
	for depth := 0; len(index.Layers) == 0; depth++ {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if index.Manifests = nil; depth > 3 || json.Unmarshal(data, &index) != nil ||
			len(index.Manifests)+len(index.Layers) == 0 {
			return fmt.Errorf("%s is not an OCI archive of one image", archive)
		}
		if len(index.Manifests) > 0 {
			file = blob(layout, index.Manifests[0])
		}
	}
	for _, layer := range index.Layers {
		if err := command(ctx, "tar", "-xf", blob(layout, layer), "-C", root, "--numeric-owner"); err != nil {
			return err
		}
	}
	return os.RemoveAll(layout)
}

// blob returns the path of a descriptor's content in a layout.
func blob(layout string, d descriptor) string {
	algorithm, hex, _ := strings.Cut(d.Digest, ":")
	return filepath.Join(layout, "blobs", algorithm, hex)
}

// command runs a program. Its error contains the program's output.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return explain(err, name, out)
}

// explain adds a program's output to its error, on one line.
func explain(err error, name string, out []byte) error {
	if err == nil {
		return nil
	}
	words := strings.Join(strings.Fields(string(out)), " ")
	if len(words) > 300 {
		words = "…" + words[len(words)-300:]
	}
	return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, words)
}

// spawn starts bare processes: programs of the base image if there is one, otherwise those of the host.
type spawn struct {
	root string
}

// bare returns the floor for commands. It notes in the result which bash that is.
func (b *bench) bare(ctx context.Context, res *Result) (spawn, error) {
	root, err := b.root(ctx)
	if err != nil {
		return spawn{}, err
	}
	if root == "" {
		res.note("The bare spawn runs the host's programs, not the base image's: that needs root and --base FILE.")
	} else {
		res.note("The bare spawn runs the base image's programs, in its root directory.")
	}
	return spawn{root}, nil
}

// command returns a command that is not started.
func (s spawn) command(argv ...string) *exec.Cmd {
	cmd := &exec.Cmd{Path: argv[0], Args: argv, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/",
		"LANG=C.UTF-8"}, Dir: "/"}
	if s.root != "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: s.root}
	}
	return cmd
}

// run runs a process until it ends.
func (s spawn) run(argv ...string) error { return s.command(argv...).Run() }

// spawnOverHTTP is the floor for a command over HTTP.
const spawnOverHTTP = "HTTP and a bare spawn"

// serving starts an HTTP server that only spawns a process for each request. spawnThere sends it a request on a kept
// connection; concurrent callers have one connection each. stop stops the server.
func (s spawn) serving(argv ...string) (spawnThere func(context.Context) error, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			if err := s.run(argv...); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})}
	go func() { _ = srv.Serve(l) }() // returns an error after Close
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	return func(ctx context.Context) error { return ask(ctx, client, "http://"+l.Addr().String()) }, srv.Close, nil
}

// ask sends a request that must succeed.
func ask(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err = io.Copy(io.Discard, res.Body); err == nil && res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return err
}

// syncer is the floor for durable writes: it overwrites 4 KiB of an existing file and calls fdatasync.
type syncer struct {
	f    *os.File
	page []byte
	next int64
}

const (
	pageBytes  = 4096
	syncedSize = 4 << 20 // size of the file, which is written from start to end repeatedly
)

// syncing opens a file on the file system of the daemon's data.
func (b *bench) syncing() (*syncer, error) {
	f, err := os.CreateTemp(b.tmp, "sync-")
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(make([]byte, syncedSize)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &syncer{f: f, page: make([]byte, pageBytes)}, errors.Join(os.Remove(f.Name()), f.Sync())
}

func (s *syncer) once(context.Context) (float64, error) {
	s.next = (s.next + pageBytes) % syncedSize
	s.page[0]++
	return timed(func() error {
		if _, err := s.f.WriteAt(s.page, s.next); err != nil {
			return err
		}
		return syscall.Fdatasync(int(s.f.Fd()))
	})
}

func (s *syncer) close() { _ = s.f.Close() } // the file is already unlinked

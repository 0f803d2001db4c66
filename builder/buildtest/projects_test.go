//go:build projects

package buildtest

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"berth/proto"
	"berth/test/daemontest"
)

var (
	projectsTable = flag.String("projects.table", "", "file that gets the table of projects")
	projectsClass = flag.String("projects.class", "runc", "runtime class of the builds")
)

// projectHosts are what steps may reach.
var projectHosts = []string{"proxy.golang.org", "sum.golang.org", "pypi.org", "files.pythonhosted.org",
	"registry.npmjs.org", "deb.debian.org", "security.debian.org"}

// A publishedProject is a Dockerfile in a published package.
type publishedProject struct {
	kind, name, version string // kind: go, npm or pip, whose client gets the package
	file                string // path of the Dockerfile
	lacks               string // what a machine without other networks lacks for it; the build then fails
}

// TestProjects builds Dockerfiles of published packages with their own contexts, unchanged, twice. Base images come
// under their usual names from a registry of this test, which has the base image with Go instead of them.
func TestProjects(t *testing.T) {
	var table strings.Builder
	table.WriteString("| package | Dockerfile | steps | first | again | result |\n|---|---|---|---|---|---|\n")
	for _, p := range projects {
		t.Run(p.name, func(t *testing.T) { buildTwice(t, daemon, p, &table) })
		saveTable(t, table.String())
	}
	t.Log("\n" + table.String())
	nothingLeft(t, daemon)
}

// saveTable writes the rows so far to the file of -projects.table.
func saveTable(t *testing.T, table string) {
	if *projectsTable != "" {
		if err := os.WriteFile(*projectsTable, []byte(table), 0o644); err != nil {
			t.Error(err)
		}
	}
}

func init() { moreFlags = projectFlags }

// projectFlags starts the registry of base images, and returns the flags of a daemon that uses it.
func projectFlags() ([]string, error) {
	host, err := serveStandIns()
	flags := []string{"--memory-bytes", "4294967296", "--disk-bytes", "8589934592", "--pids", "4096"}
	for _, of := range []string{"docker.io", "gcr.io", "ghcr.io", "quay.io", "public.ecr.aws", "mcr.microsoft.com"} {
		flags = append(flags, "--registry-mirror", of+"="+host)
	}
	for _, name := range projectHosts {
		addrs, _ := net.LookupHost(name) // a host may have no name server; then steps reach nothing
		for _, a := range addrs {
			flags = append(flags, "--egress-allow-private", a)
		}
	}
	return flags, err
}

// buildTwice builds a project, builds it again from the cache, and adds a row to the table.
func buildTwice(t *testing.T, d *daemontest.Daemon, p publishedProject, table *strings.Builder) {
	c := connect(t, d)
	dir, version := fetchProject(t, p)
	o := proto.BuildOptions{Name: "project", Dockerfile: p.file, Class: proto.RuntimeClass(*projectsClass),
		Network: proto.Network{Allow: projectHosts}}
	row := func(r record, first, again time.Duration, result string) {
		fmt.Fprintf(table, "| `%s` %s | %s | %d | %.0f s | %.1f s | %s |\n", p.name, version, p.file, r.ran+r.cached,
			first.Seconds(), again.Seconds(), result)
	}
	began := time.Now()
	img, r, err := build(t.Context(), c, o, tarOfDir(t, dir), nil)
	first := time.Since(began)
	if p.lacks != "" {
		if err == nil {
			t.Errorf("built, although it lacks %s", p.lacks)
		}
		row(r, first, 0, "not built: "+p.lacks)
		return
	}
	if err != nil {
		row(r, first, 0, "fails: "+firstLine(err.Error()))
		t.Fatalf("%v\n%s", err, r.logs[max(0, len(r.logs)-4000):])
	}
	began = time.Now()
	again, r2, err := build(t.Context(), c, o, tarOfDir(t, dir), nil)
	if err != nil || again.Digest != img.Digest || r2.ran != 0 {
		t.Errorf("again: %v, %d steps ran", err, r2.ran)
	}
	row(r, first, time.Since(began), "built, and cached again")
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text[:min(len(text), 120)], "\n")
	return strings.ReplaceAll(line, "|", "\\|")
}

// fetchProject gets a package by the client of its kind, and returns where it is and its version.
func fetchProject(t *testing.T, p publishedProject) (dir, version string) {
	t.Helper()
	tmp := t.TempDir()
	run := func(name string, args ...string) []byte {
		cmd := exec.Command(name, args...)
		cmd.Dir = tmp
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %q: %v, %s%s", name, args, err, out, said.String())
		}
		return out
	}
	switch p.kind {
	case "go":
		var found struct{ Dir string }
		if err := json.Unmarshal(run("go", "mod", "download", "-json", p.name+"@"+p.version), &found); err != nil {
			t.Fatal(err)
		}
		return found.Dir, p.version
	case "npm":
		file := strings.TrimSpace(string(run("npm", "pack", "--silent", p.name+"@"+p.version)))
		run("tar", "xzf", file)
		return filepath.Join(tmp, "package"), p.version
	}
	run("pip", "download", "-q", "--no-deps", "--no-binary", ":all:", p.name+"=="+p.version)
	run("sh", "-c", "tar xzf *.tar.gz && rm *.tar.gz && mv * source")
	return filepath.Join(tmp, "source"), p.version
}

// tarOfDir returns a directory as a build context.
func tarOfDir(t *testing.T, dir string) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		}
		hdr, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		hdr.Name = filepath.ToSlash(rel)
		hdr.Mode |= 0o200 // the cache of Go modules is read-only
		if err := w.WriteHeader(hdr); err != nil || !info.Mode().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return &buf
}

// inRegistry splits a path of the registry's API.
var inRegistry = regexp.MustCompile(`^/v2/(.+)/(manifests|blobs)/([^/]+)$`)

// standInAPK stands in for Alpine's installer: the base image has what these Dockerfiles install.
const standInAPK = "#!/bin/sh\necho \"apk $*: the stand-in has it\"\n"

// serveStandIns serves one image under every name, until the test ends: the base image with Go, make, the authorities
// that this host trusts, and root as its user.
func serveStandIns() (host string, err error) {
	silent := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m := inRegistry.FindStringSubmatch(r.URL.Path); m != nil && r.Method != http.MethodPut {
			if m[2] == "manifests" && !strings.HasPrefix(m[3], "sha256:") {
				m[3] = "1"
			}
			r.URL.Path = "/v2/stand/in/" + m[2] + "/" + m[3]
		}
		silent.ServeHTTP(w, r)
	}))
	host = strings.TrimPrefix(srv.URL, "http://")
	dir, err := os.MkdirTemp("", "berth-stand-in-")
	if err != nil {
		return host, err
	}
	defer os.RemoveAll(dir)
	packed := filepath.Join(dir, "layer.tar")
	if err := os.MkdirAll(filepath.Join(dir, "sbin"), 0o755); err != nil {
		return host, err
	}
	if err := os.WriteFile(filepath.Join(dir, "sbin", "apk"), []byte(standInAPK), 0o755); err != nil {
		return host, err
	}
	cmd := exec.Command("tar", "-c", "-f", packed, "--dereference", "--exclude=*/testdata", "--exclude=*_test.go",
		"--transform", "s,^sbin/,usr/sbin/,", "-C", "/", runtime.GOROOT()[1:], "usr/bin/make",
		"etc/ssl/certs/ca-certificates.crt", "-C", dir, "sbin/apk")
	if out, err := cmd.CombinedOutput(); err != nil {
		return host, fmt.Errorf("packing Go: %w: %s", err, out)
	}
	layer, err := tarball.LayerFromFile(packed, tarball.WithCompressionLevel(1))
	if err != nil {
		return host, err
	}
	return host, pushBase(host+"/stand/in:1", func(image v1.Image) (v1.Image, error) {
		image, err := mutate.AppendLayers(image, layer)
		if err != nil {
			return nil, err
		}
		conf, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		const trust = "/etc/ssl/certs/ca-certificates.crt"
		conf.Config.User, conf.Config.WorkingDir, conf.Config.Entrypoint = "", "/", nil
		conf.Config.Env = append(conf.Config.Env, "GOPATH=/go", "GOTOOLCHAIN=local", "GOFLAGS=-buildvcs=false",
			"PIP_CERT="+trust, "NODE_EXTRA_CA_CERTS="+trust,
			"PATH=/go/bin:"+runtime.GOROOT()+"/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
		return mutate.ConfigFile(image, conf)
	})
}

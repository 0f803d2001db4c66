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
	projectsOnly  = flag.String("projects.only", "", "regular expression of names of projects")
	projectsClass = flag.String("projects.class", "runc", "runtime class of the builds")
)

// A publishedProject is a Dockerfile in a published package.
type publishedProject struct {
	kind, name, version string // kind: go, npm, pip, deb or crate, whose client gets the package
	file                string // path of the Dockerfile; "dir:path" with a directory of the package as the context
	lacks               string // what a machine without other networks lacks for it; the build then fails
	because             string // part of what such a build says
}

// TestProjects builds Dockerfiles of published packages with their own contexts, unchanged, twice. Base images come
// under their usual names from a registry of this test, which has the base image with Go instead of them.
func TestProjects(t *testing.T) {
	var table strings.Builder
	table.WriteString("| package | Dockerfile | steps | first | again | result |\n|---|---|---|---|---|---|\n")
	only, err := regexp.Compile(*projectsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range projects {
		if !only.MatchString(p.name) {
			continue
		}
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
	// Steps reach what this machine does: its registries may have addresses of its own network.
	return append(flags, "--egress-allow-private", "0.0.0.0/0"), err
}

// buildTwice builds a project, builds it again from the cache, and adds a row to the table.
func buildTwice(t *testing.T, d *daemontest.Daemon, p publishedProject, table *strings.Builder) {
	c := connect(t, d)
	dir, version := fetchProject(t, p)
	file := p.file
	if sub, in, ok := strings.Cut(file, ":"); ok {
		dir, file = filepath.Join(dir, sub), in
	}
	o := proto.BuildOptions{Name: "project", Dockerfile: file, Class: proto.RuntimeClass(*projectsClass),
		Network: proto.Network{Mode: proto.NetworkOpen}}
	row := func(r record, first, again time.Duration, result string) {
		fmt.Fprintf(table, "| `%s` %s | %s | %d | %.0f s | %.1f s | %s |\n", p.name, version, p.file, r.ran+r.cached,
			first.Seconds(), again.Seconds(), result)
	}
	if p.name == cancelled.project {
		cancelInStep(t, d, o, dir)
	}
	began := time.Now()
	img, r, err := build(t.Context(), c, o, tarOfDir(t, dir), nil)
	first := time.Since(began)
	if p.lacks != "" {
		if err == nil {
			t.Errorf("built, although it lacks %s", p.lacks)
		} else if !strings.Contains(err.Error()+r.logs, p.because) {
			t.Errorf("%v\n%s\nwant a failure that says %q", err, r.logs[max(0, len(r.logs)-4000):], p.because)
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
	result := "built, and cached again"
	if p.name == cancelled.project {
		if result += fmt.Sprintf("; %d steps cached after a cancel", r.cached); r.cached == 0 || r.ran == 0 {
			t.Errorf("after the cancelled build %d steps ran, and %d were cached", r.ran, r.cached)
		}
	}
	row(r2, first, time.Since(began), result)
}

// cancelInStep begins a build, and cancels it when the step of the cancelled project has said that it works. Nothing of
// it is left.
func cancelInStep(t *testing.T, d *daemontest.Daemon, o proto.BuildOptions, dir string) {
	t.Helper()
	c := connect(t, d)
	var id string
	var number int
	_, r, err := build(t.Context(), c, o, tarOfDir(t, dir), func(ev proto.BuildEvent) {
		switch {
		case ev.Build != nil:
			id = ev.Build.ID
		case ev.Step != nil && strings.HasSuffix(ev.Step.Name, cancelled.step):
			number = ev.Step.Number
		case ev.Log != nil && ev.Log.Step == number && strings.Contains(ev.Log.Data, cancelled.says):
			if err := c.CancelBuild(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
	})
	if proto.CodeOf(err) != proto.Canceled {
		t.Fatalf("cancelled in %q: %v\n%s", cancelled.step, err, r.logs[max(0, len(r.logs)-4000):])
	}
	untilNoneRuns(t, c)
	nothingLeft(t, d)
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
	case "deb":
		return debianSource(t, tmp, run, p), p.version
	case "crate":
		return crateSource(t, tmp, run, p), p.version
	}
	run("pip", "download", "-q", "--no-deps", "--no-binary", p.name, p.name+"=="+p.version)
	run("sh", "-c", "tar xzf *.tar.gz && rm *.tar.gz && mv * source")
	return filepath.Join(tmp, "source"), p.version
}

// debianSource gets a source package of Debian by apt, whose lists are below tmp.
func debianSource(t *testing.T, tmp string, run func(string, ...string) []byte, p publishedProject) string {
	t.Helper()
	list := filepath.Join(tmp, "sources.list")
	const keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
	text := "deb-src [signed-by=" + keys + "] http://deb.debian.org/debian bookworm main\n"
	if err := errors.Join(os.WriteFile(list, []byte(text), 0o600),
		os.MkdirAll(filepath.Join(tmp, "lists", "partial"), 0o700)); err != nil {
		t.Fatal(err)
	}
	args := []string{"-qq", "-o", "Dir::Etc::sourcelist=" + list, "-o", "Dir::Etc::sourceparts=-", "-o",
		"Dir::State::lists=" + filepath.Join(tmp, "lists"), "-o", "Dir::Cache=" + tmp, "-o", "APT::Sandbox::User=root"}
	run("apt-get", append(args, "update")...)
	run("apt-get", append(args, "source", "--download-only", "--tar-only", p.name+"="+p.version)...)
	run("sh", "-c", "mkdir source && tar -x --strip-components 1 -C source -f *.orig.tar.?z")
	return filepath.Join(tmp, "source")
}

// crateSource gets a crate, which must have a library, by Cargo as the dependency of an empty crate.
func crateSource(t *testing.T, tmp string, run func(string, ...string) []byte, p publishedProject) string {
	t.Helper()
	if rustSysroot() == "" {
		t.Skip("this host has no Rust")
	}
	manifest := fmt.Sprintf("[package]\nname = \"none\"\nversion = \"0.0.0\"\n[dependencies]\n%s = \"=%s\"\n",
		p.name, p.version)
	if err := errors.Join(os.WriteFile(filepath.Join(tmp, "Cargo.toml"), []byte(manifest), 0o600),
		os.Mkdir(filepath.Join(tmp, "src"), 0o700),
		os.WriteFile(filepath.Join(tmp, "src", "lib.rs"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	run("env", "CARGO_HOME="+filepath.Join(tmp, "home"), "cargo", "fetch", "-q")
	found, _ := filepath.Glob(filepath.Join(tmp, "home/registry/src/*", p.name+"-"+p.version))
	if len(found) != 1 {
		t.Fatalf("%s is not in Cargo's cache", p.name)
	}
	return found[0]
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

// The tags of the stand-ins.
const (
	forAny    = "any"
	forAlpine = "alpine" // for names and tags with this word
	forRust   = "rust"   // for names with this word; with the programs of Alpine too
)

// hostTrust has the authorities that this host trusts.
const hostTrust = "/etc/ssl/certs/ca-certificates.crt"

// alpinePrograms stand in for programs of Alpine.
var alpinePrograms = map[string]string{
	"apk":      alpineInstaller,
	"adduser":  alpineUsers,
	"addgroup": alpineUsers,
}

// alpineInstaller installs Debian's compilers for Alpine's. The base image has what else these Dockerfiles install.
const alpineInstaller = `#!/bin/sh
set -e
wants=
[ "$1" = del ] && exit
for name; do
	case $name in
	gcc|g++|build-base|libc-dev|musl-dev) wants="$wants g++ libc6-dev" ;;
	autoconf|automake|libtool|pkgconf) wants="$wants $name" ;;
	esac
done
echo "apk $*: from Debian:${wants:- nothing}"
if [ -n "$wants" ]; then
	apt-get update -q && apt-get install -q -y --no-install-recommends $wants
fi
`

// alpineUsers takes the options of Alpine's adduser and addgroup, and calls Debian's programs.
const alpineUsers = `#!/bin/sh
set -e
args=$(getopt -o SDHG:h:s:u:g:k: -l system,disabled-password,no-create-home,ingroup:,home:,shell:,uid:,gecos:,gid: \
	-n "$0" -- "$@")
eval set -- "$args"
system= home=-m dir= group= shell=/bin/sh id=
while [ "$1" != -- ]; do
	case $1 in
	-S|--system) system=-r ;;
	-D|--disabled-password) ;;
	-H|--no-create-home) home=-M ;;
	-G|--ingroup) group=$2; shift ;;
	-h|--home) dir=$2; shift ;;
	-s|--shell) shell=$2; shift ;;
	-u|--uid|--gid) id=$2; shift ;;
	-g|--gecos|-k)
		case $0 in *addgroup) id=$2 ;; esac # of a group -g is the number
		shift ;;
	esac
	shift
done
shift
case $0 in
*addgroup)
	if [ -n "$2" ]; then
		exec usermod -a -G "$2" "$1"
	fi
	exec groupadd $system ${id:+-g "$id"} "$1" ;;
esac
if [ -z "$group" ] && [ -n "$system" ]; then
	group=nogroup
fi
exec useradd $system $home -s "$shell" -d "${dir:-/home/$1}" ${group:+-g "$group"} ${id:+-u "$id"} "$1"
`

// standInOf returns the tag of the stand-in for an image.
func standInOf(name, tag string) string {
	switch {
	case strings.Contains(name, forRust):
		return forRust
	case strings.Contains(name+tag, forAlpine):
		return forAlpine
	}
	return forAny
}

// serveStandIns serves the stand-ins under every name, until the test ends: the base image with Go, make, yarn,
// the authorities that this host trusts, and root as its user.
func serveStandIns() (host string, err error) {
	silent := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m := inRegistry.FindStringSubmatch(r.URL.Path); m != nil && r.Method != http.MethodPut {
			if m[2] == "manifests" && !strings.HasPrefix(m[3], "sha256:") {
				m[3] = standInOf(m[1], m[3])
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
	layers, err := standInLayers(dir)
	if err != nil {
		return host, err
	}
	alpine, err := alpineLayer(dir)
	if err != nil {
		return host, err
	}
	withAlpine := append(layers, alpine)
	err = errors.Join(pushBase(host+"/stand/in:"+forAny, standIn(layers...)),
		pushBase(host+"/stand/in:"+forAlpine, standIn(withAlpine...)))
	if sysroot := rustSysroot(); sysroot != "" && err == nil {
		var rust v1.Layer
		if rust, err = layerOf(filepath.Join(dir, "rust.tar"), "--dereference", "--exclude=*/share", "--transform",
			"s,^"+sysroot[1:]+",usr/local/rust,", "-C", "/", sysroot[1:]); err == nil {
			err = pushBase(host+"/stand/in:"+forRust, standIn(append(withAlpine, rust)...))
		}
	}
	return host, err
}

// rustSysroot returns where this host's Rust is, or nothing.
func rustSysroot() string {
	out, _ := exec.Command("rustc", "--print", "sysroot").Output()
	return strings.TrimSpace(string(out))
}

// standInLayers returns the layers that all stand-ins have.
func standInLayers(dir string) ([]v1.Layer, error) {
	cmd := exec.Command("sh", "-c", "npm pack --silent yarn@1.22.22 && tar xzf yarn-*.tgz && mv package yarn &&"+
		" mkdir bin && ln -s ../lib/yarn/bin/yarn.js bin/yarn")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("getting yarn: %w: %s", err, out)
	}
	var layers []v1.Layer
	for i, args := range [][]string{
		{"--dereference", "--exclude=*/testdata", "--exclude=*_test.go", "-C", "/", runtime.GOROOT()[1:],
			"usr/bin/make", hostTrust[1:]},
		// A step that renews the list of authorities keeps those of this host.
		{"--dereference", "--transform", "s,.*,usr/local/share/ca-certificates/host.crt,", "-C", "/", hostTrust[1:]},
		{"--mode=a+rx", "--transform", "flags=r;s,^yarn,usr/local/lib/yarn,", "-C", dir, "yarn"},
		{"--transform", "flags=r;s,^bin,usr/local/bin,", "-C", dir, "bin/yarn"},
	} {
		layer, err := layerOf(filepath.Join(dir, fmt.Sprintf("%d.tar", i)), args...)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	return layers, nil
}

// alpineLayer returns the programs that stand in for Alpine's.
func alpineLayer(dir string) (v1.Layer, error) {
	args := []string{"--transform", "s,^,usr/sbin/,", "-C", dir}
	for name, text := range alpinePrograms {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			return nil, err
		}
		args = append(args, name)
	}
	return layerOf(filepath.Join(dir, "alpine.tar"), args...)
}

// layerOf packs files by the arguments of tar.
func layerOf(packed string, args ...string) (v1.Layer, error) {
	if out, err := exec.Command("tar", append([]string{"-c", "-f", packed}, args...)...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("packing %q: %w: %s", args, err, out)
	}
	return tarball.LayerFromFile(packed, tarball.WithCompressionLevel(1))
}

// standIn makes a stand-in of the base image.
func standIn(layers ...v1.Layer) func(v1.Image) (v1.Image, error) {
	return func(image v1.Image) (v1.Image, error) {
		image, err := mutate.AppendLayers(image, layers...)
		if err != nil {
			return nil, err
		}
		conf, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		conf.Config.User, conf.Config.WorkingDir, conf.Config.Entrypoint = "", "/", nil
		conf.Config.Env = append(conf.Config.Env, "GOPATH=/go", "GOTOOLCHAIN=local", "GOFLAGS=-buildvcs=false",
			"PIP_CERT="+hostTrust, "PIP_BREAK_SYSTEM_PACKAGES=1", "NODE_EXTRA_CA_CERTS="+hostTrust,
			"CARGO_HOME=/usr/local/cargo", "CARGO_HTTP_CAINFO="+hostTrust,
			"PATH=/go/bin:"+runtime.GOROOT()+"/bin:/usr/local/cargo/bin:/usr/local/rust/bin:"+
				"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
		return mutate.ConfigFile(image, conf)
	}
}

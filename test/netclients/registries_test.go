package netclients_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// registries answers as the registries of package managers do, by the name of the host. Each has one package, greeting,
// that says hello.
func registries(t *testing.T) http.Handler {
	t.Helper()
	hosts := map[string]http.Handler{"web.test": http.HandlerFunc(page), "npm.test": npmRegistry(),
		"pypi.test": pythonIndex(t), "crates.test": crateIndex(), "go.test": goProxy(t), "apt.test": aptRepository(t),
		"git.test": gitHost(t)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := hosts[r.Host]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
		http.Error(w, "there is no host "+r.Host, http.StatusMisdirectedRequest)
	})
}

// page is a page of web.test, which a script in it completes.
func page(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		fmt.Fprint(w, "hello from "+r.Host)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprint(w, `<title>none</title><script>fetch("/text").then(r => r.text()).then(s => document.title = s)</script>`)
}

// A packed is a file in an archive.
type packed struct{ name, text string }

func tarball(files ...packed) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range files {
		_ = w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text))})
		_, _ = io.WriteString(w, f.text)
	}
	w.Close()
	z.Close()
	return b.Bytes()
}

func zipped(t *testing.T, files ...packed) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range files {
		w, err := z.Create(f.name)
		if err == nil {
			_, err = io.WriteString(w, f.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	z.Close()
	return b.Bytes()
}

// paths serves contents by path.
func paths(contents map[string][]byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, found := contents[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(b)
	})
}

func npmRegistry() http.Handler {
	archive := tarball(packed{"package/package.json", `{"name":"greeting","version":"1.0.0","main":"main.js"}`},
		packed{"package/main.js", `module.exports = "hello from npm"`})
	sum := sha512.Sum512(archive)
	about, _ := json.Marshal(map[string]any{"name": "greeting", "dist-tags": map[string]string{"latest": "1.0.0"},
		"versions": map[string]any{"1.0.0": map[string]any{"name": "greeting", "version": "1.0.0", "main": "main.js",
			"dist": map[string]string{"tarball": "https://npm.test/greeting/-/greeting-1.0.0.tgz",
				"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}}}})
	return paths(map[string][]byte{"/greeting": about, "/greeting/-/greeting-1.0.0.tgz": archive})
}

func pythonIndex(t *testing.T) http.Handler {
	const info = "greeting-1.0.0.dist-info/"
	wheel := zipped(t, packed{"greeting.py", `text = "hello from pip"`},
		packed{info + "METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0.0\n"},
		packed{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		packed{info + "RECORD", "greeting.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"})
	const file = "greeting-1.0.0-py3-none-any.whl"
	list := fmt.Sprintf(`<a href="/files/%s#sha256=%x">%[1]s</a>`, file, sha256.Sum256(wheel))
	files := paths(map[string][]byte{"/simple/greeting/": []byte(list), "/files/" + file: wheel})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/") {
			w.Header().Set("Content-Type", "text/html")
		}
		files.ServeHTTP(w, r)
	})
}

func crateIndex() http.Handler {
	crate := tarball(packed{"greeting-1.0.0/Cargo.toml", "[package]\nname = \"greeting\"\nversion = \"1.0.0\"\n"},
		packed{"greeting-1.0.0/src/lib.rs", `pub const TEXT: &str = "hello from cargo";`})
	line, _ := json.Marshal(map[string]any{"name": "greeting", "vers": "1.0.0", "deps": []string{}, "features": struct{}{},
		"yanked": false, "cksum": fmt.Sprintf("%x", sha256.Sum256(crate))})
	return paths(map[string][]byte{"/config.json": []byte(`{"dl":"https://crates.test/dl"}`), "/gr/ee/greeting": line,
		"/dl/greeting/1.0.0/download": crate})
}

func goProxy(t *testing.T) http.Handler {
	const at, in, mod = "/example.test/greeting/@v/v1.0.0", "example.test/greeting@v1.0.0/", "module example.test/greeting\n"
	return paths(map[string][]byte{
		"/example.test/greeting/@v/list": []byte("v1.0.0\n"),
		at + ".info":                     []byte(`{"Version":"v1.0.0","Time":"2026-01-01T00:00:00Z"}`),
		at + ".mod":                      []byte(mod),
		at + ".zip": zipped(t, packed{in + "go.mod", mod},
			packed{in + "greeting.go", "package greeting\n\nconst Text = \"hello from go\"\n"}),
	})
}

// aptRepository has a package that dpkg has made.
func aptRepository(t *testing.T) http.Handler {
	dir := t.TempDir()
	const control = "Package: greeting\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <nobody@apt.test>\n" +
		"Description: says hello\n"
	write(t, filepath.Join(dir, "tree/DEBIAN/control"), control, 0o644)
	write(t, filepath.Join(dir, "tree/usr/bin/greeting"), "#!/bin/sh\necho hello from apt\n", 0o755)
	deb := filepath.Join(dir, "greeting.deb")
	run(t, "dpkg-deb", "--root-owner-group", "--build", filepath.Join(dir, "tree"), deb)
	b, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	list := control + fmt.Sprintf("Filename: ./greeting.deb\nSize: %d\nSHA256: %x\n", len(b), sha256.Sum256(b))
	release := fmt.Sprintf("Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n %x %d Packages\n",
		sha256.Sum256([]byte(list)), len(list))
	return paths(map[string][]byte{"/./Release": []byte(release), "/Release": []byte(release), "/Packages": []byte(list),
		"/./Packages": []byte(list), "/./greeting.deb": b, "/greeting.deb": b})
}

// gitHost serves a repository that can be cloned and pushed to.
func gitHost(t *testing.T) http.Handler {
	repository(t, "/greeting.git")
	backend, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	return &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(backend)), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + gitRoot(), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=test"}}
}

// gitRoot is where the repositories of a test are.
func gitRoot() string { return filepath.Join(os.TempDir(), fmt.Sprint("netclients-git-", os.Getpid())) }

// repository makes one with a file.
func repository(t *testing.T, name string) {
	t.Helper()
	at := gitRoot() + name
	t.Cleanup(func() { os.RemoveAll(at) })
	run(t, "git", "init", "--quiet", "--bare", "--initial-branch=main", at)
	run(t, "git", "-C", at, "config", "http.receivepack", "true")
	work := t.TempDir()
	write(t, filepath.Join(work, "README"), "hello from git\n", 0o644)
	git := []string{"-C", work, "-c", "user.name=test", "-c", "user.email=test@git.test"}
	for _, args := range [][]string{{"init", "--quiet", "--initial-branch=main"}, {"add", "."},
		{"commit", "--quiet", "-m", "begin"}, {"push", "--quiet", at, "main"}} {
		run(t, "git", append(git, args...)...)
	}
}

// upstream carries requests for other hosts to them, for a container that installs the clients.
func upstream() http.Handler {
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: r.In.Host})
	}}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), mode)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v %s", program, args, err, out)
	}
}

package buildtest

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"berth/proto"
	"berth/test/daemontest"
)

// The credentials that the registries of these tests know.
const (
	loginUser = "robot"
	password  = "sesame-7f3a91c2"
	wrong     = "sesame-0000dead"
)

// basicAuth asks for HTTP basic authentication.
func basicAuth(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pass, _ := r.BasicAuth(); user != loginUser || pass != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// A tokenServer asks for tokens, as Docker Hub and GHCR do. Names below public are for everybody with a token.
type tokenServer struct {
	next http.Handler

	mu     sync.Mutex // guards given
	given  map[string]string
	scopes []string // that tokens were asked for with the password
}

// ServeHTTP implements http.Handler.
func (s *tokenServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/token" {
		s.token(w, r)
		return
	}
	s.mu.Lock()
	user, known := s.given[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	s.mu.Unlock()
	if !known || user == "" && r.URL.Path != "/v2/" && !strings.HasPrefix(r.URL.Path, "/v2/public/") {
		scope := ""
		if parts := strings.Split(r.URL.Path, "/"); len(parts) > 3 {
			scope = fmt.Sprintf(`,scope="repository:%s/%s:pull"`, parts[2], parts[3])
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Host+`/token",service="test"`+scope)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.next.ServeHTTP(w, r)
}

// token gives a token to whom it knows, and to those who say nothing.
func (s *tokenServer) token(w http.ResponseWriter, r *http.Request) {
	user, pass, named := r.BasicAuth()
	if r.Method == http.MethodPost {
		user, pass = r.PostFormValue("username"), r.PostFormValue("password")
		named = user != ""
	}
	if named && (user != loginUser || pass != password) {
		http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	token := fmt.Sprintf("token-%d", len(s.given))
	s.given[token] = user
	if named {
		s.scopes = append(s.scopes, r.FormValue("scope"))
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "access_token": token, "expires_in": 300})
}

// TestRegistryCredentials pulls from, pushes to and builds from registries that ask for credentials, without them, with
// wrong ones, and with right ones.
func TestRegistryCredentials(t *testing.T) {
	d, err := daemontest.New("--warm-max", "0")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	silent := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	for kind, h := range map[string]http.Handler{
		"basic":  basicAuth(silent),
		"tokens": &tokenServer{next: registry.New(registry.Logger(log.New(io.Discard, "", 0))), given: map[string]string{}},
	} {
		t.Run(kind, func(t *testing.T) {
			srv := httptest.NewServer(h)
			defer srv.Close()
			host := strings.TrimPrefix(srv.URL, "http://")
			useRegistry(t, d, host)
			// Without credentials, a client gets a token for public images.
			_, err := connect(t, d).PullImage(t.Context(), host+"/public/app:1", nil)
			if open := kind == "tokens"; open != (err == nil) {
				t.Errorf("a pull of a public image without credentials: %v", err)
			}
		})
	}
}

// useRegistry goes through the life of credentials for one registry.
func useRegistry(t *testing.T, d *daemontest.Daemon, host string) {
	c := connect(t, d)
	private, public := host+"/private/app:1", host+"/public/app:1"
	pushWithPassword(t, private, "private")
	pushWithPassword(t, public, "public")
	refused := func(what string, err error, says string) {
		t.Helper()
		if proto.CodeOf(err) != proto.PermissionDenied || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v, code %q", what, err, proto.CodeOf(err))
		}
	}
	_, err := c.PullImage(t.Context(), private, nil)
	refused("a pull without credentials", err, "berth image login "+host)
	_, _, err = build(t.Context(), c, proto.BuildOptions{Name: "x"},
		contextOf(t, map[string]string{"Dockerfile": "FROM " + private + "\n"}), nil)
	refused("a build without credentials", err, "berth image login "+host)
	_, err = c.SetRegistry(t.Context(), host, proto.SetRegistry{Username: loginUser, Password: wrong})
	refused("a wrong password", err, "refuses the credentials")
	if list, err := c.Registries(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("wrong credentials are kept: %v, %v", list, err)
	}
	if set, err := c.SetRegistry(t.Context(), host, proto.SetRegistry{Username: loginUser,
		Password: password}); err != nil || set.Host != host ||
		set.Username != loginUser {
		t.Fatalf("setting credentials: %+v, %v", set, err)
	}
	pulled, err := c.PullImage(t.Context(), private, nil)
	if err != nil {
		t.Fatalf("a pull with credentials: %v", err)
	}
	_, r, err := build(t.Context(), c, proto.BuildOptions{Name: "made"}, contextOf(t, map[string]string{
		"Dockerfile": "FROM " + public + "\nCOPY --from=" + host + "/private/app:1 /private /copied\n"}), nil)
	if err != nil || strings.Contains(r.logs, password) {
		t.Fatalf("a build with credentials: %v, %s", err, r.logs)
	}
	pushed, err := c.PushImage(t.Context(), proto.PushImage{Name: "made", Ref: host + "/private/made:2"}, nil)
	if err != nil || pushed.Name != host+"/private/made:2" {
		t.Fatalf("a push: %+v, %v", pushed, err)
	}
	if got := digestAt(t, pushed.Name); got != pushed.Digest {
		t.Errorf("the registry has %s, not %s", got, pushed.Digest)
	}
	if _, err := c.PushImage(t.Context(), proto.PushImage{Name: private}, nil); err != nil || pulled.Digest == "" {
		t.Errorf("a push under the same name: %v", err)
	}
	noSecretIn(t, d)
	if err := c.RemoveRegistry(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	_, err = c.PushImage(t.Context(), proto.PushImage{Name: "made", Ref: host + "/private/made:3"}, nil)
	refused("a push after the credentials went", err, "berth image login "+host)
	if _, err := c.PushImage(t.Context(), proto.PushImage{Name: "nosuch"}, nil); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("a push of what is not there: %v", err)
	}
}

// withPassword are the credentials for go-containerregistry.
var withPassword = remote.WithAuth(&authn.Basic{Username: loginUser, Password: password})

// pushWithPassword pushes an image of one file.
func pushWithPassword(t *testing.T, ref, file string) {
	t.Helper()
	to, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, zstdLayer(t, file, "x"))
	if err != nil {
		t.Fatal(err)
	}
	conf, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	conf.OS, conf.Architecture = "linux", "amd64"
	if image, err = mutate.ConfigFile(image, conf); err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to, image, withPassword); err != nil {
		t.Fatal(err)
	}
}

// digestAt returns the digest that a registry has for a name.
func digestAt(t *testing.T, ref string) string {
	t.Helper()
	at, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	desc, err := remote.Head(at, withPassword)
	if err != nil {
		t.Fatal(err)
	}
	return desc.Digest.String()
}

// noSecretIn checks that no password is in clear in the data directory, the daemon's log or its answers.
func noSecretIn(t *testing.T, d *daemontest.Daemon) {
	if log := d.Log(); strings.Contains(log, password) || strings.Contains(log, wrong) {
		t.Error("the log has a password")
	}
	err := filepath.WalkDir(d.Dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && path == filepath.Join(d.Dir, "runtime") {
			return fs.SkipDir // images and the disk of containers
		}
		if err != nil || !e.Type().IsRegular() {
			return nil // files come and go
		}
		text, err := os.ReadFile(path)
		if err == nil && (strings.Contains(string(text), password) || strings.Contains(string(text), wrong)) {
			t.Errorf("%s has a password", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

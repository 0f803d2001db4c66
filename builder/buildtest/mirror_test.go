package buildtest

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"berth/proto"
	"berth/test/daemontest"
)

// TestRegistryMirror builds over an image of Docker Hub that the second of two mirrors has, and checks that they are
// not asked for images of another registry.
func TestRegistryMirror(t *testing.T) {
	silent := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	var mu sync.Mutex
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.Path)
		mu.Unlock()
		silent.ServeHTTP(w, r)
	}))
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	pushWithPassword(t, host+"/library/nosuch-app:3.1-slim", "of-the-mirror")
	d, err := daemontest.New("--warm-max", "0", "--registry-mirror", "docker.io=127.0.0.1:1",
		"--registry-mirror", "docker.io="+host)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c := connect(t, d)
	img, r, err := build(t.Context(), c, proto.BuildOptions{Name: "mirrored"}, contextOf(t, map[string]string{
		"Dockerfile": "FROM base\nCOPY --from=nosuch-app:3.1-slim /of-the-mirror /x\n"}), nil)
	if err != nil {
		t.Fatal(err, r.logs)
	}
	if got := runIn(t, c, img.Name, "cat /x"); got != "x" {
		t.Errorf("the file of the image has %q", got)
	}
	list, err := c.Images(t.Context())
	if err != nil || !strings.Contains(namesOf(list), " nosuch-app:3.1-slim ") {
		t.Errorf("images %q, %v", namesOf(list), err)
	}
	mu.Lock()
	asked = nil
	mu.Unlock()
	_, err = c.PullImage(t.Context(), registryHost+"/library/nosuch-app:3.1-slim", nil)
	if proto.CodeOf(err) != proto.NotFound {
		t.Errorf("a pull from a registry without mirror: %v", err)
	}
	if len(asked) > 0 {
		t.Errorf("the mirror was asked for images of another registry: %q", asked)
	}
}

// namesOf returns the names of images, each between spaces.
func namesOf(list []proto.Image) string {
	names := " "
	for _, i := range list {
		names += i.Name + " "
	}
	return names
}

package images

import (
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes/docker"

	"berth/proto"
)

// Mirrors are asked before the registry, in the order of the flags, and for pulls alone.
func TestMirrors(t *testing.T) {
	mirrors, err := ParseMirrors([]string{"docker.io=mirror.example.org", "docker.io=127.0.0.1:5000",
		"ghcr.io=b.example.org"})
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{}
	s.UseMirrors(mirrors)
	hosts, err := s.sources()("docker.io")
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, h := range hosts {
		order = append(order, h.Scheme+"://"+h.Host)
		if h.Capabilities.Has(docker.HostCapabilityPush) {
			t.Errorf("%s gets pushes", h.Host)
		}
	}
	const want = "https://mirror.example.org http://127.0.0.1:5000 https://registry-1.docker.io"
	if got := strings.Join(order, " "); got != want {
		t.Errorf("%s are asked, not %s", got, want)
	}
	for _, bad := range []string{"", "docker.io", "docker.io=", "=a.example.org", "docker.io=http://a.example.org",
		"docker.io=a.example.org/path", "library/python=a.example.org", "docker.io=a b"} {
		if _, err := ParseMirrors([]string{bad}); proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

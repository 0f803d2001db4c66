package images

import (
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/distribution/reference"

	"berth/proto"
)

// Mirrors are registries that are asked before others: for each registry, its mirrors in the order in which they are
// asked. An image keeps its name, whichever of them has delivered it.
type Mirrors map[string][]string

// ParseMirrors reads mirrors in the form REGISTRY=HOST[:PORT].
func ParseMirrors(list []string) (Mirrors, error) {
	mirrors := Mirrors{}
	for _, text := range list {
		of, host, _ := strings.Cut(text, "=")
		if !isRegistry(of) || !isRegistry(host) {
			return nil, proto.Errorf(proto.InvalidArgument, "", "registry-mirror", "--registry-mirror %.200q is not "+
				"REGISTRY=HOST[:PORT]; write it like docker.io=mirror.example.org", text)
		}
		mirrors[of] = append(mirrors[of], host)
	}
	return mirrors, nil
}

// isRegistry reports whether a text can stand before the first slash of the full name of an image.
func isRegistry(host string) bool {
	named, err := reference.ParseNormalizedNamed(host + "/name/part")
	return err == nil && reference.Domain(named) == host
}

// UseMirrors sets the mirrors. It is called before the first pull.
func (i *Store) UseMirrors(m Mirrors) { i.mirrors = m }

// sources returns where images are pulled from: mirrors first, then the registry itself.
func (i *Store) sources() docker.RegistryHosts {
	itself := registries(i.given)
	return func(host string) ([]docker.RegistryHost, error) {
		var all []docker.RegistryHost
		for _, at := range append(slices.Clone(i.mirrors[host]), host) {
			hosts, err := itself(at)
			if err != nil {
				return nil, err
			}
			for _, h := range hosts {
				h.Capabilities &= docker.HostCapabilityPull | docker.HostCapabilityResolve
				all = append(all, h)
			}
		}
		return all, nil
	}
}

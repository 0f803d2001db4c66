//go:build projects

package buildtest

// cancelled is the project whose first build is cancelled in the middle of a step, when the step's output has a text.
var cancelled = struct{ project, step, says string }{
	"github.com/in-toto/in-toto-golang", "RUN make build", "go build",
}

// projects are Dockerfiles in published packages.
var projects = []publishedProject{
	{"go", "github.com/google/addlicense", "v1.1.1", "Dockerfile", "", ""},
	{"go", "mvdan.cc/sh/v3", "v3.14.1", "cmd/shfmt/Dockerfile", "", ""},
	{"go", "github.com/mccutchen/go-httpbin/v2", "v2.26.0", "Dockerfile", "", ""},
	{"go", "github.com/fullstorydev/grpcurl", "v1.9.3", "Dockerfile", "a file that its own build writes before",
		"is not there"},
	{"go", "github.com/cpuguy83/go-md2man/v2", "v2.0.7", "Dockerfile", "", ""},
	{"go", "github.com/in-toto/in-toto-golang", "v0.11.0", "Dockerfile", "", ""},
	{"go", "github.com/creack/pty", "v1.1.24", "Dockerfile.golang", "", ""},
	{"go", "github.com/tsenart/vegeta/v12", "v12.13.0", "Dockerfile", "", ""},
	{"go", "github.com/hairyhenderson/gomplate/v4", "v4.3.3", "Dockerfile", "a module that the proxy refused",
		"403 Forbidden"},
	{"go", "github.com/go-acme/lego/v5", "v5.6.0", "Dockerfile", "modules that the proxy refused", "403 Forbidden"},
	{"go", "github.com/benbjohnson/litestream", "v0.5.18", "Dockerfile", "", ""},
	{"go", "github.com/schollz/croc/v10", "v10.7.0", "Dockerfile", "", ""},
	{"go", "github.com/containerd/containerd/v2", "v2.4.2", "integration/images/volume-ownership/Dockerfile", "", ""},
	{"go", "github.com/rakyll/hey", "v0.1.5", "Dockerfile", "Go 1.15, whose go get worked without a module",
		"go.mod"},
	{"go", "github.com/stripe/stripe-mock", "v0.203.0", "Dockerfile",
		"the vendored packages, which a module's archive leaves out", "vendor"},
	{"go", "github.com/prometheus/statsd_exporter", "v0.31.0", "Dockerfile",
		"a program that its own build makes before", "is not there"},
	{"go", "github.com/coredns/coredns", "v1.15.0", "Dockerfile", "a program that its own build makes before",
		"is not there"},
	{"go", "github.com/nats-io/nats-server/v2", "v2.15.3", "docker/Dockerfile.nightly",
		"a context that its own build lays out", "is not there"},
	{"go", "github.com/mikefarah/yq/v4", "v4.54.3", "Dockerfile", "the image of the digest that it names", "sha256:"},
	{"npm", "statsd", "0.9.0", "Dockerfile", "", ""},
	{"npm", "redis-commander", "0.9.0", "Dockerfile", "the find of Alpine, which takes +0002 for a mode", "+0002"},
	{"npm", "mongo-express", "1.0.2", "Dockerfile", "a dependency of github.com, which no registry has",
		"CONNECT tunnel failed"},
	{"npm", "elasticdump", "6.125.1", "Dockerfile_local", "a script that the package leaves out", "is not there"},
	{"npm", "mosca", "2.8.3", "Dockerfile", "Node 4, whose npm did not prepare a package in production",
		"browserify: not found"},
	{"pip", "bandit", "1.9.4", "docker/Dockerfile", "", ""},
	{"pip", "jupyterhub", "6.1.1", "examples/service-fastapi:Dockerfile", "", ""},
	{"pip", "black", "26.10.1", "Dockerfile", "", ""},
	{"deb", "jo", "1.9-1", "Dockerfile", "", ""},
	{"crate", "bore-cli", "0.6.0", "Dockerfile", "", ""},
}

//go:build projects

package buildtest

// projects are Dockerfiles in published packages.
var projects = []publishedProject{
	{"go", "github.com/google/addlicense", "v1.1.1", "Dockerfile", ""},
	{"npm", "statsd", "0.9.0", "Dockerfile", ""},
	{"npm", "redis-commander", "0.9.0", "Dockerfile", "the adduser of Alpine"},
	{"go", "github.com/rakyll/hey", "v0.1.5", "Dockerfile", "Go 1.15, whose go get worked without a module"},
	{"go", "mvdan.cc/sh/v3", "v3.14.1", "cmd/shfmt/Dockerfile", ""},
	{"go", "github.com/mccutchen/go-httpbin/v2", "v2.26.0", "Dockerfile", ""},
	{"go", "github.com/tsenart/vegeta/v12", "v12.13.0", "Dockerfile", ""},
	{"go", "github.com/prometheus/statsd_exporter", "v0.31.0", "Dockerfile",
		"a program that its own build makes before"},
	{"go", "github.com/coredns/coredns", "v1.15.0", "Dockerfile", "a program that its own build makes before"},
	{"go", "github.com/mikefarah/yq/v4", "v4.54.3", "Dockerfile", "the image of the digest that it names"},
	{"npm", "mongo-express", "1.0.2", "Dockerfile", ""},
	{"go", "github.com/benbjohnson/litestream", "v0.5.18", "Dockerfile", ""},
	{"go", "github.com/nats-io/nats-server/v2", "v2.15.3", "docker/Dockerfile.nightly", ""},
	{"go", "github.com/fullstorydev/grpcurl", "v1.9.3", "Dockerfile", ""},
}

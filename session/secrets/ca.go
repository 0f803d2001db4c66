package secrets

import (
	"bytes"
	"context"
	"io"
	"maps"

	"berth/guest/client"
	"berth/guest/wire"
	"berth/proto"
)

// Where a container finds whom to trust: the proxy's authority alone, and with it all that its image trusts.
const (
	authorityFile = "/etc/ssl/berth-proxy.pem"
	trustFile     = "/etc/ssl/berth-trust.pem"
)

// caVariables are how programs find whom to trust. OpenSSL, Go and others look at the first; Node adds to what it
// has.
var caVariables = map[string]string{
	"SSL_CERT_FILE": trustFile, "CURL_CA_BUNDLE": trustFile, "REQUESTS_CA_BUNDLE": trustFile, "PIP_CERT": trustFile,
	"GIT_SSL_CAINFO": trustFile,
	"AWS_CA_BUNDLE":  trustFile, "DENO_CERT": trustFile, "NODE_EXTRA_CA_CERTS": authorityFile,
}

// AddCAVariables puts these into an environment, but for what it says itself.
func AddCAVariables(env map[string]string) {
	said := maps.Clone(env)
	maps.Copy(env, caVariables)
	maps.Copy(env, said)
}

// imageCAFiles are the files in which images have whom they trust, by distribution.
var imageCAFiles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// maxCABytes bounds such a file, in bytes. The usual one has a quarter of a megabyte.
const maxCABytes = 4 << 20

// InstallCA has the container of a guest that comes up trust the proxy's CA, beside those that its image trusts. The
// image's own list gets the CA too, for programs that read nothing else.
func InstallCA(ctx context.Context, g *client.Client, authority []byte) error {
	file, all, err := readImageCA(ctx, g)
	if err != nil {
		return err
	}
	all = append(append(all, '\n'), authority...)
	files := map[string][]byte{authorityFile: authority, trustFile: all}
	if file != "" {
		files[file] = all
	}
	for path, text := range files {
		if _, err := g.Write(ctx, proto.UserRoot, path, wire.WriteOptions{Mode: 0o644}, bytes.NewReader(
			text)); err != nil {
			return err
		}
	}
	return nil
}

// readImageCA reads whom the image trusts, and where that stands. An image may trust nobody.
func readImageCA(ctx context.Context, g *client.Client) (file string, text []byte, err error) {
	for _, path := range imageCAFiles {
		r, _, err := g.Read(ctx, proto.UserRoot, path, 0, maxCABytes)
		if proto.CodeOf(err) == proto.NotFound {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		defer r.Close()
		text, err = io.ReadAll(r)
		return path, text, err
	}
	return "", nil, nil
}

package session

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"

	"berth/egress"
	"berth/guest"
	"berth/proto"

	"github.com/google/uuid"
)

// This file has secrets that commands never see: their environment has placeholders, and the proxy on the way out
// puts the values in. To read the requests it stands in for the hosts, with certificates of an authority of the
// daemon's own, which such a container trusts, and no other.

// placeholderPrefix begins what commands have in the place of such a secret.
const placeholderPrefix = "berth-secret-"

// swap is the secrets of a request for a container with that network, each with a placeholder of its own.
func (c Config) swap(n proto.Network, req proto.CreateContainer) (map[string]egress.Secret, error) {
	if len(req.NetworkSecrets) == 0 {
		return nil, nil
	}
	if c.Egress == nil {
		return nil, proto.Errorf(proto.Unsupported, "", "network_secrets", "this daemon gives containers no "+
			"network, where network_secrets could be put in")
	}
	granted, err := c.Egress.GrantSecrets(n, req.NetworkSecrets)
	if err != nil {
		return nil, err
	}
	swapped := map[string]egress.Secret{}
	for name, s := range granted {
		_, plain := req.Env[name]
		_, secret := req.Secrets[name]
		if plain || secret {
			return nil, invalid("network_secrets", "network secret %.64q: env or secrets have that name too; leave "+
				"one of them out", name)
		}
		swapped[name] = egress.Secret{Name: name, Placeholder: proto.ID(placeholderPrefix, uuid.New()), Value: s.Value,
			Hosts: s.Hosts}
	}
	return swapped, checkEnv(record{Swapped: swapped}.placeholders())
}

// CheckNetworkSecrets says whether a container with that network may have these secrets.
func (ss *Sessions) CheckNetworkSecrets(n proto.Network, asked map[string]proto.NetworkSecret) error {
	_, err := ss.cfg.swap(n, proto.CreateContainer{NetworkSecrets: asked})
	return err
}

// placeholders are what commands have in their environment.
func (r record) placeholders() map[string]string {
	return each(r.Swapped, func(s egress.Secret) string { return s.Placeholder })
}

// swappedValues are what is to be hidden wherever it turns up nevertheless.
func (r record) swappedValues() map[string]string {
	return each(r.Swapped, func(s egress.Secret) string { return s.Value })
}

// shownSecrets are the secrets without what is secret.
func (r record) shownSecrets() map[string]proto.NetworkSecret {
	return each(r.Swapped, func(s egress.Secret) proto.NetworkSecret {
		return proto.NetworkSecret{
			Hosts: slices.Clone(s.Hosts)}
	})
}

func valuesOf(asked map[string]proto.NetworkSecret) map[string]string {
	return each(asked, func(s proto.NetworkSecret) string { return s.Value })
}

// each is a map with other values; an empty one is nil.
func each[A, B any](from map[string]A, fn func(A) B) map[string]B {
	if len(from) == 0 {
		return nil
	}
	to := make(map[string]B, len(from))
	for k, v := range from {
		to[k] = fn(v)
	}
	return to
}

// Where a container finds whom to trust: the proxy's authority alone, and with it all that its image trusts.
const (
	authorityFile = "/etc/ssl/berth-proxy.pem"
	trustFile     = "/etc/ssl/berth-trust.pem"
)

// trustVariables are how programs find whom to trust. OpenSSL, Go and others look at the first; Node adds to what it
// has.
var trustVariables = map[string]string{
	"SSL_CERT_FILE": trustFile, "CURL_CA_BUNDLE": trustFile, "REQUESTS_CA_BUNDLE": trustFile, "PIP_CERT": trustFile,
	"GIT_SSL_CAINFO": trustFile,
	"AWS_CA_BUNDLE":  trustFile, "DENO_CERT": trustFile, "NODE_EXTRA_CA_CERTS": authorityFile,
}

// addTrust puts these into an environment, but for what it says itself.
func addTrust(env map[string]string) {
	said := maps.Clone(env)
	maps.Copy(env, trustVariables)
	maps.Copy(env, said)
}

// imageTrust are the files in which images have whom they trust, by distribution.
var imageTrust = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}

// maxTrust bounds such a file, in bytes. The usual one has a quarter of a megabyte.
const maxTrust = 4 << 20

// teachTrust has a generation that comes up trust the proxy's authority, if it has secrets for it. The image's own
// list is added to, too, for programs that look at nothing else. Called with life held.
func (s *Session) teachTrust(ctx context.Context) error {
	if len(s.record().Swapped) == 0 || s.core.cfg.Egress == nil {
		return nil
	}
	authority, err := s.core.cfg.Egress.TrustedPEM()
	if err != nil {
		return err
	}
	g := s.client()
	file, all, err := trusted(ctx, g)
	if err != nil {
		return err
	}
	all = append(append(all, '\n'), authority...)
	files := map[string][]byte{authorityFile: authority, trustFile: all}
	if file != "" {
		files[file] = all
	}
	for path, text := range files {
		if _, err := g.Write(ctx, proto.UserRoot, path, guest.WriteOptions{Mode: 0o644}, bytes.NewReader(
			text)); err != nil {
			return err
		}
	}
	return nil
}

// trusted reads whom the image trusts, and where that stands. An image may trust nobody.
func trusted(ctx context.Context, g *guest.Client) (file string, text []byte, err error) {
	for _, path := range imageTrust {
		r, _, err := g.Read(ctx, proto.UserRoot, path, 0, maxTrust)
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

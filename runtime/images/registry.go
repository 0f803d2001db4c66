package images

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"

	"berth/proto"
	"berth/proto/span"
)

// Credentials returns the user name and the password for a registry, or empty strings.
type Credentials func(host string) (username, password string, err error)

// UseCredentials sets where credentials come from. It is called before the first pull.
func (i *Store) UseCredentials(c Credentials) { i.credentials = c }

// registries returns how to reach registries with these credentials. Those on this machine may speak plain HTTP. A
// registry without credentials is asked for an anonymous token if it wants one, as Docker Hub does.
func registries(c Credentials) docker.RegistryHosts {
	tokens := &http.Client{Transport: onlyTLS{docker.DefaultHTTPTransport(nil)}}
	authorizer := docker.NewDockerAuthorizer(docker.WithAuthClient(tokens), docker.WithAuthCreds(c))
	return docker.ConfigureDefaultRegistries(docker.WithPlainHTTP(docker.MatchLocalhost),
		docker.WithAuthorizer(authorizer))
}

// An onlyTLS sends no request in clear to another machine: a registry names the server that gives tokens, which gets
// the password.
type onlyTLS struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o onlyTLS) RoundTrip(r *http.Request) (*http.Response, error) {
	if local, err := docker.MatchLocalhost(r.URL.Host); r.URL.Scheme != "https" && (err != nil || !local) {
		return nil, fmt.Errorf("the registry asks to send credentials to %s without TLS", r.URL.Host)
	}
	return o.RoundTripper.RoundTrip(r)
}

// given returns the credentials for a registry.
func (i *Store) given(host string) (string, string, error) {
	if i.credentials == nil {
		return "", "", nil
	}
	return i.credentials(host)
}

// isRefused reports whether a registry refused the caller, or its credentials.
func isRefused(err error) bool {
	return errdefs.IsUnauthorized(err) || errdefs.IsPermissionDenied(err) ||
		errors.Is(err, docker.ErrInvalidAuthorization)
}

// refused returns the error for what a registry gives, or takes, only from whom it knows.
func (i *Store) refused(op, ref, what string) error {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return badName(op, ref)
	}
	host := reference.Domain(named)
	if user, _, _ := i.given(host); user != "" {
		return proto.Errorf(proto.PermissionDenied, op, ref, "the registry %s refuses the credentials of %.80q for "+
			"%s; set others with berth image login %s", host, user, what, host)
	}
	return proto.Errorf(proto.PermissionDenied, op, ref, "the registry %s asks for credentials for %s; set them with "+
		"berth image login %s", host, what, host)
}

// CheckLogin asks a registry whether it takes credentials. One that asks nobody for any takes all.
func (i *Store) CheckLogin(ctx context.Context, host, username, password string) error {
	const op = "log in"
	hosts, err := registries(func(string) (string, string, error) { return username, password, nil })(host)
	if err != nil || len(hosts) == 0 {
		return proto.Errorf(proto.InvalidArgument, op, host, "%.80q is no registry", host)
	}
	h := hosts[0]
	var answers []*http.Response
	for len(answers) < 3 { // without credentials, with them, and with a token that has just expired
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.Scheme+"://"+h.Host+h.Path+"/", nil)
		if err == nil {
			err = h.Authorizer.Authorize(ctx, req)
		}
		var answer *http.Response
		if err == nil {
			answer, err = h.Client.Do(req)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isRefused(err) || hasStatus(err, http.StatusUnauthorized, http.StatusForbidden):
			return wrongLogin(op, host, username)
		case err != nil:
			i.cfg.Log.Warn("logging in to a registry", "registry", host, "err", err)
			return proto.Errorf(proto.Unavailable, op, host, "the registry %s cannot be reached", host)
		}
		answer.Body.Close()
		if answers = append(answers, answer); answer.StatusCode == http.StatusOK {
			return nil
		}
		if answer.StatusCode != http.StatusUnauthorized {
			break
		}
		if h.Authorizer.AddResponses(ctx, answers) != nil {
			return wrongLogin(op, host, username)
		}
	}
	if code := answers[len(answers)-1].StatusCode; code != http.StatusUnauthorized && code != http.StatusForbidden {
		return proto.Errorf(proto.Unavailable, op, host, "%s answers with the status %d, as no registry does", host,
			code)
	}
	return wrongLogin(op, host, username)
}

func wrongLogin(op, host, username string) error {
	return proto.Errorf(proto.PermissionDenied, op, host, "the registry %s refuses the credentials of %.80q", host,
		username)
}

// Push sends an image to a registry under the name ref, or its own.
func (i *Store) Push(ctx context.Context, name, ref string, progress func(proto.ImageProgress)) (img proto.Image,
	err error) {
	ctx, sp := span.Start(ctx, "image.push")
	sp.String(span.ImageName, name)
	defer func() { sp.End(err) }()
	return i.push(ctx, name, ref, progress)
}

// push does the work of Push.
func (i *Store) push(ctx context.Context, name, ref string, progress func(proto.ImageProgress)) (proto.Image, error) {
	const op = "push image"
	img, err := i.Resolve(ctx, name)
	if err != nil {
		return proto.Image{}, err
	}
	if ref == "" {
		ref = name
	}
	full, err := FullName(op, ref)
	if err != nil || isDigestName(full) {
		return proto.Image{}, badName(op, ref)
	}
	ctx, done, err := i.cfg.Client.WithLease(ns(ctx)) // the image may lose its name meanwhile
	if err != nil {
		return proto.Image{}, i.fail(ctx, op, name, err)
	}
	defer done(context.WithoutCancel(ctx))
	rec, err := i.cfg.Client.ImageService().Get(ctx, DigestName(img.Digest))
	if err != nil {
		return proto.Image{}, i.fail(ctx, op, name, err)
	}
	report(progress, proto.ImageProgress{Stage: "resolving", Item: ref})
	if err := i.send(ctx, full, rec.Target, progress); err != nil {
		return proto.Image{}, i.pushError(ctx, op, ref, err)
	}
	img.Name = ShortName(full)
	report(progress, proto.ImageProgress{Stage: "done", Item: shortDigest(img.Digest), Done: img.SizeBytes,
		Total: img.SizeBytes})
	return img, nil
}

// send sends what a manifest names, and then the manifest.
func (i *Store) send(ctx context.Context, ref string, desc ocispec.Descriptor,
	progress func(proto.ImageProgress)) error {
	tracker := docker.NewInMemoryTracker()
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: registries(i.given), Tracker: tracker})
	pusher, err := resolver.Pusher(ctx, ref)
	if err != nil {
		return err
	}
	layers, err := i.documents().children(ctx, desc)
	if err != nil {
		return err
	}
	stop := every(progress, func() {
		for _, l := range layers {
			if st, err := tracker.GetStatus(remotes.MakeRefKey(ctx, l)); err == nil && images.IsLayerType(l.MediaType) {
				progress(proto.ImageProgress{Stage: "pushing", Item: shortDigest(l.Digest.String()), Done: st.Offset,
					Total: l.Size})
			}
		}
	})
	defer stop()
	return remotes.PushContent(ctx, pusher, desc, i.cfg.Client.ContentStore(), semaphore.NewWeighted(fetches),
		platforms.All, nil)
}

// pushError converts a registry's answer to an error that the caller can act on.
func (i *Store) pushError(ctx context.Context, op, ref string, err error) error {
	var known *proto.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &known):
		return err
	case isRefused(err) || hasStatus(err, http.StatusUnauthorized, http.StatusForbidden):
		return i.refused(op, ref, "pushing")
	}
	i.cfg.Log.Warn("pushing an image", "image", ref, "err", err)
	return proto.Errorf(proto.Unavailable, op, ref, "the registry did not take %.80q; try again later", ref)
}

// hasStatus reports whether a registry, or its server of tokens, answered with one of these statuses.
func hasStatus(err error, codes ...int) bool {
	var status remoteerrors.ErrUnexpectedStatus
	return errors.As(err, &status) && slices.Contains(codes, status.StatusCode)
}

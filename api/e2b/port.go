package e2b

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	"berth/api/e2b/access"
	"berth/api/ports/public"
	"berth/proto"
	"berth/session"
	"berth/session/inbound"
)

// Apps serve the programs that listen in containers. Package ports has them.
type Apps interface {
	// Pass serves a request to a port for an actor that was admitted; with "" it is a stranger's, to a public port. The
	// error is inbound.ErrClosed if nothing listens there.
	Pass(w http.ResponseWriter, r *http.Request, s *session.Session, port uint16, actor string) error
	// HasCredential reports whether a request has an API key, a signed URL or its cookie.
	HasCredential(r *http.Request) bool
	// Change changes a container, and ends the requests of strangers to ports that are no longer public.
	Change(ctx context.Context, s *session.Session, req proto.ChangeContainer) (proto.Container, error)
}

// CleanHeaders removes the credentials and the address of a sandbox from a request to a program inside.
func CleanHeaders(h http.Header) {
	for _, name := range []string{headerID, headerPort, headerTraffic} {
		h.Del(name)
	}
	if access.ContainerOf(h.Get(headerToken)) != "" {
		h.Del(headerToken)
	}
}

// inDomain returns the port of a program in a sandbox that the host of a request names. Requests with another
// credential of berth's, and those to containers that were not made here, are for another edge. What is no container,
// or none any more, is for this one, whose clients want to hear that a sandbox is gone.
func (e *Edge) inDomain(r *http.Request) (t target, ok bool) {
	at, below := e.cfg.Domain.Find(r.Host)
	if !below || at.Container == "" || e.cfg.Apps == nil || e.cfg.Apps.HasCredential(r) {
		return t, false
	}
	if s := e.cfg.Sessions.Any(at.Container); s != nil && !settingsOf(s.Info()).made() {
		return t, false
	}
	return target{at.Container, proto.HostID(at.Container), at.Port}, true
}

// servePort serves a request to a program in a sandbox: anyone's if the port is public, else one with the traffic
// token.
func (e *Edge) servePort(w http.ResponseWriter, r *http.Request, s *session.Session, t target, port uint16) error {
	if e.cfg.Apps == nil || inbound.Reachable(port) != nil {
		return closedPort(t, uint64(port))
	}
	actor, set := "", settingsOf(s.Info())
	if set.made() && e.cfg.PortsMax.Covers(proto.PortsSigned) &&
		access.Equal(r.Header.Get(headerTraffic), access.TrafficToken(s)) && e.cfg.Keys.Life(set.keyID).Err() == nil {
		actor = set.keyID
		ctx, cancel := e.onBehalf(r.Context(), s, actor)
		defer cancel()
		r = r.WithContext(ctx)
	} else if !s.Info().PublicPorts.Has(port) {
		return trafficRefused()
	}
	err := e.cfg.Apps.Pass(w, r, s, port, actor)
	switch {
	case errors.Is(err, inbound.ErrClosed):
		return closedPort(t, uint64(port))
	case errors.Is(err, public.ErrWithdrawn):
		return trafficRefused()
	}
	return err
}

func trafficRefused() error {
	return routeError(http.StatusForbidden, "the traffic token of the sandbox is required, as "+headerTraffic)
}

// publicPorts returns what is public in a sandbox. Clients that say nothing expect everything to be, and get what the
// daemon allows.
func (e *Edge) publicPorts(ask newSandbox) (proto.PublicPorts, error) {
	asked := ask.Network != nil && ask.Network.PublicAccess != nil
	switch {
	case isPrivate(ask) && !ask.Secure:
		return proto.PublicPorts{}, proto.Invalid("network.allowPublicTraffic", "network.allowPublicTraffic: false "+
			"needs secure: true, since the agent of the sandbox would be open to everyone")
	case isPrivate(ask):
		return proto.PublicPorts{}, nil
	case e.cfg.PortsMax.Covers(proto.PortsPublic):
		return proto.PublicPorts{All: true}, nil
	case asked:
		return proto.PublicPorts{}, proto.Invalid("network.allowPublicTraffic", "network.allowPublicTraffic: this "+
			"server lets no port be public; its operator can allow it with --ports-max public. Leave it out, or set "+
			"it to false, and send trafficAccessToken with requests to ports")
	}
	return proto.PublicPorts{}, nil
}

// isPrivate reports whether a request wants a sandbox whose ports need the traffic token.
func isPrivate(ask newSandbox) bool {
	return ask.Network != nil && ask.Network.PublicAccess != nil && !*ask.Network.PublicAccess
}

// trafficToken returns the token for ports of a sandbox where one is needed, or nil.
func (e *Edge) trafficToken(s *session.Session) *string {
	info := s.Info()
	set := settingsOf(info)
	if !set.private && (!set.made() || info.PublicPorts.All || !e.cfg.PortsMax.Covers(proto.PortsSigned)) {
		return nil
	}
	token := access.TrafficToken(s)
	return &token
}

// domain returns the name below which clients find ports, or nil. A client that uses another domain for the API is to
// stay there.
func (e *Edge) domain(r *http.Request) *string {
	name := e.cfg.Domain.Name
	host, _, _ := strings.Cut(strings.ToLower(r.Host), ":")
	if name == "" || strings.HasPrefix(host, "api.") && host != "api."+name {
		return nil
	}
	if e.cfg.Domain.Port != "" {
		name = net.JoinHostPort(name, e.cfg.Domain.Port)
	}
	return &name
}

// setNetwork replaces what a sandbox may reach: what is left out is as in a new sandbox. Who may reach it changes only
// if the request says so, since clients have no field for it.
func (e *Edge) setNetwork(c *call) (any, error) {
	var ask struct {
		network
		InternetAccess *bool `json:"allow_internet_access"`
	}
	if err := c.read(&ask); err != nil {
		return nil, err
	}
	s, err := e.session(c)
	if err != nil {
		return nil, err
	}
	set := settingsOf(s.Info())
	want := newSandbox{Network: &ask.network, InternetAccess: ask.InternetAccess, Secure: !set.open}
	if err := refuseFields(want); err != nil {
		return nil, err
	}
	open, err := e.publicPorts(want)
	if err != nil {
		return nil, err
	}
	req := proto.ChangeContainer{Network: e.network(want)}
	if e.cfg.Apps == nil {
		_, err = s.Change(c.r.Context(), req)
		return nil, err
	}
	if ask.PublicAccess != nil {
		req.PublicPorts = &open
	}
	if set.made() && req.PublicPorts != nil {
		set.private = isPrivate(want)
		req.Labels = s.Info().Labels
		req.Labels[settingsLabel] = set.label()
	}
	_, err = e.cfg.Apps.Change(c.r.Context(), s, req)
	return nil, err
}

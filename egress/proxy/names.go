package proxy

import (
	"context"
	"errors"
	"strings"
	"sync"

	"berth/egress"
	"berth/egress/names"
	"berth/proto"

	"golang.org/x/net/dns/dnsmessage"
)

// A source says to the name server of a container what it may know of names.
type source struct{ *Gate }

// LookUp implements names.Source. It reports what it refuses, and of a name that is allowed the first question:
// programs ask for each name again and again.
func (g source) LookUp(ctx context.Context, name string) names.Verdict {
	t, err := g.admit(ctx, name)
	if err != nil && g.mayAsk(t) {
		// No name server is asked about a name that nobody has allowed: the question would leave the container.
		return g.verdict("DNS", t, g.proxy.resolver.CheckKnown(ctx, t))
	}
	if err == nil && g.isNews(t.Name) {
		err = g.asking("DNS", t)
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, g.proxy.cfg.DialTimeout)
		defer cancel()
		_, err = g.proxy.resolver.Resolve(ctx, t)
	}
	return g.verdict("DNS", t, err)
}

// Records implements names.Source. The name server of the host is asked for records of hosts that the container may
// reach, under no other name than that of the host, for services with theirs before it. So a question carries out no
// more than one for an address does, apart from the name of a service.
func (g source) Records(ctx context.Context, name string, kind dnsmessage.Type) ([]dnsmessage.ResourceBody,
	names.Verdict) {
	host, service := name, false
	if kind == dnsmessage.TypeSRV {
		host, service = cutService(name)
		if !service {
			return nil, g.LookUp(ctx, name)
		}
	}
	method := "DNS " + strings.TrimPrefix(kind.String(), "Type")
	t, err := g.admit(ctx, host)
	if err != nil && g.mayAsk(t) {
		if service {
			return nil, names.Absent
		}
		return nil, g.LookUp(ctx, name)
	}
	if err == nil {
		err = g.asking(method, t)
	}
	var bodies []dnsmessage.ResourceBody
	if err == nil {
		bodies, err = g.records(ctx, t, name, kind)
	}
	verdict := g.verdict(method, t, err)
	if verdict == names.Absent && err != nil && egress.RefusalOf(err).Code == proto.NotFound && !service {
		verdict = g.LookUp(ctx, name) // it may have an address
	}
	return bodies, verdict
}

// records asks for records. Containers learn no more of names than what they may reach: a TXT record only where the
// host itself may be reached, and the others as far as the hosts that they lead to may be. One that leads to a private
// address is refused with all others, as among addresses.
//
// Where hosts were left out since the list lacks them, that is a refusal only if the host itself has no address: other
// programs go on with that.
func (g source) records(ctx context.Context, t egress.Target, name string, kind dnsmessage.Type) (
	bodies []dnsmessage.ResourceBody, err error) {
	ctx, cancel := context.WithTimeout(ctx, g.proxy.cfg.DialTimeout)
	defer cancel()
	if kind == dnsmessage.TypeTXT {
		if _, err := g.proxy.resolver.Resolve(ctx, t); err != nil {
			return nil, err
		}
	}
	list, err := g.proxy.resolver.Records(ctx, name, kind)
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, r := range list {
		wg.Go(func() { errs[i] = g.judge(ctx, name, r.Host) })
	}
	wg.Wait()
	var unlisted error
	for i, e := range errs {
		switch why := egress.RefusalOf(e); {
		case e == nil:
			bodies = append(bodies, list[i].Body)
		case why.Reason == notListed:
			unlisted = e
		case why.Code != proto.NotFound:
			return nil, e
		}
	}
	if len(bodies) == 0 && unlisted != nil {
		if _, none := g.proxy.resolver.Resolve(ctx, t); none != nil {
			return nil, unlisted
		}
	}
	return bodies, err
}

// judge says whether the container may reach a host that a record of a name leads to; "" is none.
func (g source) judge(ctx context.Context, name, host string) error {
	if host == "" {
		return nil
	}
	t, err := egress.ParseTarget(host, namesPort)
	if err == nil && !g.policy.Load().AllowsName(t.Name) {
		err = notAllowed(*g.policy.Load(), egress.Target{Name: t.Name})
	} else if err == nil {
		_, err = g.proxy.resolver.Resolve(ctx, t)
	}
	if why := (*egress.Refusal)(nil); errors.As(err, &why) && why.Code == proto.PermissionDenied {
		return egress.Refuse(why.Code, why.Reason, "%s leads to a host that is refused: %s", name, why.Text)
	}
	return err
}

// mostService is how long the name of a service may be: RFC 6335.
const mostService = 15

// cutService returns the host of the name of a service, such as _http._tcp.example.com.
func cutService(name string) (host string, ok bool) {
	service, rest, _ := strings.Cut(name, ".")
	protocol, host, _ := strings.Cut(rest, ".")
	service, ok = strings.CutPrefix(service, "_")
	if !ok || len(service) > mostService || service == "" ||
		strings.Trim(service, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return "", false
	}
	switch protocol {
	case "_tcp", "_udp", "_tls", "_sctp":
		return host, true
	}
	return "", false
}

// mayAsk reports whether a person can be asked about a host that the container may not know of.
func (g source) mayAsk(t egress.Target) bool {
	p := g.policy.Load()
	return g.ask != nil && g.granted() == nil && t.Name != "" && !p.AllowsName(t.Name) && p.Asks(t)
}

// admit says whether the container may know of a host.
func (g source) admit(ctx context.Context, host string) (egress.Target, error) {
	if err := g.asks.Wait(ctx); err != nil {
		return egress.Target{}, err
	}
	t, err := egress.ParseTarget(host, namesPort)
	if err == nil && t.Name == "" {
		err = egress.BadTarget("%.80q needs no answer", host)
	}
	if err == nil {
		err = g.granted()
	}
	if err == nil && !g.policy.Load().AllowsName(t.Name) {
		err = notAllowed(*g.policy.Load(), egress.Target{Name: t.Name})
	}
	return t, err
}

// mostAsked bounds the names of a container whose questions are not reported again.
const mostAsked = 4096

// isNews reports whether a name is asked for the first time lately.
func (g *Gate) isNews(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asked[name] {
		return false
	}
	if len(g.asked) >= mostAsked {
		clear(g.asked)
	}
	g.asked[name] = true
	return true
}

// asking reports a question before a name server hears of it.
func (g source) asking(method string, t egress.Target) error {
	if err := g.proxy.cfg.Ready(); err != nil {
		return egress.Refuse(proto.Unavailable, "no_log", "questions of containers cannot be audited now")
	}
	g.report(egress.Report{Began: true, Outcome: proto.AuditOK, AuditEgress: proto.AuditEgress{Method: method,
		Host: t.Host(), Port: t.Port}})
	return nil
}

// verdict turns an error into what the name server says, and reports a refusal.
func (g source) verdict(method string, t egress.Target, err error) names.Verdict {
	if err == nil {
		return names.Exists
	}
	switch egress.RefusalOf(err).Code {
	case proto.PermissionDenied:
		_ = g.refused(method, t, err)
		return names.Absent
	case proto.NotFound, proto.InvalidArgument:
		return names.Absent
	}
	return names.Unknown
}

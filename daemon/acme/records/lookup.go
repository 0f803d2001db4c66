package records

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// checkServer refuses a text that is not HOST:PORT.
func checkServer(setting, text string) error {
	host, port, err := net.SplitHostPort(text)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || perr != nil || n == 0 {
		return fmt.Errorf("%s: %q is no name server; write it as ns.example.org:53", setting, text)
	}
	return nil
}

// maxAliases bounds how many aliases (CNAME) of a record are followed, one behind the other.
const maxAliases = 8

// missing returns which name server does not have a record yet, or nil. It follows aliases as the authority does.
func (s *Setter) missing(ctx context.Context, name, value string) error {
	at := s.at(name)
	for range maxAliases {
		alias, err := s.missingAt(ctx, at, value)
		if alias == "" || err != nil {
			return err
		}
		at = alias
	}
	return fmt.Errorf("the name has more than %d aliases (CNAME), one behind the other", maxAliases)
}

// missingAt returns which name server does not have a record at a name, or the other name that the name is an alias of.
func (s *Setter) missingAt(ctx context.Context, name, value string) (alias string, err error) {
	servers := []string{s.check}
	if s.check == "" {
		if servers, err = serversOf(ctx, name); err != nil {
			return "", err
		}
	}
	for _, server := range servers {
		values, to, err := texts(ctx, server, name)
		switch {
		case err != nil:
			return "", fmt.Errorf("asking %s: %w", server, err)
		case slices.Contains(values, value):
		case to == "" || alias != "" && to != alias:
			return "", fmt.Errorf("%s has %d other values at %s", server, len(values), name)
		default:
			alias = to
		}
	}
	return alias, nil
}

// maxServers bounds how many addresses of name servers are asked.
const maxServers = 16

// serversOf returns the addresses of the name servers of the zone that a name is in: of the longest name above it that
// has some.
func serversOf(ctx context.Context, name string) (list []string, err error) {
	var found []*net.NS
	for rest := name; rest != "" && len(found) == 0; {
		found, err = net.DefaultResolver.LookupNS(ctx, rest)
		_, rest, _ = strings.Cut(rest, ".")
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("finding the name servers of %s: %w", name, err)
	}
	for _, ns := range found {
		addrs, err := net.DefaultResolver.LookupHost(ctx, ns.Host)
		if err != nil {
			return nil, fmt.Errorf("finding the name server %s: %w", ns.Host, err)
		}
		list = append(list, net.JoinHostPort(addrs[0], "53"))
	}
	return list[:min(len(list), maxServers)], nil
}

// askLimit is the time limit of a question to a name server.
const askLimit = 5 * time.Second

// texts returns the TXT values that a server has for a name, and the name that it is an alias of. Over TCP an answer is
// never cut.
func texts(ctx context.Context, server, name string) (values []string, alias string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	m := new(dns.Msg).SetQuestion(name, dns.TypeTXT)
	answer, _, err := (&dns.Client{Net: "tcp", Timeout: askLimit}).ExchangeContext(ctx, m, server)
	if err != nil {
		return nil, "", err
	}
	for _, rr := range answer.Answer {
		switch rr := rr.(type) {
		case *dns.TXT:
			values = append(values, strings.Join(rr.Txt, ""))
		case *dns.CNAME:
			if strings.EqualFold(rr.Hdr.Name, name) {
				alias = dns.CanonicalName(rr.Target)
			}
		}
	}
	return values, alias, nil
}

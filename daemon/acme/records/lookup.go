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

// missing returns which name server does not have a record yet, or nil.
func (s *Setter) missing(ctx context.Context, name, value string) error {
	servers := []string{s.check}
	if s.check == "" {
		var err error
		if servers, err = serversOf(ctx, s.at(name)); err != nil {
			return err
		}
	}
	for _, server := range servers {
		values, err := texts(ctx, server, s.at(name))
		if err != nil {
			return fmt.Errorf("asking %s: %w", server, err)
		}
		if !slices.Contains(values, value) {
			return fmt.Errorf("%s has %d other values", server, len(values))
		}
	}
	return nil
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

// texts returns the TXT values that a server has for a name. Over TCP an answer is never cut.
func texts(ctx context.Context, server, name string) (values []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	m := new(dns.Msg).SetQuestion(name, dns.TypeTXT)
	answer, _, err := (&dns.Client{Net: "tcp", Timeout: askLimit}).ExchangeContext(ctx, m, server)
	if err != nil {
		return nil, err
	}
	for _, rr := range answer.Answer {
		if txt, ok := rr.(*dns.TXT); ok {
			values = append(values, strings.Join(txt.Txt, ""))
		}
	}
	return values, nil
}

package records

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// An update changes records by dynamic updates (RFC 2136), signed with a TSIG key (RFC 8945).
type update struct {
	server, zone           string
	key, secret, algorithm string // zone and key end with a dot
}

// algorithms are the TSIG algorithms. HMAC-MD5 and HMAC-SHA1 are left out.
var algorithms = []string{dns.HmacSHA224, dns.HmacSHA256, dns.HmacSHA384, dns.HmacSHA512}

// recordTTL is how long resolvers may keep a record, in seconds. A record lives for one check.
const recordTTL = 60

// tsigFudge is how far the clocks of both ends may differ, in seconds, as RFC 8945 recommends.
const tsigFudge = 300

func newUpdate(settings map[string]string) (Provider, error) {
	if err := required(settings, "server", "key", "secret"); err != nil {
		return nil, err
	}
	if err := checkServer("server", settings["server"]); err != nil {
		return nil, err
	}
	u := &update{server: settings["server"], key: dns.CanonicalName(settings["key"]), secret: settings["secret"],
		algorithm: dns.CanonicalName(cmp.Or(settings["algorithm"], dns.HmacSHA256))}
	if zone := settings["zone"]; zone != "" {
		u.zone = dns.CanonicalName(zone)
	}
	if !slices.Contains(algorithms, u.algorithm) {
		return nil, fmt.Errorf("algorithm: %q is none; use %s", settings["algorithm"], strings.ReplaceAll(
			strings.Join(algorithms, " "), ". ", ", "))
	}
	if _, err := base64.StdEncoding.DecodeString(u.secret); err != nil {
		return nil, fmt.Errorf("secret is not in base64")
	}
	return u, nil
}

// Add implements Provider.
func (u *update) Add(ctx context.Context, name, value string) error {
	return u.change(ctx, name, value, (*dns.Msg).Insert)
}

// Remove implements Provider.
func (u *update) Remove(ctx context.Context, name, value string) error {
	return u.change(ctx, name, value, (*dns.Msg).Remove)
}

func (u *update) change(ctx context.Context, name, value string, how func(*dns.Msg, []dns.RR)) error {
	zone, err := u.zoneOf(ctx, name)
	if err != nil {
		return err
	}
	m := new(dns.Msg).SetUpdate(zone)
	how(m, []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: recordTTL},
		Txt: []string{value}}})
	m.SetTsig(u.key, u.algorithm, tsigFudge, time.Now().Unix())
	client := &dns.Client{Net: "tcp", Timeout: askLimit, TsigSecret: map[string]string{u.key: u.secret}}
	answer, _, err := client.ExchangeContext(ctx, m, u.server)
	if err != nil {
		return fmt.Errorf("updating the zone %s at %s: %w", zone, u.server, err)
	}
	if answer.Rcode != dns.RcodeSuccess {
		return fmt.Errorf("the name server %s answers %s to an update of the zone %s; check key, secret and "+
			"algorithm, and that the key may change this name", u.server, dns.RcodeToString[answer.Rcode], zone)
	}
	return nil
}

// zoneOf returns the zone that a name is in. Without one in the settings it asks the server, whose answer to any
// question for the name has the zone's SOA record.
func (u *update) zoneOf(ctx context.Context, name string) (string, error) {
	if u.zone != "" {
		return u.zone, nil
	}
	m := new(dns.Msg).SetQuestion(name, dns.TypeSOA)
	answer, _, err := (&dns.Client{Net: "tcp", Timeout: askLimit}).ExchangeContext(ctx, m, u.server)
	if err != nil {
		return "", fmt.Errorf("asking %s for the zone of %s: %w", u.server, name, err)
	}
	for _, rr := range slices.Concat(answer.Answer, answer.Ns) {
		if soa, ok := rr.(*dns.SOA); ok && dns.IsSubDomain(soa.Hdr.Name, name) {
			return soa.Hdr.Name, nil
		}
	}
	return "", fmt.Errorf("the name server %s does not say which zone %s is in; set zone", u.server, name)
}

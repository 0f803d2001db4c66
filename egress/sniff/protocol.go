// Package sniff reads the beginning of a client's traffic: which protocol it speaks, the name in a TLS hello, and the
// head of an HTTP request. It refuses what two programs may read differently.
package sniff

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"berth/egress"
	"berth/proto"
)

// A Protocol is the protocol of a client in a tunnel.
type Protocol int

// Protocols.
const (
	Other Protocol = iota
	TLS
	HTTP
)

// Bounds for telling protocols apart.
const (
	tlsHandshake = 0x16    // first byte of a TLS record that begins a connection
	longestVerb  = 32      // of an HTTP request, in bytes
	longestLine  = 8 << 10 // first line of an HTTP request, in bytes; longer lines are refused
)

// ReadProtocol determines the protocol from the client's first bytes. Anything that a lenient server might read as an
// HTTP request counts as HTTP.
func ReadProtocol(r *bufio.Reader) (Protocol, error) {
	for n := 1; ; {
		if _, err := r.Peek(n); err != nil {
			return Other, err
		}
		b, _ := r.Peek(r.Buffered())
		if b[0] == tlsHandshake {
			return TLS, nil
		}
		if said, known := guess(bytes.TrimLeft(b, "\r\n"), len(b) >= longestLine); known {
			return said, nil
		}
		n = len(b) + 1
	}
}

// guess tells HTTP from other protocols by the beginning of a line. full means that no more bytes will come.
func guess(b []byte, full bool) (said Protocol, known bool) {
	verb := bytes.IndexFunc(b, func(r rune) bool { // the first character that no HTTP method has
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
	switch {
	case verb == 0 || verb > 0 && b[verb] != ' ' || verb < 0 && len(b) > longestVerb || verb > longestVerb:
		return Other, true
	case verb < 0:
		return Other, full
	}
	line, _, ended := bytes.Cut(b, []byte("\n"))
	switch {
	case ended && !bytes.Contains(line, []byte("HTTP/")):
		return Other, true
	case ended || full:
		return HTTP, true
	}
	return Other, false
}

// echExtension is the number of a TLS extension: an encrypted second hello whose name cannot be read. Browsers send
// one with random content to every host (RFC 9849, section 6.2), and nobody but the host can tell it from a real one.
const echExtension = 0xfe0d

// CheckHello reads the first message of a TLS client and nothing after it. It refuses a message that does not name the
// target. hidden reports whether there may be another name, encrypted.
func CheckHello(ctx context.Context, r io.Reader, t egress.Target) (hidden bool, err error) {
	var hello *tls.ClientHelloInfo
	err = tls.Server(deaf{r: r}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		hello = h
		return nil, errors.New("the hello is read")
	}}).HandshakeContext(ctx)
	if hello == nil {
		return false, egress.Refuse(proto.InvalidArgument, "bad_hello", "the connection begins like TLS but is not: %s",
			strings.TrimPrefix(err.Error(), "tls: "))
	}
	return slices.Contains(hello.Extensions, echExtension), compareName(hello, t)
}

// compareName compares the name in a hello with the target's.
func compareName(hello *tls.ClientHelloInfo, t egress.Target) error {
	switch name := strings.ToLower(hello.ServerName); {
	case name == t.Name: // both empty for an address
		return nil
	case name == "":
		return egress.Refuse(proto.PermissionDenied, "no_sni", "the TLS hello to %s does not say which host it is for",
			t)
	default:
		return egress.Refuse(proto.PermissionDenied, "sni_mismatch", "the connection is to %s and the TLS hello says "+
			"%+.260q", t, name)
	}
}

// A deaf connection can only be read.
type deaf struct{ r io.Reader }

func (d deaf) Read(b []byte) (int, error)       { return d.r.Read(b) }
func (d deaf) Write(b []byte) (int, error)      { return len(b), nil }
func (d deaf) Close() error                     { return nil }
func (d deaf) LocalAddr() net.Addr              { return nil }
func (d deaf) RemoteAddr() net.Addr             { return nil }
func (d deaf) SetDeadline(time.Time) error      { return nil }
func (d deaf) SetReadDeadline(time.Time) error  { return nil }
func (d deaf) SetWriteDeadline(time.Time) error { return nil }

package proxy

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"berth/egress"
	"berth/proto"
)

// fronts remembers which hosts understand Encrypted Client Hello. A client of such a host can hide that its connection
// is for another one behind the same front. For any other host the encrypted part means nothing: browsers send one with
// random content to all of them.
type fronts struct {
	timeout time.Duration // to ask a host

	mu   sync.Mutex // guards seen
	seen map[front]frontSeen
}

type front struct{ name, addr string }

type frontSeen struct {
	decrypts bool
	until    time.Time
}

// Bounds of what is remembered.
const (
	frontFor   = 10 * time.Minute
	mostFronts = 4096
)

// check refuses a hello with an encrypted part if the host at that address may understand it.
func (f *fronts) check(ctx context.Context, t egress.Target, at net.Addr) error {
	decrypts, err := f.decrypts(ctx, front{t.Name, at.String()})
	switch {
	case err != nil:
		return egress.Refuse(proto.Unavailable, "encrypted_hello", "the TLS hello to %s has an encrypted part, and it "+
			"cannot be found out now whether the host understands it", t)
	case decrypts:
		return egress.Refuse(proto.PermissionDenied, "encrypted_hello", "the TLS hello to %s has an encrypted part, "+
			"which that host understands; turn Encrypted Client Hello off in the client", t)
	}
	return nil
}

// decrypts asks the host, unless it was asked lately.
func (f *fronts) decrypts(ctx context.Context, at front) (bool, error) {
	f.mu.Lock()
	seen, known := f.seen[at]
	f.mu.Unlock()
	if known && time.Now().Before(seen.until) {
		return seen.decrypts, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	decrypts, err := understandsECH(ctx, at)
	if err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen == nil || len(f.seen) >= mostFronts {
		f.seen = map[front]frontSeen{}
	}
	f.seen[at] = frontSeen{decrypts, time.Now().Add(frontFor)}
	return decrypts, nil
}

// understandsECH makes a hello with an encrypted part that nobody can read. A host that understands such parts answers
// with the configuration to use instead (RFC 9849, section 7.1).
func understandsECH(ctx context.Context, at front) (bool, error) {
	if at.name == "" { // of an address
		at.name = "address.invalid"
	}
	list, err := unreadable(at.name)
	if err != nil {
		return false, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", at.addr)
	if err != nil {
		return false, err
	}
	defer c.Close()
	w := &watched{Conn: c}
	err = tls.Client(w, &tls.Config{ServerName: at.name, MinVersion: tls.VersionTLS13,
		EncryptedClientHelloConfigList:      list,
		EncryptedClientHelloRejectionVerify: func(tls.ConnectionState) error { return nil }, // nothing is sent to it
	}).HandshakeContext(ctx)
	if rejected := (*tls.ECHRejectionError)(nil); errors.As(err, &rejected) {
		return len(rejected.RetryConfigList) > 0, nil
	}
	switch {
	case ctx.Err() != nil || len(w.head) == 0:
		return false, errors.Join(err, errors.New("it did not answer"))
	case errors.As(err, new(tls.RecordHeaderError)): // no TLS, so nothing can be hidden in it
		return false, nil
	}
	switch alert, ok := w.alert(); {
	case ok && alert == alertProtocolVersion: // no TLS 1.3, which an encrypted part needs
		return false, nil
	case ok && alert == alertECHRequired:
		return true, nil
	}
	return false, oldAlone(ctx, at, err)
}

// Alerts (RFC 8446, section 6; RFC 9849, section 5) that say whether a host understands encrypted parts. All others are
// sent by hosts of both kinds: a front answers so if it has no certificate for the name on the list, for example.
const (
	alertProtocolVersion = 70
	alertECHRequired     = 121
)

// oldAlone returns nil if a host has no TLS 1.3, as its choice shows when it may choose. why is the error so far.
func oldAlone(ctx context.Context, at front, why error) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", at.addr)
	if err != nil {
		return errors.Join(why, err)
	}
	defer c.Close()
	t := tls.Client(c, &tls.Config{ServerName: at.name, InsecureSkipVerify: true}) // nothing is sent to it
	err = t.HandshakeContext(ctx)
	if version := t.ConnectionState().Version; err != nil || version == 0 || version >= tls.VersionTLS13 {
		return errors.Join(why, err, errors.New("the host may have TLS 1.3, and did not say what it understands"))
	}
	return nil
}

// A watched connection remembers the first bytes that its host has said.
type watched struct {
	net.Conn
	head []byte
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.head = append(w.head, b[:min(n, alertBytes-len(w.head))]...)
	return n, err
}

// alertBytes is the length of a record with an alert that is not encrypted.
const alertBytes = 7

// alert returns what the host's first record says, if that is an alert.
func (w *watched) alert() (alert byte, ok bool) {
	const recordAlert = 21
	if len(w.head) < alertBytes || w.head[0] != recordAlert {
		return 0, false
	}
	return w.head[alertBytes-1], true
}

// unreadable returns a list with one configuration, whose private key nobody has.
func unreadable(name string) ([]byte, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	public := key.PublicKey().Bytes()
	inner := []byte{0, 0, 0x20, 0, byte(len(public))} // the ID 0, X25519
	inner = append(inner, public...)
	inner = append(inner, 0, 4, 0, 1, 0, 1) // HKDF with SHA-256, AES-128-GCM
	inner = append(inner, 0, byte(len(name)))
	inner = append(append(inner, name...), 0, 0) // no extensions
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(inner)))
	config = append(config, inner...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...), nil
}

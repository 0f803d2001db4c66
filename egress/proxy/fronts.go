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
	// No TLS 1.3 with that host, so nothing can be hidden in it.
	if ctx.Err() == nil && w.answered {
		return false, nil
	}
	return false, errors.Join(err, errors.New("it did not answer"))
}

// A watched connection knows whether its host has said anything.
type watched struct {
	net.Conn
	answered bool
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.answered = w.answered || n > 0
	return n, err
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

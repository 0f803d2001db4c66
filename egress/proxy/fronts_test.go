package proxy

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"berth/proto"
)

// hiding starts a server that understands Encrypted Client Hello, and returns its port and configuration.
func hiding(t *testing.T, least, most uint16, hides bool) (port string, list []byte) {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if list, err = unreadable("front.example"); err != nil {
		t.Fatal(err)
	}
	const publicAt = 2 + 4 + 5 // after the lengths, the version, the ID, the algorithm and the key's length
	copy(list[publicAt:], key.PublicKey().Bytes())
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.TLS = &tls.Config{MinVersion: least, MaxVersion: most}
	if hides {
		s.TLS.EncryptedClientHelloKeys = []tls.EncryptedClientHelloKey{{Config: list[2:], PrivateKey: key.Bytes(),
			SendAsRetry: true}}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return port, list
}

// TestEncryptedHello checks that a hello with an encrypted part, as browsers send it to everybody, passes to hosts that
// do not understand it, and that no connection can be hidden from the daemon by those that do.
func TestEncryptedHello(t *testing.T) {
	front, list := hiding(t, 0, 0, true)
	plain, _ := hiding(t, 0, 0, false)
	old, _ := hiding(t, tls.VersionTLS12, tls.VersionTLS12, false)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	go func() {
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			go func() { // a host that ends first would count as one that speaks first
				defer c.Close()
				_, _ = c.Read(make([]byte, 1))
			}()
		}
	}()
	_, mute, _ := net.SplitHostPort(silent.Addr().String())
	s := newSite(t, Config{}, allow("front.example:"+front, "front.example:"+plain, "front.example:"+old,
		"front.example:"+mute))
	s.names.Set("front.example", "127.0.0.1")
	hello := func(port string) error {
		c, _ := connect(s, "front.example:"+port)
		defer c.Close()
		return tls.Client(c, &tls.Config{ServerName: "hidden.example", EncryptedClientHelloConfigList: list,
			EncryptedClientHelloRejectionVerify: func(tls.ConnectionState) error { return nil },
			InsecureSkipVerify:                  true}).HandshakeContext(t.Context())
	}
	for range 2 { // the second time from memory
		if err := hello(plain); !errors.As(err, new(*tls.ECHRejectionError)) {
			t.Errorf("a host that does not understand it: %v", err)
		}
		if err := hello(front); err == nil || errors.As(err, new(*tls.ECHRejectionError)) {
			t.Errorf("a front: %v", err)
		}
	}
	v := s.refusedFor("encrypted_hello")
	if v.Outcome != string(proto.PermissionDenied) || v.Sent != 0 {
		t.Errorf("%+v", v)
	}
	if err := hello(old); err == nil || bytes.Contains([]byte(err.Error()), []byte("access denied")) {
		t.Errorf("a host with TLS 1.2 alone: %v", err)
	}
	s.mu.Lock()
	s.visits = nil
	s.mu.Unlock()
	if err := hello(mute); err == nil {
		t.Error("a host that says nothing was reached")
	}
	if v := s.refusedFor("encrypted_hello"); v.Outcome != string(proto.Unavailable) {
		t.Errorf("a host that says nothing: %+v", v)
	}
}

// TestAlertsOfFronts has hosts end the question with an alert. Only an alert that says that the host has no TLS 1.3 lets
// an encrypted hello pass, and only if the host has no TLS 1.3 where others say nothing.
func TestAlertsOfFronts(t *testing.T) {
	// answer is a host that answers its first connection with an alert, and later ones as the server at port next does.
	answer := func(alert byte, next string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for first := true; ; first = false {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					if first || next == "" {
						_, _ = c.Read(make([]byte, 4096))
						_, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, alert})
						return
					}
					to, err := net.Dial("tcp", "127.0.0.1:"+next)
					if err != nil {
						return
					}
					defer to.Close()
					go func() { _, _ = io.Copy(to, c) }()
					_, _ = io.Copy(c, to)
				}()
			}
		}()
		return l.Addr().String()
	}
	newer, _ := hiding(t, 0, 0, true)
	old, _ := hiding(t, tls.VersionTLS12, tls.VersionTLS12, false)
	const handshakeFailure, unrecognizedName = 40, 112
	for _, c := range []struct {
		name     string
		addr     string
		decrypts bool
		known    bool
	}{
		{"no TLS 1.3", answer(alertProtocolVersion, ""), false, true},
		{"ECH is required", answer(alertECHRequired, ""), true, true},
		{"no certificate for the name", answer(unrecognizedName, ""), false, false},
		{"a failure before TLS 1.3", answer(handshakeFailure, newer), false, false},
		{"a failure before TLS 1.2", answer(handshakeFailure, old), false, true},
	} {
		decrypts, err := understandsECH(t.Context(), front{"front.example", c.addr})
		if decrypts != c.decrypts || (err == nil) != c.known {
			t.Errorf("%s: %t, %v", c.name, decrypts, err)
		}
	}
}

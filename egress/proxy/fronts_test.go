package proxy

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"errors"
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

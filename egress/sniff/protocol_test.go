package sniff

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"

	"berth/egress"
)

// TestEncryptedHello checks that a hello with an encrypted second name is refused.
func TestEncryptedHello(t *testing.T) {
	err := compareName(&tls.ClientHelloInfo{ServerName: "a.example", Extensions: []uint16{0, echExtension}},
		egress.Target{Name: "a.example", Port: 443})
	if err == nil || egress.RefusalOf(err).Reason != "encrypted_hello" {
		t.Error(err)
	}
}

func FuzzHead(f *testing.F) {
	f.Add([]byte("GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		client, proxy := net.Pipe()
		defer client.Close()
		defer proxy.Close()
		go func() { _, _ = client.Write(b); client.Close() }()
		in := bufio.NewReaderSize(proxy, HeadBytes)
		h, err := ReadHead(in)
		if err != nil {
			return
		}
		head, _, _ := bytes.Cut(b, headEnd)
		if bytes.ContainsAny(head, "\x00\x7f") || bytes.Contains(bytes.ReplaceAll(head, []byte("\r\n"), nil),
			[]byte("\n")) {
			t.Fatalf("%q was taken", head)
		}
		r, err := http.ReadRequest(in)
		if err == nil && len(h.hosts) == 1 && !strings.Contains(r.RequestURI, "//") && r.Host != h.hosts[0] &&
			r.Method != "CONNECT" {
			t.Fatalf("%q: %q and %q", head, r.Host, h.hosts)
		}
	})
}

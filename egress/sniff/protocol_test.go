package sniff

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"strings"
	"testing"
)

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

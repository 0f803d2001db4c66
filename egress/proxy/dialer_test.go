package proxy

import (
	"context"
	"net"
	"testing"

	"berth/proto"
)

// TestDialer checks that a dialer connects to listed targets only, and to private addresses only if the list names
// them.
func TestDialer(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	at := ln.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	for _, list := range [][]string{{at}, {"127.0.0.0/8", at}} {
		d, err := NewDialer(list, "")
		if err != nil {
			t.Fatal(err)
		}
		c, err := d.DialContext(context.Background(), "tcp", at)
		if err != nil {
			t.Fatalf("%v: %v", list, err)
		}
		c.Close()
		for _, bad := range []string{"127.0.0.1:1", "localhost:" + port, "169.254.169.254:80", "0x7f.1:" + port,
			"[::ffff:127.0.0.1]:1", "example.com:443", "user@" + at, at + "/x", ""} {
			if err := d.Reach(bad); proto.CodeOf(err) != proto.PermissionDenied &&
				proto.CodeOf(err) != proto.InvalidArgument {
				t.Errorf("%s: %v", bad, err)
			}
			if c, err := d.DialContext(context.Background(), "tcp", bad); err == nil {
				c.Close()
				t.Errorf("%s was dialled", bad)
			}
		}
	}
	for _, bad := range []string{"*", "169.254.169.254", "http://a.example", "a.example:0", ""} {
		if _, err := NewDialer([]string{bad}, ""); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if d, err := NewDialer([]string{"localhost:" + port}, ""); err != nil {
		t.Error(err)
	} else if c, err := d.DialContext(context.Background(), "tcp", "localhost:"+port); err == nil {
		c.Close()
		t.Error("a name that leads to what is not public, and is not listed as an address, was dialled")
	}
}

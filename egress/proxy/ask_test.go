package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"berth/egress"
	"berth/proto"
)

// asked is a request to a site with a list that asks: its connection waits until the test answers.
type asked struct {
	ctx    context.Context
	target egress.Target
	answer chan any // *egress.Permit or error
}

func newAsking(t *testing.T, allow ...string) (*site, chan asked) {
	t.Helper()
	asks := make(chan asked, 100)
	s := &site{ask: func(ctx context.Context, to egress.Target, _ func(string)) (*egress.Permit, error) {
		a := asked{ctx, to, make(chan any, 1)}
		asks <- a
		select {
		case v := <-a.answer:
			p, _ := v.(*egress.Permit)
			err, _ := v.(error)
			return p, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	s.open(t, Config{}, proto.Network{Ask: true, Allow: allow})
	return s, asks
}

// get requests a URL, and returns the status and the body.
func (s *site) get(url string) chan string {
	done := make(chan string, 1)
	client := s.client()
	go func() {
		res, err := client.Get(url)
		if err != nil {
			done <- err.Error()
			return
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		done <- fmt.Sprint(res.StatusCode, " ", strings.TrimSpace(string(body)))
	}()
	return done
}

// A permit counts for a target that the list lacks, until it ends, and for no more than the container may reach.
func TestPermits(t *testing.T) {
	s, asks := newAsking(t)
	name, port := echo(t)
	s.names.Set(name, "127.0.0.1")
	s.names.Set("inner.example", "127.0.0.2")
	url := "http://" + name + ":" + port + "/"
	got := s.get(url)
	a := <-asks
	if a.target.String() != name+":"+port || s.names.Asked(name) != 0 {
		t.Errorf("asked for %s; the name server was asked %d times before", a.target, s.names.Asked(name))
	}
	a.answer <- &egress.Permit{Note: "yes"}
	if said := <-got; !strings.HasPrefix(said, "200 ") {
		t.Error(said)
	}
	if v := s.await("the permit", func(v egress.Report) bool { return v.Began }); v.Note != "yes" {
		t.Errorf("%+v", v)
	}
	got = s.get("http://inner.example/")
	(<-asks).answer <- &egress.Permit{}
	if said := <-got; !strings.HasPrefix(said, "403 inner.example leads to an address that is refused") {
		t.Error(said)
	}
	// A permit that is over when the connection is made, and a list that does not have what it should.
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, p := range []*egress.Permit{{Life: over}, {Listed: true}} {
		got = s.get(url)
		(<-asks).answer <- p
		if said := <-got; !strings.HasPrefix(said, "403 ") {
			t.Errorf("%+v: %s", p, said)
		}
	}
	// A tunnel ends with its permit.
	c, r := s.dial()
	fmt.Fprintf(c, "CONNECT %s:%s HTTP/1.1\r\nHost: %[1]s:%[2]s\r\n\r\n", name, port)
	life, end := context.WithCancel(context.Background())
	(<-asks).answer <- &egress.Permit{Life: life}
	if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res, err)
	}
	end()
	s.refusedFor("permit_over")
	if _, err := io.ReadAll(r); err != nil {
		t.Error(err)
	}
	// What nobody may reach, and names that are none, are not asked about.
	for _, host := range []string{"127.0.0.2", "169.254.169.254", "localhost", "intranet", "[::1]"} {
		if said := <-s.get("http://" + host + "/"); !strings.HasPrefix(said, "403 ") {
			t.Errorf("%s: %s", host, said)
		}
	}
	if len(asks) > 0 {
		t.Errorf("asked about %s", (<-asks).target)
	}
}

// A program that leaves does not wait, and a change of the network wakes those that do.
func TestWaitsEnd(t *testing.T) {
	s, asks := newAsking(t)
	name, port := echo(t)
	s.names.Set(name, "127.0.0.1")
	c, _ := s.dial()
	fmt.Fprintf(c, "CONNECT %s:%s HTTP/1.1\r\nHost: %[1]s:%[2]s\r\n\r\n", name, port)
	a := <-asks
	c.Close()
	<-a.ctx.Done()
	s.refusedFor("not_decided")

	got := s.get("http://" + name + ":" + port + "/")
	<-asks
	s.gate.Change(proto.Network{Mode: proto.NetworkAllowlist, Ask: true, Allow: []string{name + ":" + port}})
	if said := <-got; !strings.HasPrefix(said, "200 ") {
		t.Error(said)
	}
	got = s.get("http://other.example/")
	<-asks
	s.gate.Change(proto.Network{Mode: proto.NetworkAllowlist, Ask: true, Deny: []string{"other.example"}})
	if said := <-got; !strings.HasPrefix(said, "403 other.example:80 is denied to this container") {
		t.Error(said)
	}
}

// TestNoAskForEarlierNetworks checks that a network which asks, and was granted before, asks nobody after the operator
// has forbidden it.
func TestNoAskForEarlierNetworks(t *testing.T) {
	s := &site{ask: func(context.Context, egress.Target, func(string)) (*egress.Permit, error) {
		t.Error("somebody was asked")
		return nil, errors.New("nobody is there")
	}}
	s.open(t, Config{NoAsk: true}, allow())
	s.gate.Change(proto.Network{Mode: proto.NetworkAllowlist, Ask: true})
	if said := <-s.get("http://some.example/"); !strings.HasPrefix(said, "403 ") || !strings.Contains(said,
		"network.allow") {
		t.Error(said)
	}
}

package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/client"
	"berth/proto"
)

// A script is a command that runs in a container.
type script chan proto.ExecResult

// begin runs a script while the test goes on.
func (w *internet) begin(t *testing.T, id, text string) script {
	done := make(script, 1)
	go func() {
		defer close(done)
		cmd := asJSON(t, proto.Cmd{Command: strings.NewReplacer("PLAIN", w.plain, "SECURE", w.secure).Replace(text)})
		done <- call[proto.ExecResult](t, w.server, 200, "POST", "/v1/containers/"+id+"/exec", cmd)
	}()
	return done
}

// said waits for the end of a script, and compares its output. One of its notes must have all those texts.
func (s script) said(t *testing.T, want string, texts ...string) {
	t.Helper()
	res := <-s
	if res.Result.Result == nil || strings.TrimSpace(res.Result.Result.Stdout) != want {
		t.Errorf("%+v %+v, want %q", res.Result.Result, res.Exec.End, want)
	}
	if !slices.ContainsFunc(res.Notes, func(n string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(n, text) })
	}) {
		t.Errorf("none of the notes %q has %q", res.Notes, texts)
	}
}

var errParked = errors.New("found")

// parked waits until connections of a container to a host wait for a decision.
func (w *internet) parked(t *testing.T, id, item string) proto.Approval {
	t.Helper()
	c, err := client.New(client.Config{Host: w.URL, Key: w.Key})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	item = strings.NewReplacer("PLAIN", w.plain, "SECURE", w.secure).Replace(item)
	var a proto.Approval
	err = c.FollowEvents(ctx, client.FeedFilter{Container: id, Types: []string{"approval.parked"},
		Since: time.Now().Add(-time.Hour)}, nil, func(e proto.FeedEvent) (err error) {
		approval, host, _ := strings.Cut(e.Item, " ")
		if host != item {
			return nil
		}
		if a, err = c.Approval(ctx, approval); err == nil && a.State == proto.ApprovalParked {
			err = errParked
		}
		return err
	})
	if !errors.Is(err, errParked) {
		t.Fatalf("%s is not asked about: %v", item, err)
	}
	return a
}

func (w *internet) decide(t *testing.T, want int, id, verb, body string) proto.Approval {
	t.Helper()
	return call[proto.Approval](t, w.server, want, "POST", "/v1/approvals/"+id+"/"+verb, body)
}

// Connections to hosts that are not on the list wait for a person, with and without a proxy.
func TestAsking(t *testing.T) {
	w := newInternet(t)
	eachClass(t, func(t *testing.T, class proto.RuntimeClass) {
		for name, prefix := range map[string]string{"proxy": "", "direct": withoutProxy} {
			t.Run(name, func(t *testing.T) { w.testAsking(t, class, prefix) })
		}
	})
}

func (w *internet) testAsking(t *testing.T, class proto.RuntimeClass, prefix string) {
	c := w.container(t, class, fmt.Sprintf(`{"ask":true,"allow":["example.com:%s"]}`, w.plain))
	if n := c.Network; n.Mode != proto.NetworkAllowlist || !n.Ask {
		t.Fatalf("%+v", n)
	}
	const fetch = `curl -s -m 60 http://web.test:PLAIN/`
	const got = "GET web.test:PLAIN body=0"
	want := strings.ReplaceAll(got, "PLAIN", w.plain)

	// Two connections of one command wait for one decision, which counts until the command has ended.
	s := w.begin(t, c.ID, prefix+"curl -s http://example.com:PLAIN/ >/dev/null; "+fetch+" >/dev/null & "+fetch+
		"; wait; "+fetch+" >/dev/null && echo; "+fetch)
	a := w.parked(t, c.ID, "web.test:PLAIN")
	if a.Kind != proto.ApprovalNetwork || a.ContainerID != c.ID || a.ExpiresAt == nil {
		t.Errorf("%+v", a)
	}
	if list := call[struct{ Data []proto.Approval }](t, w.server, 200, "GET", "/v1/approvals?kind=network&container="+
		c.ID, "").Data; len(list) != 1 || list[0].ID != a.ID {
		t.Errorf("%+v", list)
	}
	if a = w.decide(t, 200, a.ID, "approve", ""); a.State != proto.ApprovalApproved || a.For != proto.ScopeOnce {
		t.Errorf("%+v", a)
	}
	s.said(t, want+"\n"+want, "the network let a connection through: web.test:"+w.plain+" was allowed once by ")
	w.decide(t, 200, a.ID, "approve", `{"for":"once"}`)
	w.decide(t, 409, a.ID, "refuse", "")
	w.decide(t, 409, a.ID, "approve", `{"for":"life"}`)

	// The next command asks again, and is refused once: at once, for the rest of the command.
	s = w.begin(t, c.ID, prefix+codesOf+"http://web.test:PLAIN/ http://web.test:PLAIN/ | cut -c1-3,8-10")
	b := w.parked(t, c.ID, "web.test:PLAIN")
	if a.ID == b.ID {
		t.Error("a decision that is over was not asked for again")
	}
	w.decide(t, 200, b.ID, "refuse", `{"reason":"not today"}`)
	s.said(t, map[bool]string{true: "403403", false: "000000"}[prefix == ""], "was refused once by ")

	// For life, the host gets onto the list, and stays there over a stop.
	s = w.begin(t, c.ID, prefix+fetch)
	a = w.parked(t, c.ID, "web.test:PLAIN")
	w.decide(t, 200, a.ID, "approve", `{"for":"life"}`)
	s.said(t, want, "was allowed for the container's life by ")
	call[proto.Container](t, w.server, 200, "POST", "/v1/containers/"+c.ID+"/stop", "")
	w.says(t, c.ID, prefix+fetch, got)
	if n := call[proto.Container](t, w.server, 200, "GET", "/v1/containers/"+c.ID, "").Network; !slices.Equal(n.Allow,
		[]string{"example.com:" + w.plain, "web.test:" + w.plain}) || !n.Ask {
		t.Errorf("%+v", n)
	}
	s = w.begin(t, c.ID, prefix+"curl -s -m 60 http://six.test/ >/dev/null || true; echo end")
	w.decide(t, 200, w.parked(t, c.ID, "six.test:80").ID, "refuse", `{"for":"life","reason":"too old"}`)
	s.said(t, "end", "six.test:80 was refused for the container's life by ", ": too old")
	w.says(t, c.ID, prefix+"curl -s -m 60 http://six.test/ >/dev/null || true; echo end", "end")
}

// What no container may reach is refused at once where it is known, and after an approval where a name hides it.
func TestAskingCannotReachMore(t *testing.T) {
	w := newInternet(t)
	eachClass(t, func(t *testing.T, class proto.RuntimeClass) {
		c := w.container(t, class, `{"ask":true}`)
		w.says(t, c.ID, codesOf+"http://127.0.0.2:PLAIN/ http://169.254.169.254/ http://localhost:PLAIN/ "+
			"http://10.0.0.1/ "+
			"http://intranet/", "403000 403000 403000 403000 403000")
		for _, name := range []string{"inner.test", "meta.test"} {
			before := w.names.Asked(name)
			s := w.begin(t, c.ID, codesOf+"http://"+name+"/")
			a := w.parked(t, c.ID, name+":80")
			if n := w.names.Asked(name) - before; n != 0 {
				t.Errorf("a name server was asked %d times about %s before anybody allowed it", n, name)
			}
			w.decide(t, 200, a.ID, "approve", "")
			s.said(t, "403000", name+" leads to an address that is refused")
		}
	})
}

// Who waits for nobody is refused in time, and what is asked survives the daemon.
func TestAskingEnds(t *testing.T) {
	w := newInternet(t, "--network-ask", "5s")
	c := w.container(t, proto.ClassRunc, `{"ask":true}`)
	s := w.begin(t, c.ID, codesOf+"http://web.test:PLAIN/")
	a := w.parked(t, c.ID, "web.test:PLAIN")
	s.said(t, "403000", "nobody decided about "+a.ID+" within 5s")
	w.decide(t, 410, a.ID, "approve", "")

	// A program that leaves makes room, and its approval stays for those that come again.
	s = w.begin(t, c.ID, "curl -s -m 1 http://web.test:PLAIN/; touch /tmp/left; until [ -e /tmp/go ]; do sleep 0.05; "+
		"done; curl -s -m 60 http://web.test:PLAIN/")
	a = w.parked(t, c.ID, "web.test:PLAIN")
	w.says(t, c.ID, "until [ -e /tmp/left ]; do sleep 0.05; done", "")
	if now := call[proto.Approval](t, w.server, 200, "GET", "/v1/approvals/"+a.ID, ""); now.Connections != 0 {
		t.Errorf("a program that has left waits: %+v", now)
	}
	w.decide(t, 200, a.ID, "approve", "")
	w.says(t, c.ID, "touch /tmp/go", "")
	s.said(t, strings.ReplaceAll("GET web.test:PLAIN body=0", "PLAIN", w.plain), "web.test:"+w.plain)

	// PATCH lets what waits through, and takes away what was asked.
	s = w.begin(t, c.ID, codesOf+"http://web.test:PLAIN/")
	w.parked(t, c.ID, "web.test:PLAIN")
	call[proto.Container](t, w.server, 200, "PATCH", "/v1/containers/"+c.ID, fmt.Sprintf(
		`{"network":{"allow":["web.test:%s"],"ask":true}}`, w.plain))
	s.said(t, "200000", "was added to the list")
	s = w.begin(t, c.ID, codesOf+"http://example.com:PLAIN/")
	a = w.parked(t, c.ID, "example.com:PLAIN")
	call[proto.Container](t, w.server, 200, "PATCH", "/v1/containers/"+c.ID, `{"network":{"allow":["web.test"]}}`)
	s.said(t, "403000", "add \"example.com:"+w.plain+"\" to its network.allow")
	w.decide(t, 409, a.ID, "approve", "")
}

// A decision once lasts over a restart of the daemon, as long as its command does.
func TestAskingOverRestart(t *testing.T) {
	w := newInternet(t)
	c := w.container(t, proto.ClassRunc, `{"ask":true}`)
	e := call[proto.Exec](t, w.server, 202, "POST", "/v1/containers/"+c.ID+"/exec", asJSON(t, proto.Cmd{
		Background: true,
		Command: strings.ReplaceAll("until [ -e go ]; do curl -s -m 100 http://web.test:PLAIN/ >out; sleep 0.1; "+
			"done; echo $(cat out)",
			"PLAIN", w.plain)}))
	at := "/v1/containers/" + c.ID
	a := w.parked(t, c.ID, "web.test:PLAIN")
	restart := func() {
		t.Helper()
		w.Stop(syscall.SIGKILL)
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
	}
	restart()
	w.decide(t, 200, a.ID, "approve", "")
	restart()
	w.says(t, c.ID, "cd ../"+e.JobID+"; until [ -s out ]; do sleep 0.05; done; cat out", "GET web.test:PLAIN body=0")
	w.says(t, c.ID, "touch ../"+e.JobID+"/go", "")
	call[any](t, w.server, 200, "GET", at+"/execs/"+e.ID+"/result?wait_seconds=60", "")
	s := w.begin(t, c.ID, codesOf+"http://web.test:PLAIN/")
	b := w.parked(t, c.ID, "web.test:PLAIN")
	if a.ID == b.ID {
		t.Error("the decision counts after its command")
	}
	w.decide(t, 200, b.ID, "refuse", "")
	s.said(t, "403000", "was refused once")
}

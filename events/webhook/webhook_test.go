package webhook

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/events"
	"berth/proto"
	"berth/state/audit"
	"berth/state/ledger"
	"berth/state/vault"
)

// A site is an audit log, its webhooks and a receiver.
type site struct {
	t        *testing.T
	cfg      Config
	log      *audit.Log
	store    *Store
	receiver *httptest.Server
	answers  chan int           // statuses of the next answers; closed: 200
	got      chan *http.Request // with the body as read in Form
}

func newSite(t *testing.T) *site {
	s := &site{t: t, answers: make(chan int, 100), got: make(chan *http.Request, 100)}
	dir := t.TempDir()
	db, err := ledger.Open(filepath.Join(dir, "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if s.log, err = audit.Open(audit.Config{Dir: dir, Ledger: db}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.log.Close() })
	secrets, err := vault.Open(filepath.Join(dir, "secret-key"), db)
	if err != nil {
		t.Fatal(err)
	}
	s.cfg = Config{Feed: events.New(s.log), Ledger: db, Vault: secrets, Dial: (&net.Dialer{}).DialContext,
		Audit: s.log.Append, Delays: []time.Duration{time.Millisecond}}
	s.receiver = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Form = map[string][]string{"body": {string(body)}}
		status := 200
		select {
		case status = <-s.answers:
		default:
		}
		s.got <- r
		w.WriteHeader(status)
	}))
	t.Cleanup(s.receiver.Close)
	s.open()
	t.Cleanup(func() { s.store.Close() })
	return s
}

func (s *site) open() {
	s.t.Helper()
	var err error
	if s.store, err = Open(s.cfg); err != nil {
		s.t.Fatal(err)
	}
	s.store.Start()
}

func (s *site) create(req proto.CreateWebhook) proto.NewWebhook {
	s.t.Helper()
	made, err := s.store.Create(context.Background(), "me", req)
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// happen logs the end of a command.
func (s *site) happen(owner, exec string) {
	s.log.Append(proto.AuditEntry{Act: "exec.end", Outcome: proto.AuditOK, Owner: owner, ExecID: exec,
		Exec: &proto.AuditExec{Reason: proto.EndExit}})
}

// next returns the next message, whose signature is right.
func (s *site) next(secret string) (id string, m proto.WebhookMessage) {
	s.t.Helper()
	r := <-s.got
	body := r.Form.Get("body")
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		s.t.Fatal(err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		s.t.Fatal(err)
	}
	id, at := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
	if want := "v1," + sign(key, id, at, []byte(body)); r.Header.Get("webhook-signature") != want {
		s.t.Errorf("signed %q, want %q", r.Header.Get("webhook-signature"), want)
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || time.Since(time.Unix(seconds, 0)).Abs() > time.Minute {
		s.t.Errorf("sent at %q", at)
	}
	return id, m
}

// The signature is that of the example in the specification of Standard Webhooks.
func TestSignature(t *testing.T) {
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	got := sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A receiver gets the events of its owner that it asked for, in order; after failures the same one again; and after a
// restart it goes on where it was.
func TestDeliveries(t *testing.T) {
	s := newSite(t)
	s.happen("me", "before")
	hook := s.create(proto.CreateWebhook{URL: s.receiver.URL + "/hook", Types: []string{"exec."}})
	for range 3 { // before the event, which may be delivered at once
		s.answers <- 500
	}
	s.happen("me", "exec_1")
	s.happen("other", "exec_2")
	s.log.Append(proto.AuditEntry{Act: "container.create", Outcome: proto.AuditOK, Owner: "me"})
	var first string
	for i := range 4 {
		id, m := s.next(hook.Secret)
		if first == "" {
			first = id
		}
		if id != first || m.Type != proto.FeedExecEnded || m.Data.ExecID != "exec_1" {
			t.Fatalf("%d: %q, first %q: %+v", i, id, first, m)
		}
	}
	s.happen("me", "exec_3")
	if _, m := s.next(hook.Secret); m.Data.ExecID != "exec_3" {
		t.Errorf("%+v", m)
	}
	s.answers <- 503
	s.happen("me", "exec_4")
	s.next(hook.Secret)
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	for len(s.got) > 0 { // it may have been repeated before
		<-s.got
	}
	s.happen("me", "exec_5")
	s.open()
	seen := []string{}
	for !slices.Contains(seen, "exec_5") {
		_, m := s.next(hook.Secret)
		seen = append(seen, m.Data.ExecID)
	}
	if slices.Contains(seen, "exec_3") || slices.Contains(seen, "exec_1") {
		t.Errorf("after a restart: %v", seen)
	}
	if list := s.store.List("me"); len(list) != 1 || list[0].FailingSince != nil || len(list[0].Deliveries) == 0 {
		t.Errorf("%+v", list)
	}
	if err := s.store.Delete("other", hook.ID); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("of another owner: %v", err)
	}
	if err := s.store.Delete("me", hook.ID); err != nil || len(s.store.List("me")) != 0 {
		t.Error(err)
	}
}

// A receiver that is gone, or failed for too long, is disabled, which is an event; enabled again it gets what it
// missed.
func TestFailingReceiversAreDisabled(t *testing.T) {
	for name, status := range map[string]int{"gone": http.StatusGone, "failed too long": http.StatusBadGateway} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.store.cfg.GiveUp = time.Millisecond
			hook := s.create(proto.CreateWebhook{URL: s.receiver.URL, Types: []string{"exec."}})
			for range 50 {
				s.answers <- status
			}
			told, err := s.cfg.Feed.Follow(t.Context(), events.Filter{Types: []string{"webhook."}}, events.Start{})
			if err != nil {
				t.Fatal(err)
			}
			defer told.Close()
			s.happen("me", "exec_1")
			enough := errors.New("enough")
			err = told.Each(t.Context(), func(e proto.FeedEvent) error {
				if e.Item != hook.ID || e.Owner != "me" || e.Note == "" {
					t.Errorf("%+v", e)
				}
				return enough
			})
			if !errors.Is(err, enough) {
				t.Fatal(err)
			}
			now, err := s.store.Get("me", hook.ID)
			if err != nil || now.Enabled || now.DisabledReason == "" {
				t.Fatalf("%+v %v", now, err)
			}
			for len(s.answers) > 0 {
				<-s.answers
			}
			for len(s.got) > 0 {
				<-s.got
			}
			on := true
			if _, err := s.store.Change("me", hook.ID, proto.ChangeWebhook{Enabled: &on}); err != nil {
				t.Fatal(err)
			}
			if _, m := s.next(hook.Secret); m.Data.ExecID != "exec_1" {
				t.Errorf("%+v", m)
			}
		})
	}
}

// What cannot be a webhook is refused, and an owner has a bound.
func TestWebhooksAreChecked(t *testing.T) {
	s := newSite(t)
	for _, req := range []proto.CreateWebhook{{}, {URL: "ftp://example.com"}, {URL: "http://u:p@example.com/"},
		{URL: "http://example.com/" + strings.Repeat("x", maxURL)}, {URL: "http:///x"},
		{URL: "http://example.com", Types: []string{"exec"}}, {URL: "http://example.com", ContainerID: "x"},
		{URL: "http://example.com", Description: strings.Repeat("x", maxDescription+1)}} {
		if _, err := s.store.Create(t.Context(), "me", req); proto.CodeOf(err) != proto.InvalidArgument {
			t.Errorf("%+v: %v", req, err)
		}
	}
	for range maxPerOwner {
		s.create(proto.CreateWebhook{URL: "http://example.com"})
	}
	one := proto.CreateWebhook{URL: "http://example.com"}
	if _, err := s.store.Create(t.Context(), "me", one); proto.CodeOf(err) != proto.TooMany {
		t.Error(err)
	}
	if _, err := s.store.Create(t.Context(), "other", proto.CreateWebhook{URL: "http://example.com"}); err != nil {
		t.Error(err)
	}
}

// A refused address is a failure that the owner sees, and redirects are not followed.
func TestAddressesAreJudged(t *testing.T) {
	s := newSite(t)
	s.store.client.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
		return nil, fmt.Errorf("127.0.0.1 is not public")
	}
	status, err := s.store.post(t.Context(), s.receiver.URL, nil, "msg_1", nil)
	if status != 0 || err == nil || !strings.Contains(describe(err), "not public") || len(s.got) != 0 {
		t.Errorf("%d %v", status, err)
	}
	s.store.client.Transport.(*http.Transport).DialContext = s.cfg.Dial
	s.answers <- http.StatusFound
	if status, err := s.store.post(t.Context(), s.receiver.URL, nil, "msg_1", nil); status != 302 || err == nil ||
		len(s.got) != 1 {
		t.Errorf("%d %v", status, err)
	}
}

// TestAddressesThatAreRefused checks that a webhook is refused at once if its host leads where deliveries may not go.
func TestAddressesThatAreRefused(t *testing.T) {
	s := newSite(t)
	var asked []string
	s.store.cfg.Reach = func(_ context.Context, hostPort string) error {
		if asked = append(asked, hostPort); hostPort == "inside.example:443" {
			return proto.Invalid(hostPort, "it is private")
		}
		return nil
	}
	_, err := s.store.Create(t.Context(), "me", proto.CreateWebhook{URL: "https://inside.example/x"})
	if proto.CodeOf(err) != proto.InvalidArgument || proto.AsError(err).Item != "url" ||
		!strings.Contains(err.Error(), "it is private") {
		t.Errorf("%v", err)
	}
	for _, url := range []string{"http://outside.example", "https://[2001:db8::1]:8443/"} {
		if _, err := s.store.Create(t.Context(), "me", proto.CreateWebhook{URL: url}); err != nil {
			t.Error(err)
		}
	}
	if want := "[inside.example:443 outside.example:80 [2001:db8::1]:8443]"; fmt.Sprint(asked) != want {
		t.Errorf("asked for %v, want %s", asked, want)
	}
}

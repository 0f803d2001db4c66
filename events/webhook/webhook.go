// Package webhook posts events to URLs of their owners, signed as Standard Webhooks says.
//
// Each webhook follows the feed of events on its own and posts one event after the other, so a receiver gets them in
// order, each at least once. Its place in the feed is in the ledger, and the events themselves are in the audit log: a
// receiver that is down for hours costs no memory, and a restart loses nothing. A receiver that fails for a day is
// disabled, which is an event, too.
//
// Out of scope: what is an event and who sees it (package events), and which addresses may be reached (egress/proxy,
// through Config.Dial).
package webhook

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/events"
	"berth/proto"
	"berth/state/ledger"
)

// Bounds of webhooks.
const (
	maxPerOwner    = 16
	maxAll         = 1024
	maxURL         = 2000 // bytes
	maxDescription = 1000 // bytes
	maxTypes       = 32
	keptDeliveries = 20
)

// A Vault seals the secrets. vault.Vault is one.
type Vault interface {
	Seal(name string, text []byte) (string, error)
	Unseal(name, sealed string) ([]byte, error)
}

// A Config is what Open needs. Feed, Ledger, Vault and Dial must be set.
type Config struct {
	Feed   *events.Feed
	Ledger *ledger.DB
	Vault  Vault
	// connects to a receiver, and refuses addresses that must not be reached
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Reach   func(ctx context.Context, hostPort string) error // says early what Dial would refuse; nil: nothing
	Audit   func(proto.AuditEntry)                           // called when a webhook is disabled; nil: no audit
	Log     *slog.Logger                                     // nil: slog.Default
	Now     func() time.Time                                 // nil: time.Now
	Delays  []time.Duration                                  // between attempts; the last repeats; nil: defaultDelays
	GiveUp  time.Duration                                    // failing for so long disables a webhook; 0 is 24 hours
	Timeout time.Duration                                    // of one attempt; 0 is 15 s
}

// defaultDelays are those that Standard Webhooks proposes, up to an hour.
var defaultDelays = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 5 * time.Minute,
	15 * time.Minute, 30 * time.Minute, time.Hour}

// bucket has the webhooks in the ledger, by ID.
const bucket = "webhooks"

// A record is a webhook in the ledger.
type record struct {
	Webhook  proto.Webhook `json:"webhook"`
	Owner    string        `json:"owner"`
	Sealed   string        `json:"secret"`
	After    string        `json:"after"` // ID of the last event that is done
	Since    time.Time     `json:"since"` // events before this are not for it
	Attempts int           `json:"attempts,omitempty"`
}

// A Store has the webhooks of a daemon and delivers to them. It is safe for concurrent use.
type Store struct {
	cfg    Config
	client *http.Client
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu  sync.Mutex // guards what follows; held while the ledger writes, so that no change is lost
	all map[string]*hook
}

// A hook is a webhook and its delivery.
type hook struct {
	rec  record
	stop context.CancelFunc // ends its delivery; nil: none runs
	done chan struct{}      // closed when the delivery has ended
}

// Open reads the webhooks. Start begins to deliver.
func Open(cfg Config) (*Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Audit == nil {
		cfg.Audit = func(proto.AuditEntry) {}
	}
	if cfg.Delays == nil {
		cfg.Delays = defaultDelays
	}
	cfg.Log, cfg.GiveUp = cmp.Or(cfg.Log, slog.Default()), cmp.Or(cfg.GiveUp, 24*time.Hour)
	cfg.Timeout = cmp.Or(cfg.Timeout, 15*time.Second)
	s := &Store{cfg: cfg, all: map[string]*hook{}, client: &http.Client{
		Timeout: cfg.Timeout,
		Transport: &http.Transport{DialContext: cfg.Dial, ForceAttemptHTTP2: true, MaxIdleConns: 64,
			IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10},
		// A redirect could lead past what the owner named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	err := cfg.Ledger.View(func(tx *ledger.Tx) error {
		return ledger.Each(tx, bucket, "", func(id string, r record) { s.all[id] = &hook{rec: r} })
	})
	return s, err
}

// Start begins to deliver.
func (s *Store) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.all {
		s.startLocked(h)
	}
}

// Close ends the deliveries under way. The next daemon repeats those that had no answer.
func (s *Store) Close() error {
	s.cancel()
	s.wg.Wait()
	s.client.CloseIdleConnections()
	return nil
}

// Create makes a webhook for events from now on.
func (s *Store) Create(ctx context.Context, owner string, req proto.CreateWebhook) (made proto.NewWebhook, err error) {
	if err := cmp.Or(check(req), s.checkAddress(ctx, req.URL)); err != nil {
		return made, err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	now := s.cfg.Now()
	made.Webhook = proto.Webhook{ID: proto.NewID(proto.WebhookPrefix), URL: req.URL, Types: req.Types,
		ContainerID: req.ContainerID, Description: req.Description, CreatedAt: proto.At(now), Enabled: true}
	made.Secret = "whsec_" + base64.StdEncoding.EncodeToString(key)
	r := record{Webhook: made.Webhook, Owner: owner, Since: now}
	if r.Sealed, err = s.cfg.Vault.Seal(sealName(made.ID), key); err != nil {
		return made, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := 0
	for _, h := range s.all {
		if h.rec.Owner == owner {
			mine++
		}
	}
	if mine >= maxPerOwner || len(s.all) >= maxAll {
		return proto.NewWebhook{}, proto.Errorf(proto.TooMany, "", "webhooks", "there are %d webhooks, which is the "+
			"limit; delete one", mine)
	}
	if err := s.cfg.Ledger.Update(func(tx *ledger.Tx) error { return tx.Put(bucket, made.ID, r) }); err != nil {
		return proto.NewWebhook{}, err
	}
	h := &hook{rec: r}
	s.all[made.ID] = h
	s.startLocked(h)
	made.Webhook = shown(r)
	return made, nil
}

// sealName is the name under which a secret is sealed.
func sealName(id string) string { return "webhook/" + id }

// List returns an owner's webhooks, oldest first.
func (s *Store) List(owner string) (list []proto.Webhook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.all)) {
		if h := s.all[id]; h.rec.Owner == owner {
			list = append(list, shown(h.rec))
		}
	}
	return list
}

// Get returns one webhook of an owner.
func (s *Store) Get(owner, id string) (proto.Webhook, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.findLocked(owner, id)
	if err != nil {
		return proto.Webhook{}, err
	}
	return shown(h.rec), nil
}

func (s *Store) findLocked(owner, id string) (*hook, error) {
	if h := s.all[id]; h != nil && h.rec.Owner == owner {
		return h, nil
	}
	return nil, proto.Errorf(proto.NotFound, "", id, "webhook %.80q does not exist", id)
}

// Change changes a webhook. Its delivery starts anew, with the first event that was not delivered.
func (s *Store) Change(owner, id string, req proto.ChangeWebhook) (proto.Webhook, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.findLocked(owner, id)
	if err != nil {
		return proto.Webhook{}, err
	}
	now := proto.CreateWebhook{URL: h.rec.Webhook.URL, Types: h.rec.Webhook.Types,
		ContainerID: h.rec.Webhook.ContainerID}
	if req.URL != nil {
		now.URL = *req.URL
	}
	if req.Types != nil {
		now.Types = req.Types
	}
	if err := check(now); err != nil {
		return proto.Webhook{}, err
	}
	err = s.saveLocked(h, s.cfg.Ledger.Update, func(r *record) {
		r.Webhook.URL, r.Webhook.Types = now.URL, now.Types
		if req.Enabled != nil {
			r.Webhook.Enabled, r.Webhook.DisabledReason = *req.Enabled, ""
		}
		r.Attempts, r.Webhook.FailingSince, r.Webhook.NextAttempt = 0, nil, nil
	})
	if err != nil {
		return proto.Webhook{}, err
	}
	s.stopLocked(h)
	s.startLocked(h)
	return shown(h.rec), nil
}

// Delete removes a webhook.
func (s *Store) Delete(owner, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, err := s.findLocked(owner, id)
	if err != nil {
		return err
	}
	s.stopLocked(h) // before the record goes, since the delivery writes it
	if err := s.cfg.Ledger.Update(func(tx *ledger.Tx) error { return tx.Delete(bucket, id) }); err != nil {
		s.startLocked(h)
		return err
	}
	delete(s.all, id)
	return nil
}

// saveLocked changes a record in the ledger and then in memory. The caller holds mu.
func (s *Store) saveLocked(h *hook, write func(func(*ledger.Tx) error) error, fn func(*record)) error {
	next := h.rec
	next.Webhook.Deliveries = slices.Clone(next.Webhook.Deliveries)
	fn(&next)
	if err := write(func(tx *ledger.Tx) error { return tx.Put(bucket, next.Webhook.ID, next) }); err != nil {
		return err
	}
	h.rec = next
	return nil
}

// shown returns a webhook as clients see it.
func shown(r record) proto.Webhook {
	w := r.Webhook
	w.Types = append([]string{}, w.Types...)
	w.Deliveries = append([]proto.WebhookDelivery{}, w.Deliveries...)
	return w
}

// checkAddress refuses a checked URL whose host has an address that must not be reached. The address is judged again
// when it is dialled, since the name may lead elsewhere by then.
func (s *Store) checkAddress(ctx context.Context, text string) error {
	u, err := url.Parse(text)
	if err != nil || s.cfg.Reach == nil {
		return err
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	if err := s.cfg.Reach(ctx, net.JoinHostPort(u.Hostname(), port)); err != nil {
		return proto.Invalid("url", "url leads to a server that webhooks may not reach: %s; an operator can allow its "+
			"address with serve --webhook-allow-private", proto.AsError(err).Message)
	}
	return nil
}

// check checks what an owner asks for.
func check(req proto.CreateWebhook) error {
	u, err := url.Parse(req.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || len(req.URL) > maxURL:
		return proto.Invalid("url", "url %.80q is no http or https URL of at most %d bytes", req.URL, maxURL)
	case u.User != nil || u.Fragment != "":
		return proto.Invalid("url", "url must have no user, password and fragment; the signature identifies the sender")
	case req.ContainerID != "" && !proto.ValidID(proto.ContainerPrefix, req.ContainerID):
		return proto.Invalid("container_id", "container_id %.80q is not the ID of a container", req.ContainerID)
	case len(req.Description) > maxDescription:
		return proto.Invalid("description", "description has %d bytes; %d is the limit", len(req.Description),
			maxDescription)
	case len(req.Types) > maxTypes:
		return proto.Invalid("types", "types has %d entries; %d is the limit", len(req.Types), maxTypes)
	}
	return events.CheckTypes(req.Types)
}

// errStopped ends a delivery that is to end.
var errStopped = errors.New("stopped")

// describe returns the error of an attempt in a form for the owner.
func describe(err error) string {
	var refused *url.Error
	if errors.As(err, &refused) {
		err = refused.Err
	}
	return proto.Shorten(strings.ToValidUTF8(fmt.Sprint(err), "?"), 300)
}

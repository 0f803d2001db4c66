package tokens

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"berth/proto"

	"github.com/go-jose/go-jose/v4"
)

// Times of the keys of an issuer. A key that the issuer has removed is known for keysFresh at most, while the issuer
// answers within answerSoon, and for keysLast if it does not. Tokens with unknown keys cause one request in keysPause.
const (
	keysFresh  = 15 * time.Minute
	keysLast   = 24 * time.Hour
	keysPause  = 30 * time.Second
	fetchLimit = 10 * time.Second
	answerSoon = time.Second
)

// Bounds of what an issuer answers.
const (
	maxDocument = 1 << 20
	maxKeys     = 100
)

// A keySet has the public keys of an issuer. They are fetched when the first token comes.
type keySet struct {
	issuer string
	now    func() time.Time
	log    *slog.Logger
	client *http.Client

	ctx    context.Context // ends with the keySet
	cancel context.CancelFunc
	ended  sync.WaitGroup // of the fetch that runs

	mu    sync.Mutex // guards what follows
	keys  []jose.JSONWebKey
	got   time.Time // zero: never
	asked time.Time
	runs  *fetching // nil: none
}

// A fetching is a fetch of the keys, which serves all requests that come meanwhile.
type fetching struct {
	began time.Time
	done  chan struct{} // closed at its end
	err   error         // to be read after done
}

func newKeySet(issuer string, now func() time.Time, log *slog.Logger) *keySet {
	// A redirect could lead to a server that the operator did not name.
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	k := &keySet{issuer: issuer, now: now, log: log, client: &http.Client{Timeout: fetchLimit, CheckRedirect: refuse}}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// close ends the fetch that runs, and lets none begin.
func (k *keySet) close() {
	k.mu.Lock()
	k.cancel()
	k.mu.Unlock()
	k.ended.Wait()
}

// errNoKeys is the answer while the issuer's keys cannot be fetched. It is not the client's fault.
var errNoKeys = proto.Errorf(proto.Unavailable, "", "", "The authorization server does not answer, so access tokens "+
	"cannot be verified; try again later, or use an API key.").After(keysPause)

// find returns the key with that ID. A token may leave out the ID if the issuer has one key.
func (k *keySet) find(ctx context.Context, id, algorithm string) (any, error) {
	key, fresh := k.known(id, algorithm)
	if key != nil && fresh {
		return key, nil
	}
	failed := k.refresh(ctx, key != nil)
	if key, fresh = k.known(id, algorithm); key != nil {
		return key, nil // old ones are good for a while
	}
	if failed != nil {
		return nil, failed
	}
	if !fresh && k.never() {
		return nil, errNoKeys
	}
	return nil, fmt.Errorf("the issuer has no key %q for %s", id, algorithm)
}

func (k *keySet) never() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now().Sub(k.got) > keysLast
}

// known looks among the keys that were fetched.
func (k *keySet) known(id, algorithm string) (key any, fresh bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	age := k.now().Sub(k.got)
	if age > keysLast {
		return nil, false
	}
	for _, candidate := range k.keys {
		if (candidate.KeyID == id || id == "" && len(k.keys) == 1) &&
			(candidate.Algorithm == "" || candidate.Algorithm == algorithm) {
			return candidate.Key, age < keysFresh
		}
	}
	return nil, age < keysFresh
}

// refresh waits until the keys are fetched, unless they were asked for just now. A request that has an old key waits
// only as long as an issuer that answers needs.
func (k *keySet) refresh(ctx context.Context, hasOld bool) error {
	f := k.start()
	if f == nil {
		return nil
	}
	var soon <-chan time.Time // never, without an old key
	if hasOld {
		soon = time.After(time.Until(f.began.Add(answerSoon)))
	}
	select {
	case <-f.done:
		return f.err
	case <-soon:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start returns the fetch that runs, or begins one. It returns nil if the keys were asked for just now.
func (k *keySet) start() *fetching {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if k.runs != nil || k.ctx.Err() != nil || now.Sub(k.asked) < keysPause && now.After(k.asked) {
		return k.runs
	}
	// The request that asks first may go away; the keys are for all.
	ctx, cancel := context.WithTimeout(k.ctx, 3*fetchLimit)
	f := &fetching{began: time.Now(), done: make(chan struct{})}
	k.asked, k.runs = now, f
	k.ended.Go(func() {
		defer cancel()
		keys, err := k.fetch(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.runs = nil
		defer close(f.done)
		if err == nil {
			k.keys, k.got = keys, now
			return
		}
		f.err = errNoKeys
		if k.ctx.Err() == nil {
			k.log.Warn("the keys of the authorization server cannot be fetched; check --oauth-issuer", "issuer",
				k.issuer, "error", err)
		}
	})
	return f
}

// fetch asks the issuer where its keys are, and for the keys.
func (k *keySet) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	from, err := k.discover(ctx)
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := k.get(ctx, from, &set); err != nil {
		return nil, err
	}
	var keys []jose.JSONWebKey
	for _, text := range set.Keys {
		var key jose.JSONWebKey
		// Other kinds of keys may stand beside ours (RFC 7517, section 5).
		if err := json.Unmarshal(text, &key); err != nil {
			k.log.Debug("a key of the authorization server is passed over", "issuer", k.issuer, "error", err)
			continue
		}
		// A symmetric key is not public either.
		if key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig") && len(keys) < maxKeys {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s has no public keys for signatures", from)
	}
	return keys, nil
}

// discover returns where the issuer's keys are, by its metadata (RFC 8414, or OpenID Connect Discovery).
func (k *keySet) discover(ctx context.Context) (string, error) {
	u, err := url.Parse(k.issuer)
	if err != nil {
		return "", err
	}
	path := strings.TrimSuffix(u.Path, "/")
	root := u.Scheme + "://" + u.Host
	var errs []error
	for _, at := range []string{root + "/.well-known/oauth-authorization-server" + path,
		root + path + "/.well-known/openid-configuration"} {
		var meta struct {
			Issuer string `json:"issuer"`
			Keys   string `json:"jwks_uri"`
		}
		if err := k.get(ctx, at, &meta); err != nil {
			errs = append(errs, err)
			continue
		}
		if meta.Issuer != k.issuer {
			return "", fmt.Errorf("%s is of the issuer %.200q and not of %q", at, meta.Issuer, k.issuer)
		}
		if err := checkKeysURL(meta.Keys); err != nil {
			return "", fmt.Errorf("the jwks_uri of %s: %w", at, err)
		}
		return meta.Keys, nil
	}
	return "", errors.Join(errs...)
}

// get fetches a JSON document.
func (k *keySet) get(ctx context.Context, at string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	res, err := k.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", at, res.Status)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if len(data) > maxDocument {
		return fmt.Errorf("%s answers with more than %d bytes", at, maxDocument)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

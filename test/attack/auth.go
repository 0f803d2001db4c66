package attack

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/client"
	"berth/proto"
)

// Groups 41 and 46: API keys, and what each key may do. Broken authentication and authorization lead every list of
// API flaws. Each case makes requests to the edge, as attackers do, and does not call the packages behind it.
var _ = register(
	// The routes come from the API document, so a new route is tried without a new case.
	Case{
		Group: 41, Name: "auth/no-key",
		Tries: "call every documented route that is not public without a key, in names that may exist",
		Wants: "each is 401 before anything else is looked at",
		Run:   noKey,
	},
	// Comparisons that trim, fold case or stop at a NUL accept invalid keys. Proxies move keys into headers and
	// cookies.
	Case{
		Group: 41, Name: "auth/wrong-keys",
		Tries: "keys that are nearly right: cut, extended, in other letters, with spaces, in a cookie, as another " +
			"scheme, ten at once",
		Wants: "each is 401",
		Run:   wrongKeys,
	},
	// An access token that anybody can make would be a key for all. The daemon may know a server that issues some, and
	// must know none that is named in a token itself.
	Case{
		Group: 41, Name: "auth/forged-tokens",
		Tries: "access tokens without a signature, signed with a key of the attacker's, with a secret, and with a key " +
			"that the token itself brings or points to",
		Wants: "each is 401",
		Run:   forgedTokens,
	},
	// URLs appear in logs of proxies, in histories and in Referer headers.
	Case{
		Group: 41, Name: "auth/key-in-query",
		Tries: "the right key in the query, under the names that other services use",
		Wants: "401: a key in a URL would end in logs",
		Run:   keyInQuery,
	},
	// An operator revokes a key that has leaked, so revoking must also affect open connections.
	Case{
		Group: 41, Name: "auth/ended-keys",
		Tries: "use a key that was revoked, and one that has expired, for new requests and on a websocket that is open",
		Wants: "401, and the websocket ends",
		Run:   endedKeys,
	},
	// A 403 would reveal that the ID exists, so the answer is 404 with the same text. This class of flaw is called
	// BOLA or IDOR.
	Case{
		Group: 41, Name: "auth/another-tenants-key",
		Tries: "call every documented route that names a container with its ID and another tenant's key",
		Wants: "404, in the same words as for a container that never was",
		Run:   anotherTenant,
	},
	// A tenant that can create keys can create an administrator's key. A tenant that can change an image can run code
	// in the containers of all others.
	Case{
		Group: 41, Name: "auth/tenant-as-admin",
		Tries: "make keys, list them, sweep and change images with a key that is no admin's",
		Wants: "each is 403",
		Run:   tenantAsAdmin,
	},
	// A comparison that ends early is a known way to read a secret byte by byte. The daemon compares digests in
	// constant time.
	Case{
		Group: 41, Name: "auth/timing", Alone: true,
		Tries: "learn the key byte by byte from how long wrong ones take",
		Wants: "a key that is wrong in its first byte takes as long as one that is wrong in its last",
		Run:   keyTiming,
	},
	// Without a limit per key, a loop in one client is an outage for all. Without Retry-After, well-behaved clients
	// retry in the same way.
	Case{
		Group: 46, Name: "quota/rate",
		Tries: "ask faster than a key may, and then wait as long as told",
		Wants: "the burst passes, the next is 429 with Retry-After, and after that time one passes",
		Run:   quotaRate,
	},
	// Twelve concurrent creates, since all of them pass a quota that is checked and used in two steps.
	Case{
		Group: 46, Name: "quota/sessions-burst",
		Tries: "create twelve containers at once with a key that may have three, then lower the bound below what is used",
		Wants: "exactly three are made; lowering takes none away and refuses the next",
		Run:   quotaSessions,
	},
)

// as returns the same daemon with a new key, which is revoked at the end of the case. If the request names a new
// owner, the key belongs to a new tenant.
func (t *Target) as(ctx context.Context, req proto.CreateKey) (*Target, proto.Key, error) {
	k, err := t.CreateKey(ctx, req)
	if err != nil {
		return nil, proto.Key{}, err
	}
	other := *t
	other.Client, other.Key, other.neighbour, other.made, other.undo = t.As(k.Secret), k.Secret, nil, nil, nil
	t.Later(func(ctx context.Context) error {
		if err := other.tidy(); err != nil {
			return err
		}
		if _, err := t.RevokeKey(ctx, k.ID); proto.CodeOf(err) != proto.Conflict { // the case itself has revoked it
			return err
		}
		return nil
	})
	return &other, k.Key, nil
}

// unique returns a unique name. Ten base32 characters are 50 bits, so names of concurrent runs do not collide.
func unique(prefix string) string { return prefix + strings.ToLower(rand.Text()[:10]) }

// noKey makes requests without a key. The ID is well-formed but does not exist: a 404 would show that the daemon
// looked for it before it checked the key.
func noKey(ctx context.Context, t *Target) (string, error) {
	routes, err := t.routes(ctx)
	if err != nil {
		return "", err
	}
	tried := 0
	for _, r := range routes {
		// Where the API is on loopback, metrics need no key, and they name no owner.
		if r.public || r.path == "/metrics" && t.onLoopback() {
			continue
		}
		a, err := t.Raw(ctx, r.method, r.at(map[string]string{"id": "container_0000000000000000000000"}), nil, nil)
		if err != nil {
			return "", err
		}
		// HTTP requires WWW-Authenticate with a 401; some clients ask for a key only then.
		if a.Status != http.StatusUnauthorized || a.Header.Get("WWW-Authenticate") == "" {
			return "", Breached("%s %s answered %d without a key: %.200s", r.method, r.path, a.Status, a.Body)
		}
		tried++
	}
	// An empty document would let the loop pass without trying anything.
	if tried < 30 {
		return "", fmt.Errorf("the document has only %d routes that need a key", tried)
	}
	return fmt.Sprintf("%d routes, all 401", tried), nil
}

// wrongKeys tries keys that are nearly right.
func wrongKeys(ctx context.Context, t *Target) (string, error) {
	header := func(name string, values ...string) http.Header { return http.Header{name: values} }
	tries := map[string]http.Header{
		"none":           nil,
		"empty":          header("X-Api-Key", ""),
		"cut by one":     header("X-Api-Key", t.Key[:len(t.Key)-1]),
		"its first half": header("X-Api-Key", t.Key[:len(t.Key)/2]),
		"one more":       header("X-Api-Key", t.Key+"A"),
		"lower case":     header("X-Api-Key", strings.ToLower(t.Key)),
		"quoted":         header("X-Api-Key", `"`+t.Key+`"`),
		"listed":         header("X-Api-Key", t.Key+","+t.Key),
		"cookie":         header("Cookie", "api_key="+t.Key+"; X-Api-Key="+t.Key),
		"basic":          header("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("key:"+t.Key))),
		"no scheme":      header("Authorization", t.Key),
		"negotiate":      header("Authorization", "Negotiate "+t.Key),
		// The subprotocol carries the key of a browser's websocket. It is valid only there, and this request is no
		// websocket.
		"subprotocol": header("Sec-Websocket-Protocol", "berth.key."+base64.RawURLEncoding.EncodeToString(
			[]byte(t.Key))),
		"other header": header("X-Forwarded-Authorization", "Bearer "+t.Key),
		"64 KiB":       header("X-Api-Key", strings.Repeat("k", 60<<10)),
		"not UTF-8":    header("X-Api-Key", "berth_\xff\xfe"),
	}
	// A key without capitals is still right in lower case, so it is left out.
	delete(tries, map[bool]string{true: "lower case"}[strings.ToLower(t.Key) == t.Key])
	for name, h := range tries {
		a, err := t.Raw(ctx, "GET", "/v1/containers", h, nil)
		if err != nil {
			return "", err
		}
		if a.Status != http.StatusUnauthorized {
			return "", Breached("a key that is %s was answered %d: %.200s", name, a.Status, a.Body)
		}
	}
	return fmt.Sprintf("%d wrong keys, all 401", len(tries)), nil
}

// forgedTokens sends tokens as an attacker makes them, who knows what the daemon publishes of its issuer.
func forgedTokens(ctx context.Context, t *Target) (string, error) {
	issuer, audience := "https://issuer.test", "https://berth.test"
	a, err := t.Raw(ctx, "GET", "/.well-known/oauth-protected-resource", nil, nil)
	if err != nil {
		return "", err
	}
	var meta struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
	}
	if a.Status == http.StatusOK && json.Unmarshal(a.Body, &meta) == nil && len(meta.Servers) > 0 {
		issuer, audience = meta.Servers[0], meta.Resource
	}
	claims := fmt.Sprintf(`{"iss":%q,"aud":%q,"sub":"default","exp":%d,"scope":"admin"}`, issuer, audience,
		time.Now().Add(time.Hour).Unix())
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	headers := []string{`{"alg":"none","typ":"at+jwt"}`, `{"alg":"None","typ":"at+jwt"}`, `{"alg":"HS256","typ":"at+jwt"}`,
		`{"alg":"HS256","typ":"at+jwt","kid":"../../../../dev/null"}`, `{"alg":"ES256","typ":"at+jwt"}`,
		`{"alg":"ES256","typ":"at+jwt","jku":"http://127.0.0.1:1/keys"}`,
		`{"alg":"EdDSA","typ":"at+jwt","jwk":{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}}`,
		`{"alg":"RS256","typ":"at+jwt","x5u":"http://127.0.0.1:1/cert"}`, `{"typ":"at+jwt"}`, `[]`}
	n := 0
	for _, header := range headers {
		for _, signature := range []string{"", "AA", hmacOf(part(header)+"."+part(claims), "")} {
			token := part(header) + "." + part(claims) + "." + signature
			a, err := t.Raw(ctx, "GET", "/v1/containers", http.Header{"Authorization": {"Bearer " + token}}, nil)
			if err != nil {
				return "", err
			}
			if n++; a.Status != http.StatusUnauthorized {
				return "", Breached("a token with the header %s was answered %d: %.200s", header, a.Status, a.Body)
			}
		}
	}
	return fmt.Sprintf("%d forged tokens, all 401", n), nil
}

// hmacOf signs a text with a secret, as a token that pretends to have a symmetric key.
func hmacOf(text, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// keyInQuery uses the right key, so a daemon that reads keys from the query would accept it.
func keyInQuery(ctx context.Context, t *Target) (string, error) {
	names := []string{"key", "api_key", "api-key", "apikey", "access_token", "token", "x-api-key", "authorization"}
	for _, name := range names {
		a, err := t.Raw(ctx, "GET", "/v1/containers?"+name+"="+t.Key, nil, nil)
		if err != nil {
			return "", err
		}
		// An error that repeats the key would put it into the log of a client that sent it by mistake.
		if a.Status != http.StatusUnauthorized || strings.Contains(string(a.Body), t.Key) {
			return "", Breached("?%s=… was answered %d: %.200s", name, a.Status, a.Body)
		}
	}
	return fmt.Sprintf("%d names, all 401, none repeated in the answer", len(names)), nil
}

// endedKeys checks keys that have expired and keys that were revoked.
func endedKeys(ctx context.Context, t *Target) (string, error) {
	short, _, err := t.as(ctx, proto.CreateKey{Name: unique("attack-short-"), Owner: unique("attack-"),
		ExpiresInSeconds: 1})
	if err != nil {
		return "", err
	}
	// the same owner, so that it may use t's container
	revoked, key, err := t.as(ctx, proto.CreateKey{Name: unique("attack-revoked-")})
	if err != nil {
		return "", err
	}
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	sock, err := revoked.Live(ctx, con.ID)
	if err != nil {
		return "", err
	}
	defer sock.Close()
	if _, err := t.RevokeKey(ctx, key.ID); err != nil {
		return "", err
	}
	if err := endsWithin(ctx, 10*time.Second, func(ctx context.Context) error {
		for {
			if _, err := sock.Next(ctx); err != nil {
				return err
			}
		}
	}); err != nil {
		return "", err
	}
	// One second is the shortest lifetime of a key.
	time.Sleep(1100 * time.Millisecond) // the daemon's own clock must advance
	for name, other := range map[string]*Target{"expired": short, "revoked": revoked} {
		if _, err := other.Containers(ctx, client.Filter{}); proto.CodeOf(err) != proto.Unauthenticated {
			return "", Breached("a key that is %s was answered: %v", name, err)
		}
	}
	return "both 401, and the open websocket ended", nil
}

// endsWithin returns a Breach unless f returns within this time. It is for waits that the other side must end. The
// result of f does not matter.
func endsWithin(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = f(ctx)
	if ctx.Err() != nil {
		return Breached("it went on for %s", limit)
	}
	return nil
}

// anotherTenant compares the answers about an existing container with those about one that never existed.
func anotherTenant(ctx context.Context, t *Target) (string, error) {
	other, _, err := t.as(ctx, proto.CreateKey{Owner: unique("attack-")})
	if err != nil {
		return "", err
	}
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	res, err := t.Bash(ctx, con.ID, "echo private")
	if err != nil {
		return "", err
	}
	routes, err := t.routes(ctx)
	if err != nil {
		return "", err
	}
	const never = "container_0000000000000000000000"
	tried := 0
	for _, r := range routes {
		if !strings.Contains(r.path, "/containers/{id}") {
			continue
		}
		tried++
		var said [2]string
		for i, id := range []string{con.ID, never} {
			a, err := other.ask(ctx, r.method, r.at(map[string]string{"id": id, "exec": res.Exec.ID,
				"job": res.Exec.JobID}), nil, r.sample())
			if err != nil {
				return "", err
			}
			if a.status != http.StatusNotFound {
				return "", Breached("%s %s answered another tenant %d: %.200s", r.method, r.path, a.status, a.body)
			}
			// Remove the ID from the message, since each answer repeats the ID of its request.
			said[i] = strings.ReplaceAll(errorMessage(a.body), id, "ID")
		}
		if said[0] != said[1] {
			return "", Breached("%s %s tells %q from %q, so that it can be found out which IDs exist", r.method, r.path,
				said[0], said[1])
		}
	}
	list, err := other.Containers(ctx, client.Filter{})
	if err != nil || len(list) > 0 {
		return "", Breached("the other tenant's list has %d containers (%v)", len(list), err)
	}
	return fmt.Sprintf("%d routes, all 404 and alike", tried), nil
}

// errorMessage returns the text of an error, or "" if the body is not an error.
func errorMessage(body []byte) string {
	var e struct {
		Error proto.Error `json:"error"`
	}
	_ = json.Unmarshal(body, &e)
	return e.Error.Message
}

// tenantAsAdmin makes requests that only an administrator may make. They include changes of its own key: a tenant
// must not raise its own quota.
func tenantAsAdmin(ctx context.Context, t *Target) (string, error) {
	other, key, err := t.as(ctx, proto.CreateKey{Owner: unique("attack-")})
	if err != nil {
		return "", err
	}
	for _, try := range []struct{ method, path, body string }{
		{"POST", "/v1/keys", `{"admin":true}`},
		{"POST", "/v1/keys", `{"owner":"default"}`},
		{"GET", "/v1/keys", ""},
		{"GET", "/v1/keys/" + key.ID, ""},
		{"PATCH", "/v1/keys/" + key.ID, `{"quota":{"sessions":0}}`},
		{"DELETE", "/v1/keys/" + key.ID, ""},
		{"POST", "/v1/sweep", ""},
		{"POST", "/v1/images/pull", `{"ref":"base"}`},
		{"POST", "/v1/images/push", `{"name":"base"}`},
		{"GET", "/v1/registries", ""},
		{"PUT", "/v1/registries/ghcr.io", `{"username":"me","password":"x"}`},
		{"DELETE", "/v1/registries/ghcr.io", ""},
		{"POST", "/v1/images/import?name=base", "not an image"},
		{"DELETE", "/v1/images?ref=base", ""},
	} {
		a, err := other.ask(ctx, try.method, try.path, nil, strings.NewReader(try.body))
		if err != nil {
			return "", err
		}
		if err := a.refused(try.method+" "+try.path, proto.PermissionDenied); err != nil {
			return "", err
		}
	}
	return "all 403", nil
}

// keyTiming compares medians. It looks for a comparison that stops at the first different byte, which shows over many
// tries. The limit is generous, so that the noise of a busy machine is not mistaken for one.
func keyTiming(ctx context.Context, t *Target) (string, error) {
	rounds := 400
	first, last := "X"+t.Key[1:], t.Key[:len(t.Key)-1]+"~"
	var took [2][]time.Duration
	// The two keys take turns, so that a slow phase of the machine affects both.
	for range rounds {
		for i, key := range []string{first, last} {
			began := time.Now()
			a, err := t.ask(ctx, "GET", "/v1/info", nil, nil, "X-Api-Key", key)
			if err != nil {
				return "", err
			}
			if a.status != http.StatusUnauthorized {
				return "", Breached("a wrong key was answered %d", a.status)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	a, b := median(took[0]), median(took[1])
	if ratio := float64(max(a, b)) / float64(min(a, b)); ratio > 1.5 {
		return "", Breached("wrong in the first byte takes %s, in the last %s", a, b)
	}
	return fmt.Sprintf("medians of %d: %s and %s", rounds, a, b), nil
}

// median ignores single pauses, which a mean would include.
func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// quotaRate uses a bucket of three that refills one token in two seconds. That is slow enough for six quick requests
// to empty it.
func quotaRate(ctx context.Context, t *Target) (string, error) {
	other, _, err := t.as(ctx, proto.CreateKey{Owner: unique("attack-"), Quota: proto.Quota{RequestsPerSecond: 0.5,
		Burst: 3}})
	if err != nil {
		return "", err
	}
	var statuses []int
	wait := 0
	for range 6 {
		a, err := other.ask(ctx, "GET", "/v1/info", nil, nil)
		if err != nil {
			return "", err
		}
		statuses = append(statuses, a.status)
		if a.status == http.StatusTooManyRequests {
			// At least one second: less would be 0 in whole seconds, which means "at once".
			if wait, err = strconv.Atoi(a.header.Get("Retry-After")); err != nil || wait < 1 {
				return "", Breached("429 without a time to come back: %q", a.header.Get("Retry-After"))
			}
		}
	}
	if !slices.Equal(statuses, []int{200, 200, 200, 429, 429, 429}) {
		return "", Breached("a burst of three was answered %v", statuses)
	}
	time.Sleep(time.Duration(wait) * time.Second)
	if a, err := other.ask(ctx, "GET", "/v1/info", nil, nil); err != nil || a.status != http.StatusOK {
		return "", Breached("after the %d s that it was told, it was answered %d (%v)", wait, a.status, err)
	}
	return fmt.Sprintf("%v, and one more after %d s", statuses, wait), nil
}

// quotaSessions creates more containers at once than the key may have.
func quotaSessions(ctx context.Context, t *Target) (string, error) {
	const bound, burst = 3, 12
	other, key, err := t.as(ctx, proto.CreateKey{Owner: unique("attack-"), Quota: proto.Quota{Sessions: bound}})
	if err != nil {
		return "", err
	}
	codes := make(chan proto.Code, burst)
	for range burst {
		go func() {
			_, err := other.Create(ctx, proto.CreateContainer{MaxLifetimeSeconds: 600})
			codes <- proto.CodeOf(err)
		}()
	}
	counts := map[proto.Code]int{}
	for range burst {
		counts[<-codes]++
	}
	list, err := other.Containers(ctx, client.Filter{})
	if err != nil {
		return "", err
	}
	// Record the names before judging, so that they are removed in any case.
	for _, con := range list {
		other.made = append(other.made, con.ID)
	}
	if len(list) != bound || counts[proto.TooMany] != burst-bound {
		return "", Breached("%d were made; the answers were %v", len(list), counts)
	}
	one := int64(1)
	if _, err := t.ChangeKey(ctx, key.ID, proto.ChangeKey{Quota: &proto.QuotaChange{Sessions: &one}}); err != nil {
		return "", err
	}
	// Lowering a quota must not delete containers in use; it applies to the next create.
	if again, err := other.Containers(ctx, client.Filter{}); err != nil || len(again) != bound {
		return "", Breached("lowering the bound left %d of %d (%v)", len(again), bound, err)
	}
	if _, err := other.Delete(ctx, list[0].ID, false); err != nil {
		return "", err
	}
	_, err = other.Create(ctx, proto.CreateContainer{})
	return Refused(err, proto.TooMany)
}

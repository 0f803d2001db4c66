package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"berth/proto"
)

// An answer is the daemon's answer to a request that its own client would not make.
type answer struct {
	// A status below 400 with a cut connection is a failure, too: the header was sent before the error occurred.
	status int
	header http.Header
	body   []byte // at most maxAnswer bytes
	cut    bool   // the daemon closed the connection early, which reports an error after the header
}

// askTransport reuses connections, since some cases make a thousand requests. This also keeps the daemon's limits on
// new connections out of cases about other things.
var askTransport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16,
	TLSClientConfig: rawTransport.TLSClientConfig}

// ask makes a request with the target's key, as a client library would.
func (t *Target) ask(ctx context.Context, method, path string, q url.Values, body io.Reader, header ...string) (
	answer, error) {
	at := strings.TrimRight(t.Host, "/") + path
	if len(q) > 0 {
		at += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, at, body)
	if err != nil {
		// Cases use both APIs. The Files API requires the version header, and the other one ignores it.
		return answer{}, err
	}
	req.Header.Set("X-Api-Key", t.Key)
	req.Header.Set("anthropic-version", "2023-06-01")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := askTransport.RoundTrip(req) // does not follow redirects, so that the daemon's own answer is returned
	if err != nil {
		return answer{}, err
	}
	// A body that breaks off is an answer, not an error of the case, unless the case itself gave up.
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil && ctx.Err() != nil {
		return answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	return answer{res.StatusCode, res.Header, data, err != nil}, nil
}

// askJSON is ask with a JSON body.
func (t *Target) askJSON(ctx context.Context, method, path string, body any) (answer, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	return t.ask(ctx, method, path, nil, bytes.NewReader(data), "Content-Type", "application/json")
}

// code returns the typed code of an error, or "". The two APIs have it in different places.
func (a answer) code() proto.Code {
	var e struct {
		Error struct {
			Code proto.Code `json:"code"`
			Type proto.Code `json:"type"` // its place in the Files API
		} `json:"error"`
	}
	_ = json.Unmarshal(a.body, &e)
	if e.Error.Code == "" {
		return e.Error.Type
	}
	return e.Error.Code
}

// refusedOrDone returns a Breach unless the daemon has either done what was requested or refused it with a typed
// error. Every request, however odd, must meet this minimum. A status of 500 means an unhandled case.
func (a answer) refusedOrDone(what string) error {
	if a.status < 400 || a.status != http.StatusInternalServerError && a.code() != "" && a.code() != proto.Internal {
		return nil
	}
	return Breached("%s was answered %d %.200s", what, a.status, a.body)
}

// refused returns a Breach unless the answer is an error with one of these codes. A 4xx with another code is a
// breach, too: clients act on codes.
func (a answer) refused(what string, codes ...proto.Code) error {
	for _, c := range codes {
		if a.status >= 400 && a.code() == c {
			return nil
		}
	}
	return Breached("%s was answered %d %.200s; it should have been one of %v", what, a.status, a.body, codes)
}

// alive returns a Breach if a container no longer runs commands. An attack that was refused but leaves the container
// hanging has succeeded.
func (t *Target) alive(ctx context.Context, container string) error {
	got, err := t.Output(ctx, container, "", "echo still here")
	if err != nil || got != "still here" {
		return Breached("the container does not work any more: %q %v", got, err)
	}
	return nil
}

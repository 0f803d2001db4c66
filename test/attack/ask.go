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

// An answer is what the daemon said to a request that its own client would not make.
type answer struct {
	// A status below 400 whose connection was cut is a failure too: the header had gone out before it was
	// known.
	status int
	header http.Header
	body   []byte // at most maxAnswer of it
	cut    bool   // the daemon broke it off, which is how it says that the rest cannot be had
}

// askTransport keeps its connections: some cases ask a thousand times.
// Connections that are kept also keep the daemon's limits on new ones out of cases that are about
// something else.
var askTransport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 16,
	TLSClientConfig: rawTransport.TLSClientConfig}

// ask makes a request as a library would, with the target's key.
func (t *Target) ask(ctx context.Context, method, path string, q url.Values, body io.Reader, header ...string) (
	answer, error) {
	at := strings.TrimRight(t.Host, "/") + path
	if len(q) > 0 {
		at += "?" + q.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, at, body)
	if err != nil {
		// Cases come from both APIs; the version header is what the Files API demands, and others ignore
		// it.
		return answer{}, err
	}
	req.Header.Set("X-Api-Key", t.Key)
	req.Header.Set("anthropic-version", "2023-06-01")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := askTransport.RoundTrip(req) // no redirects: what the daemon says is what counts
	if err != nil {
		return answer{}, err
	}
	// A body that breaks off is an answer, not an error of the case, unless it was the case that gave up.
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil && ctx.Err() != nil {
		return answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	return answer{res.StatusCode, res.Header, data, err != nil}, nil
}

// askJSON is ask with a body of JSON.
func (t *Target) askJSON(ctx context.Context, method, path string, body any) (answer, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	return t.ask(ctx, method, path, nil, bytes.NewReader(data), "Content-Type", "application/json")
}

// code is the typed code of an error, or "".
// Both APIs name the code, in different places.
func (a answer) code() proto.Code {
	var e struct {
		Error struct {
			Code proto.Code `json:"code"`
			Type proto.Code `json:"type"` // where the Files API has it
		} `json:"error"`
	}
	_ = json.Unmarshal(a.body, &e)
	if e.Error.Code == "" {
		return e.Error.Type
	}
	return e.Error.Code
}

// refusedOrDone is a Breach where the daemon neither did what it was asked nor said by name why it does not.
// That is the least that every request must keep, however odd: a 500 means that nobody thought of it.
func (a answer) refusedOrDone(what string) error {
	if a.status < 400 || a.status != http.StatusInternalServerError && a.code() != "" && a.code() != proto.Internal {
		return nil
	}
	return Breached("%s was answered %d %.200s", what, a.status, a.body)
}

// refused is a Breach unless the answer is one of these errors.
// A 4xx with another code counts as a breach: clients act on codes, and a wrong one sends them the wrong
// way.
func (a answer) refused(what string, codes ...proto.Code) error {
	for _, c := range codes {
		if a.status >= 400 && a.code() == c {
			return nil
		}
	}
	return Breached("%s was answered %d %.200s; it should have been one of %v", what, a.status, a.body, codes)
}

// alive is a Breach if a container does not run a command any more.
// A container that was refused correctly and hangs afterwards has been attacked with success.
func (t *Target) alive(ctx context.Context, container string) error {
	got, err := t.Output(ctx, container, "", "echo still here")
	if err != nil || got != "still here" {
		return Breached("the container does not work any more: %q %v", got, err)
	}
	return nil
}

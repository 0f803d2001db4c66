package remote

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"berth/proto"
	"berth/tools/bridge/codeapi"
	"berth/tools/bridge/provider"
)

// A callback is a server that gets each call as a POST.
type callback struct {
	url    string
	secret []byte
	client *http.Client
	tools  map[string]*provider.Prepared
}

func newCallback(p proto.ToolProvider, client *http.Client) (*callback, error) {
	tools, err := provider.PrepareSpecs("tools", p.Tools)
	return &callback{url: p.URL, secret: []byte(p.Secret), client: client, tools: tools}, err
}

// Tools implements Server.
func (c *callback) Tools(context.Context) (map[string]*provider.Prepared, error) { return c.tools, nil }

// Close implements Server.
func (c *callback) Close() { c.client.CloseIdleConnections() }

// Headers of a request to a server: its time, and the signature of time and body.
const (
	HeaderTimestamp = "Berth-Timestamp" // seconds since 1970
	HeaderSignature = "Berth-Signature" // "sha256=" and, in hex, the HMAC-SHA-256 of timestamp, "." and body
)

// sign returns the signature of a body.
func sign(secret []byte, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.", timestamp)
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// Answer implements Server.
func (c *callback) Answer(ctx context.Context, one provider.Call, take func(n int) error) (
	json.RawMessage, *codeapi.Failure) {
	body, err := json.Marshal(one)
	if err != nil {
		return nil, codeapi.Fail(codeapi.RuntimeError, "the call of %s cannot be written as JSON", one.Tool)
	}
	// a body that cannot be sent twice is not retried
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return nil, codeapi.Fail(codeapi.RuntimeError, "the server's URL cannot be used")
	}
	req.ContentLength = int64(len(body))
	now := strconv.FormatInt(time.Now().Unix(), 10)
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json",
		"User-Agent": "berth", HeaderTimestamp: now, HeaderSignature: sign(c.secret, now, body)} {
		req.Header.Set(name, value)
	}
	res, err := c.client.Do(req)
	if ctx.Err() != nil {
		return nil, nil
	}
	if err != nil {
		return nil, codeapi.Fail(codeapi.RuntimeError, "the server that answers %s cannot be reached", one.Tool)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, codeapi.Fail(codeapi.RuntimeError, "the server that answers %s responded with status %d", one.Tool,
			res.StatusCode)
	}
	return readAnswer(ctx, one.Tool, takeReader{res.Body, take})
}

// A takeReader reserves memory for what it reads.
type takeReader struct {
	r    io.Reader
	take func(n int) error
}

// Read implements io.Reader. It fails when no memory is left.
func (t takeReader) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if full := t.take(n); full != nil {
		return 0, full
	}
	return n, err
}

// readAnswer reads a server's answer: a result or an error.
func readAnswer(ctx context.Context, name string, r io.Reader) (json.RawMessage, *codeapi.Failure) {
	const limit = provider.MaxResult + aroundResult
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if ctx.Err() != nil {
		return nil, nil
	}
	if f := codeapi.FailureOf(err); f != nil {
		return nil, f
	}
	if err != nil {
		return nil, codeapi.Fail(codeapi.RuntimeError, "the answer of the server that answers %s broke off", name)
	}
	var answer struct {
		Result json.RawMessage  `json:"result"`
		Error  *codeapi.Failure `json:"error"`
	}
	err = json.Unmarshal(body, &answer)
	switch {
	case len(body) > limit || len(answer.Result) > provider.MaxResult:
		return nil, resultTooLarge(name)
	case err != nil || answer.Error == nil && answer.Result == nil:
		return nil, codeapi.Fail(codeapi.RuntimeError, `the answer of the server that answers %s is neither `+
			`{"result": …} nor {"error": {"type", "message"}}`, name)
	case answer.Error != nil:
		return nil, codeapi.Bounded(answer.Error)
	}
	return answer.Result, nil
}

package messages

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"berth/gateway"
	"berth/gateway/upstream"
	"berth/proto"
)

// Config configures a Service. All fields must be set.
type Config struct {
	Turns     *gateway.Gateway
	Upstreams *upstream.Set
	Files     Files
	Tools     ToolChecker
}

// Files reads stored files.
type Files interface {
	Get(ctx context.Context, owner, id string) (proto.StoredFile, error)
	Open(ctx context.Context, owner, id string) (io.ReadSeekCloser, proto.StoredFile, error)
}

// A ToolChecker refuses tools that code cannot call. field names the tool in the error.
type ToolChecker interface {
	CheckTool(field string, t gateway.ClientTool) error
}

// A Service answers Messages requests.
type Service struct{ cfg Config }

// New returns a Service.
func New(cfg Config) *Service { return &Service{cfg} }

// A Request is a request as the client sent it.
type Request struct {
	Owner  string // owner of the API key
	Path   string // "/v1/messages" or "/v1/messages/count_tokens"
	Query  url.Values
	Header http.Header
	Body   []byte

	// Draining is closed when the daemon is about to end. Running commands are then left to the next daemon. nil:
	// never closed.
	Draining <-chan struct{}
}

// A Told is an error that the client has already received in its stream.
type Told struct{ Err error }

func (t *Told) Error() string { return t.Err.Error() }

// Unwrap returns the error.
func (t *Told) Unwrap() error { return t.Err }

// Answer answers a request. If it fails before the answer has begun, it writes nothing. If it fails in the middle of
// a stream, it sends the event that fail makes of the error, and returns a *Told.
func (s *Service) Answer(ctx context.Context, w http.ResponseWriter, r Request, fail func(error) any) error {
	q, err := readQuery(r, s.cfg.Tools)
	if err != nil {
		return err
	}
	up, err := s.cfg.Upstreams.For(q.model)
	if err != nil {
		return err
	}
	switch {
	case q.isPlain():
		return s.passThrough(ctx, w, up, r.Owner, upstream.Request{Path: r.Path, Query: r.Query, Header: r.Header,
			Body: r.Body})
	case r.Path == upstream.PathCountTokens:
		return s.countTokens(ctx, w, up, q)
	}
	return s.answerTurn(ctx, w, up, q, fail)
}

// retryHeader is a header of the client. All requests with the same value and the same body are one turn. SDKs send
// no such header, but they mark repeated requests.
const retryHeader = "Idempotency-Key"

// repeated reports whether the client may have sent a request before.
func repeated(h http.Header) bool {
	n, err := strconv.Atoi(h.Get("X-Stainless-Retry-Count"))
	return err == nil && n > 0 || h.Get(retryHeader) != ""
}

// liveHeader requests the output of running commands, as separate events in a streamed answer.
const liveHeader = "berth-live-output"

// answerTurn answers a request with the code execution tool.
func (s *Service) answerTurn(ctx context.Context, w http.ResponseWriter, up *upstream.Upstream, q *query,
	fail func(error) any) error {
	client := &client{w: w}
	r := gateway.Request{
		Owner:    q.Owner,
		Key:      sha256.Sum256([]byte(q.Owner + "\x00" + q.Header.Get(retryHeader) + "\x00" + string(q.Body))),
		Repeated: repeated(q.Header), Size: len(q.Body), Container: q.container.ID, Skills: q.container.Skills,
		Files: q.files, Draining: q.Draining,
	}
	if q.stream {
		client.stream = newStream(w)
		r.Ping = client.stream.ping
		if q.Header.Get(liveHeader) == "1" {
			r.Output = client.stream.output
		}
	}
	err := s.cfg.Turns.Answer(ctx, r, func(earlier gateway.Conversation, a *gateway.Answer) (gateway.Conversation,
		func()) {
		c, ok := earlier.(*conversation)
		if !ok {
			c = &conversation{s: s, answer: a}
		}
		return c, c.attach(q, up, client)
	})
	if err == nil || ctx.Err() != nil || client.stream == nil || !client.stream.sent() {
		return err
	}
	if client.stream.send("error", mustJSON(fail(err))) != nil {
		return err
	}
	return &Told{err}
}

// countTokens answers a request that counts the tokens of a turn's first round. It creates no container.
func (s *Service) countTokens(ctx context.Context, w http.ResponseWriter, up *upstream.Upstream, q *query) error {
	if q.container.ID != "" {
		if _, err := s.cfg.Turns.FindContainer(q.Owner, q.container.ID); err != nil {
			return err
		}
	}
	paths := map[string]string{}
	for _, file := range q.files {
		if f, err := s.cfg.Files.Get(ctx, q.Owner, file.ID); err == nil {
			paths[file.ID] = proto.InputDir + "/" + f.Filename
		}
	}
	h, err := newHistory(q.messages, paths)
	if err != nil {
		return err
	}
	skills, err := s.cfg.Turns.ResolveSkills(ctx, q.Owner, q.container.Skills)
	if err != nil {
		return err
	}
	q.tools.describe(describeSkills(skills))
	for _, c := range h.takePending(q.last) {
		h.abandon(c)
	}
	return s.passThrough(ctx, w, up, q.Owner, upstream.Request{Path: q.Path, Query: q.Query, Header: q.upstreamHeader(),
		Body: q.upstreamBody(h, true)})
}

// passThrough sends a request to the upstream and returns the answer to the client. It changes only references to the
// owner's stored files.
func (s *Service) passThrough(ctx context.Context, w http.ResponseWriter, up *upstream.Upstream, owner string,
	r upstream.Request) (err error) {
	if r.Body, err = s.embed(ctx, owner, r.Body); err != nil {
		return err
	}
	res, err := up.Do(ctx, r)
	if err != nil {
		return err
	}
	return copyResponse(w, res)
}

// copyResponse copies an upstream's answer to the client, each piece as it comes.
func copyResponse(w http.ResponseWriter, res *http.Response) error {
	defer res.Body.Close()
	h := w.Header()
	for name, values := range res.Header {
		h[name] = values
	}
	w.WriteHeader(res.StatusCode)
	rc := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := res.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			if err := rc.Flush(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// accountHeaders are prefixes of upstream headers that describe the client's account rather than one round.
var accountHeaders = []string{"Anthropic-", "Retry-After"}

// copyAccountHeaders copies the upstream's headers that describe the client's account.
func copyAccountHeaders(w http.ResponseWriter, res *http.Response) {
	for name, values := range res.Header {
		for _, prefix := range accountHeaders {
			if strings.HasPrefix(name, prefix) {
				w.Header()[name] = values
			}
		}
	}
}

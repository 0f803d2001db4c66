package upstream

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"berth/gateway/upstream/answer"
	"berth/gateway/upstream/chat"
)

// chatPath is appended to a base URL that ends in /v1.
const chatPath = "/chat/completions"

// doChat sends a request to a chat completions upstream. It refuses a request whose answer would be another one because
// chat completions cannot express it.
func (u *Upstream) doChat(ctx context.Context, r Request) (*http.Response, error) {
	if r.Path != PathMessages {
		return answer.NewFault(http.StatusBadRequest, "The upstream %s speaks chat completions, which cannot count "+
			"tokens; the usage of an answer says how many there were.", u.cfg.Name).Response(http.StatusBadRequest), nil
	}
	asked, text, err := u.translate(ctx, r)
	switch {
	case ctx.Err() != nil:
		return nil, u.explain(ctx, ctx.Err(), "gave no answer")
	case err != nil:
		f := answer.NewFault(http.StatusBadRequest, "%v", err)
		if errors.Is(err, chat.ErrThread) { // with this code, SDKs send the whole history
			f.Details = &answer.Details{ErrorCode: "thread_unsupported_request"}
		}
		return f.Response(http.StatusBadRequest), nil
	}
	res, err := u.send(ctx, http.MethodPost, chatPath, nil, u.chatHeader(r.Header), inOnePiece(text))
	if err != nil {
		return nil, err
	}
	res.Header = chatAnswerHeader(res.Header)
	setKey(res.Header, IgnoredHeader, strings.Join(asked.Ignored(), ", "))
	if res.StatusCode >= http.StatusBadRequest {
		return u.failed(res, chat.ReadError(res.StatusCode)), nil
	}
	return asked.Translate(u.cfg.Name, res)
}

// translate encodes a request for chat completions. A few requests are translated at a time, since each needs several
// times its size meanwhile.
func (u *Upstream) translate(ctx context.Context, r Request) (asked *chat.Request, text []byte, err error) {
	select {
	case u.translating <- struct{}{}:
		defer func() { <-u.translating }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	if asked, err = chat.ReadRequest(r.Whole()); err == nil {
		text, err = asked.Encode(u.OwnName(asked.Model), u.isOpenAI())
	}
	return asked, text, err
}

// IgnoredHeader is a header of answers. It names the parts of the request that the upstream's dialect cannot express
// and that were left out.
const IgnoredHeader = "Berth-Ignored"

// isOpenAI reports whether the upstream is the official OpenAI service.
func (u *Upstream) isOpenAI() bool {
	host := u.base.Hostname()
	return host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com") ||
		strings.HasSuffix(host, ".api.openai.com")
}

// chatHeader returns the request headers for a chat completions upstream.
func (u *Upstream) chatHeader(client http.Header) http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Accept-Encoding": {"identity"}}
	h.Set("User-Agent", cmp.Or(client.Get("User-Agent"), "berth"))
	apiKey, authorization := u.callerKeys(client)
	switch key := cmp.Or(u.cfg.Key, apiKey); {
	case u.cfg.Key == "" && authorization != "":
		h.Set("Authorization", authorization)
	case key != "":
		h.Set("Authorization", "Bearer "+key)
	}
	return h
}

// chatAnswerHeader returns the headers of a chat completions answer that the client gets: content type, retry hints
// and the request ID.
func chatAnswerHeader(h http.Header) http.Header {
	kept := http.Header{}
	for name, as := range map[string]string{
		"Content-Type": "Content-Type", "Retry-After": "Retry-After", "Retry-After-Ms": "Retry-After-Ms",
		"X-Should-Retry": "X-Should-Retry", "X-Request-Id": "Request-Id",
	} {
		setKey(kept, as, h.Get(name))
	}
	return kept
}

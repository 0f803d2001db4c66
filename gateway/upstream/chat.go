package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3"
)

// chatPath is appended to a base URL that ends in /v1.
const chatPath = "/chat/completions"

// maxAnswer is the maximum size in bytes of a chat completions answer that is read in one piece.
const maxAnswer = 64 << 20

// doChat sends a request to a chat completions upstream. It refuses a request that chat completions cannot express.
func (u *Upstream) doChat(ctx context.Context, r Request) (*http.Response, error) {
	if r.Path != PathMessages {
		return newFault(http.StatusBadRequest, "The upstream %s speaks chat completions, which cannot count tokens; "+
			"the usage of an answer says how many there were.", u.cfg.Name).response(http.StatusBadRequest), nil
	}
	asked, err := readMessages(r.Body)
	var text []byte
	if err == nil {
		text, err = u.encodeRequest(asked)
	}
	if err != nil {
		return newFault(http.StatusBadRequest, "%v", err).response(http.StatusBadRequest), nil
	}
	res, err := u.send(ctx, chatPath, nil, u.chatHeader(r.Header), text)
	if err != nil {
		return nil, err
	}
	model, refused := asked.Model, res.StatusCode >= http.StatusBadRequest
	res.Header = chatAnswerHeader(res.Header)
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case refused:
		return u.failed(res, chatError(res.StatusCode)), nil
	case asked.Stream && kind == "text/event-stream":
		return u.chatStream(res, newTranslation(u.cfg.Name, model, asked.StopSequences)), nil
	}
	return u.chatWhole(res, asked)
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

// chatError returns a function that reads error bodies of chat completions. It knows the official form and those of
// servers that send a string, a bare message or a detail.
func chatError(status int) func([]byte) ([]byte, bool) {
	return func(text []byte) ([]byte, bool) {
		var e map[string]json.RawMessage
		if json.Unmarshal(text, &e) != nil {
			return nil, false
		}
		message := chatMessage(e)
		return newFault(status, "%s", message).envelope(), message != ""
	}
}

func chatMessage(e map[string]json.RawMessage) string {
	for _, name := range []string{"error", "message", "detail"} {
		var inner map[string]json.RawMessage
		var text string
		switch raw := e[name]; {
		case raw == nil, string(raw) == "null":
		case json.Unmarshal(raw, &text) == nil:
			return text
		case json.Unmarshal(raw, &inner) == nil && inner["message"] != nil:
			return chatMessage(map[string]json.RawMessage{"message": inner["message"]})
		default:
			return plain(raw)
		}
	}
	return ""
}

// chatWhole translates an answer that comes in one piece. If the client wants a stream, chatWhole makes one: some
// servers cannot stream tool calls.
func (u *Upstream) chatWhole(res *http.Response, asked *messagesRequest) (*http.Response, error) {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	msg, err := u.readCompletion(text, asked)
	if err != nil {
		return newFault(http.StatusBadGateway, "The upstream %s %v.", u.cfg.Name, err).response(http.StatusBadGateway),
			nil
	}
	if !asked.Stream {
		return jsonResponse(http.StatusOK, res.Header, msg.json()), nil
	}
	out := &events{}
	out.message(msg)
	res.Header.Set("Content-Type", "text/event-stream")
	res.Body, res.ContentLength = io.NopCloser(out), -1
	return res, nil
}

// readCompletion decodes and checks an answer that comes in one piece.
func (u *Upstream) readCompletion(text []byte, asked *messagesRequest) (message, error) {
	if len(text) > maxAnswer {
		return message{}, errors.New("gave an answer of more than 64 MiB")
	}
	var c openai.ChatCompletion
	if err := json.Unmarshal(text, &c); err != nil {
		return message{}, errors.New("gave an answer that is no JSON: " + plain(text))
	}
	if len(c.Choices) == 0 {
		return message{}, errors.New("gave an answer without choices: " + plain(text))
	}
	return decodeCompletion(c, asked.Model, asked.StopSequences)
}

// chatStream replaces the body of an answer by a translation.
func (u *Upstream) chatStream(res *http.Response, t *translation) *http.Response {
	t.src, t.closer = newReader(res.Body), res.Body
	res.Body, res.ContentLength = t, -1
	return res
}

// isOpenAI reports whether the upstream is the official OpenAI service. Its newer models refuse max_tokens; all other
// servers accept it.
func (u *Upstream) isOpenAI() bool {
	host := u.base.Hostname()
	return host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com") ||
		strings.HasSuffix(host, ".api.openai.com")
}

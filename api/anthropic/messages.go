package anthropic

import (
	"errors"
	"io"
	"net/http"

	"berth/api"
	"berth/gateway"
	"berth/gateway/messages"
)

// maxMessages bounds the body of a Messages request, in bytes, as the hosted service does.
const maxMessages = 32 << 20

// answerMessages answers a Messages request. Errors of turns are rendered here like all others.
func (e edge) answerMessages(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	req := messages.Request{Owner: c.Owner, Path: r.URL.Path, Query: r.URL.Query(), Header: r.Header, Body: body,
		Draining: api.Draining(r.Context())}
	fail := func(err error) any { return envelope(dialect.Failure(api.RequestID(r.Context()), err)) }
	err = e.Messages.Answer(r.Context(), w, req, fail)
	var told *messages.Told
	if errors.As(err, &told) { // in the stream
		api.NoteFailure(r.Context(), err)
		return nil
	}
	return statusOf(w, err)
}

// statusOf gives an interrupted turn the status that the upstream had for it, and has no SDK send it again by itself:
// what was done would be done twice.
func statusOf(w http.ResponseWriter, err error) error {
	var i *gateway.Interruption
	if !errors.As(err, &i) {
		return err
	}
	w.Header().Set("X-Should-Retry", "false")
	for status, kind := range errorTypes { // of an error in a stream that had not begun
		if i.Status == 0 && i.Kind == kind {
			return api.WithStatus(status, err)
		}
	}
	if i.Status == 0 {
		return err
	}
	return api.WithStatus(i.Status, err)
}

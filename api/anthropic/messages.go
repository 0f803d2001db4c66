package anthropic

import (
	"errors"
	"net/http"

	"berth/api"
	"berth/gateway"
	"berth/gateway/messages"
	"berth/proto"
)

// maxMessages bounds the body of a Messages request, in bytes, as the hosted service does.
const maxMessages = 32 << 20

// answerMessages answers a Messages request. The edge writes the errors of turns like all others.
func (e edge) answerMessages(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	body, release, err := e.intake.readBody(r, c.Owner)
	if err != nil {
		return err
	}
	defer release()
	req := messages.Request{Owner: c.Owner, KeyID: c.KeyID, Path: r.URL.Path, Query: r.URL.Query(),
		Header: r.Header, Body: body, Draining: api.Draining(r.Context())}
	fail := func(err error) any { return envelopeOf(dialect.Failure(api.RequestID(r.Context()), err)) }
	err = e.Messages.Answer(r.Context(), w, req, fail)
	var told *messages.Told
	if errors.As(err, &told) { // the stream has told the client
		api.NoteFailure(r.Context(), err)
		return nil
	}
	return statusOf(w, err)
}

// statusOf gives an interrupted turn the upstream's status, and tells SDKs not to retry it: a retry would repeat what
// was done.
func statusOf(w http.ResponseWriter, err error) error {
	var i *gateway.Interruption
	if !errors.As(err, &i) {
		return err
	}
	w.Header().Set("X-Should-Retry", "false")
	for status, kind := range errorTypes { // an error in a stream that had not started
		if i.Status == 0 && i.Kind == kind {
			return api.WithStatus(status, err)
		}
	}
	if i.Status == 0 {
		return err
	}
	return api.WithStatus(i.Status, err)
}

// listModels lists the models of all upstreams.
func (e edge) listModels(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	return e.Messages.Models(r.Context(), w, messages.Request{Owner: c.Owner, Query: r.URL.Query(), Header: r.Header},
		"")
}

// getModel describes one model.
func (e edge) getModel(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	name := r.PathValue("model_id")
	if name == "" {
		return proto.Errorf(proto.NotFound, "", "model", "A path has the name of a model after %s/.", modelsPath)
	}
	return e.Messages.Models(r.Context(), w, messages.Request{Owner: c.Owner, Query: r.URL.Query(), Header: r.Header},
		name)
}

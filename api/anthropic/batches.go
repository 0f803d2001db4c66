package anthropic

import (
	"net/http"

	"berth/api"
	"berth/gateway/messages/batches"
)

// batchRequest returns a request about message batches, without its body.
func batchRequest(r *http.Request, c api.Caller) batches.Request {
	base := "http://" + r.Host
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		base = "https://" + r.Host
	}
	return batches.Request{Owner: c.Owner, Base: base, Query: r.URL.Query(), Header: r.Header}
}

func (e edge) createBatch(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	body, release, err := e.intake.readBody(r, c.Owner)
	if err != nil {
		return err
	}
	defer release()
	req := batchRequest(r, c)
	req.Body = body
	return e.Batches.Create(r.Context(), w, req)
}

func (e edge) listBatches(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	return e.Batches.List(r.Context(), w, batchRequest(r, c))
}

// getBatch describes a batch, or deletes it.
func (e edge) getBatch(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	return e.doBatch(w, r, c, "")
}

func (e edge) cancelBatch(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	return e.doBatch(w, r, c, "/cancel")
}

func (e edge) batchResults(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	return e.doBatch(w, r, c, "/results")
}

// doBatch passes on a request for one batch.
func (e edge) doBatch(w http.ResponseWriter, r *http.Request, c api.Caller, rest string) error {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return e.Batches.Do(r.Context(), w, batchRequest(r, c), method, r.PathValue("message_batch_id"), rest)
}

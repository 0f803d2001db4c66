package anthropic

import (
	"io"
	"net/http"

	"berth/api"
	"berth/gateway/messages/batches"
)

// batchRequest reads a request about message batches.
func batchRequest(r *http.Request, c api.Caller) (batches.Request, error) {
	body, err := io.ReadAll(r.Body)
	base := "http://" + r.Host
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		base = "https://" + r.Host
	}
	return batches.Request{Owner: c.Owner, Base: base, Query: r.URL.Query(), Header: r.Header, Body: body}, err
}

func (e edge) createBatch(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	req, err := batchRequest(r, c)
	if err != nil {
		return err
	}
	return e.Batches.Create(r.Context(), w, req)
}

func (e edge) listBatches(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	req, err := batchRequest(r, c)
	if err != nil {
		return err
	}
	return e.Batches.List(r.Context(), w, req)
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
	req, err := batchRequest(r, c)
	if err != nil {
		return err
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return e.Batches.Do(r.Context(), w, req, method, r.PathValue("message_batch_id"), rest)
}

// Package batches passes message batches on to the upstreams that have the models. It runs nothing itself, and it
// refuses code execution.
//
// Where an upstream has a key of the operator, all callers share the upstream's account. So the ledger has a record of
// each batch, and a caller reaches his own batches only. Where each caller's key is passed on, the upstream knows whose
// batches there are. The Anthropic edge calls the Service.
package batches

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"berth/gateway/messages"
	"berth/gateway/messages/rawjson"
	"berth/gateway/upstream"
	"berth/proto"
	"berth/state/ledger"
)

// Path is the path of all batches.
const Path = "/v1/messages/batches"

// bucket maps owner, a slash and the ID of a batch to a record. No other package uses it.
const bucket = "message_batches"

// keep is how long a batch is remembered. Hosted batches and their results are gone by then.
const keep = 30 * 24 * time.Hour

// maxAnswer is the maximum size of an answer that describes batches, in bytes.
const maxAnswer = 16 << 20

// Config configures a Service. All fields must be set.
type Config struct {
	Upstreams *upstream.Set
	Ledger    *ledger.DB
	Messages  *messages.Service // prepares the requests of a batch
}

// A Service passes batches on. It is safe for concurrent use.
type Service struct{ cfg Config }

// New returns a Service.
func New(cfg Config) *Service { return &Service{cfg} }

// A Request is a request as the client sent it.
type Request struct {
	Owner  string // owner of the API key
	Base   string // URL that the client reached the daemon by, for links in answers
	Query  url.Values
	Header http.Header
	Body   []byte
}

// A record is the stored state of a batch.
type record struct {
	Upstream string    `json:"upstream"` // prefix of the upstream
	At       time.Time `json:"at"`       // when it was created
}

// Create creates a batch at the upstream that has the models of all its requests.
func (s *Service) Create(ctx context.Context, w http.ResponseWriter, r Request) error {
	up, body, err := s.prepare(ctx, r)
	if err != nil {
		return err
	}
	res, err := up.Do(ctx, upstream.Request{Path: Path, Query: r.Query, Header: r.Header, Body: body})
	if err != nil || res.StatusCode >= http.StatusBadRequest {
		return pass(w, res, err)
	}
	batch, err := readObject(res)
	if err != nil {
		return err
	}
	id := batch.Text("id")
	now := time.Now()
	err = s.cfg.Ledger.Update(func(tx *ledger.Tx) error {
		if err := prune(tx, r.Owner, now.Add(-keep)); err != nil {
			return err
		}
		return tx.Put(bucket, r.Owner+"/"+id, record{up.Prefix(), now})
	})
	if err != nil {
		return err
	}
	return writeObject(w, res, linked(batch, r.Base))
}

// prepare returns the upstream of a batch, and the batch as that gets it.
func (s *Service) prepare(ctx context.Context, r Request) (up *upstream.Upstream, body []byte, err error) {
	o, err := rawjson.Parse(r.Body)
	if err != nil {
		return nil, nil, err
	}
	list, err := rawjson.ParseArray(o.Get("requests"))
	if err != nil || len(list) == 0 {
		return nil, nil, proto.Invalid("requests", "requests must be an array with at least one request")
	}
	for i, raw := range list {
		where := fmt.Sprintf("requests.%d.params", i)
		one, err := rawjson.Parse(raw)
		if err != nil {
			return nil, nil, proto.Invalid("requests", "requests.%d must be an object with custom_id and params", i)
		}
		params, err := s.cfg.Messages.Batched(ctx, r.Owner, where, one.Get("params"))
		if err != nil {
			return nil, nil, err
		}
		p, err := rawjson.Parse(params)
		if err != nil {
			return nil, nil, proto.Invalid(where, "%s must be an object", where)
		}
		model := p.Text("model")
		at, err := s.cfg.Upstreams.For(model)
		switch {
		case err != nil:
			return nil, nil, err
		case up != nil && at != up:
			return nil, nil, proto.Invalid(where, "%s.model: another upstream has %.80q than the models of the "+
				"requests before it; make a batch for each", where, model)
		}
		up = at
		if up.Kind() != upstream.KindMessages {
			return nil, nil, proto.Invalid(where, "%s.model: the upstream of %.80q speaks chat completions, which has "+
				"no message batches; send the request to %s", where, model, upstream.PathMessages)
		}
		list[i] = one.With("params", p.With("model", up.OwnName(model)).Raw()).Raw()
	}
	return up, o.With("requests", rawjson.Join(list)).Raw(), nil
}

// validID matches the IDs that are put into paths of upstreams.
var validID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,200}$`)

// Do passes on a request for one batch. rest follows the ID in the path, such as "/results", or is "".
func (s *Service) Do(ctx context.Context, w http.ResponseWriter, r Request, method, id, rest string) error {
	res, err := s.ask(ctx, r, method, id, rest)
	if err != nil || rest == "/results" || res.StatusCode >= http.StatusBadRequest {
		return pass(w, res, err)
	}
	batch, err := readObject(res)
	if err != nil {
		return err
	}
	if method == http.MethodDelete {
		err := s.cfg.Ledger.Update(func(tx *ledger.Tx) error { return tx.Delete(bucket, r.Owner+"/"+id) })
		if err != nil {
			return err
		}
	}
	return writeObject(w, res, linked(batch, r.Base))
}

// ask sends a request for one batch to its upstream.
func (s *Service) ask(ctx context.Context, r Request, method, id, rest string) (*http.Response, error) {
	if !validID.MatchString(id) {
		return nil, unknown(id)
	}
	var rec record
	var known bool
	err := s.cfg.Ledger.View(func(tx *ledger.Tx) (err error) {
		known, err = tx.Get(bucket, r.Owner+"/"+id, &rec)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, up := range s.cfg.Upstreams.All() {
		if up.Kind() != upstream.KindMessages || known && up.Prefix() != rec.Upstream || !known && up.HasKey() {
			continue
		}
		res, err := up.Do(ctx, upstream.Request{Method: method, Path: Path + "/" + id + rest, Query: r.Query,
			Header: r.Header, Body: r.Body})
		if err != nil || known || res.StatusCode != http.StatusNotFound {
			return res, err
		}
		_ = res.Body.Close() // the next upstream may have it
	}
	return nil, unknown(id)
}

func unknown(id string) error {
	return proto.Errorf(proto.NotFound, "", id, "There is no message batch %.80q of yours.", id)
}

// List lists the batches of the caller, newest first. If the upstream knows which those are, its answer is passed on.
func (s *Service) List(ctx context.Context, w http.ResponseWriter, r Request) error {
	var all []*upstream.Upstream
	for _, up := range s.cfg.Upstreams.All() {
		if up.Kind() == upstream.KindMessages {
			all = append(all, up)
		}
	}
	if len(all) == 1 && !all[0].HasKey() {
		return s.passList(ctx, w, all[0], r)
	}
	ids, err := s.owned(r.Owner)
	if err != nil {
		return err
	}
	page, more, err := pageOf(ids, r.Query)
	if err != nil {
		return err
	}
	found, err := s.describe(ctx, r, page)
	if err != nil {
		return err
	}
	out := rawjson.Object{}.With("data", rawjson.Join(found)).With("has_more", more).With("first_id", nil).With(
		"last_id", nil)
	if len(page) > 0 {
		out = out.With("first_id", page[0]).With("last_id", page[len(page)-1])
	}
	return writeObject(w, &http.Response{Header: http.Header{}, StatusCode: http.StatusOK}, out)
}

// passList passes a list on, with links to this daemon.
func (s *Service) passList(ctx context.Context, w http.ResponseWriter, up *upstream.Upstream, r Request) error {
	res, err := up.Do(ctx, upstream.Request{Method: http.MethodGet, Path: Path, Query: r.Query, Header: r.Header})
	if err != nil || res.StatusCode >= http.StatusBadRequest {
		return pass(w, res, err)
	}
	o, err := readObject(res)
	if err != nil {
		return err
	}
	list, err := rawjson.ParseArray(o.Get("data"))
	if err != nil {
		return broken()
	}
	for i, raw := range list {
		if batch, err := rawjson.Parse(raw); err == nil {
			list[i] = linked(batch, r.Base).Raw()
		}
	}
	return writeObject(w, res, o.With("data", rawjson.Join(list)))
}

// owned returns the IDs of an owner's batches, newest first.
func (s *Service) owned(owner string) (ids []string, err error) {
	type entry struct {
		id string
		at time.Time
	}
	var list []entry
	err = s.cfg.Ledger.View(func(tx *ledger.Tx) error {
		return tx.Scan(bucket, owner+"/", func(key string, data []byte) (bool, error) {
			var rec record
			id := key[len(owner)+1:]
			if json.Unmarshal(data, &rec) == nil && time.Since(rec.At) < keep && validID.MatchString(id) {
				list = append(list, entry{id, rec.At})
			}
			return true, nil
		})
	})
	slices.SortStableFunc(list, func(a, b entry) int { return b.at.Compare(a.at) })
	for _, e := range list {
		ids = append(ids, e.id)
	}
	return ids, err
}

// maxPage is the maximum length of a page: each batch of it is a request to its upstream.
const maxPage = 100

// pageOf returns the page of the IDs that a query asks for.
func pageOf(ids []string, query url.Values) (page []string, more bool, err error) {
	limit := 20
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > 1000 {
			return nil, false, proto.Invalid("limit", "limit must be a whole number from 1 to 1000")
		}
	}
	limit = min(limit, maxPage)
	if after := query.Get("after_id"); after != "" {
		ids = ids[slices.Index(ids, after)+1:]
	}
	if before := query.Get("before_id"); before != "" {
		at := max(0, slices.Index(ids, before))
		return ids[max(0, at-limit):at], at > limit, nil
	}
	return ids[:min(limit, len(ids))], len(ids) > limit, nil
}

// describe asks for batches, some at a time. It leaves out those that are gone.
func (s *Service) describe(ctx context.Context, r Request, ids []string) ([]json.RawMessage, error) {
	found, errs := make([]json.RawMessage, len(ids)), make([]error, len(ids))
	r.Query, r.Body = nil, nil
	var asked sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, id := range ids {
		slots <- struct{}{}
		asked.Go(func() {
			defer func() { <-slots }()
			res, err := s.ask(ctx, r, http.MethodGet, id, "")
			if err != nil {
				if proto.CodeOf(err) != proto.NotFound { // its upstream is not configured any more
					errs[i] = err
				}
				return
			}
			if res.StatusCode == http.StatusNotFound {
				_ = res.Body.Close()
				return
			}
			batch, err := readObject(res)
			if err == nil && res.StatusCode >= http.StatusBadRequest {
				err = proto.Errorf(proto.Unavailable, "", id, "The upstream of the message batch %s answers %d.", id,
					res.StatusCode)
			}
			found[i], errs[i] = linked(batch, r.Base).Raw(), err
		})
	}
	asked.Wait()
	found = slices.DeleteFunc(found, func(raw json.RawMessage) bool { return raw == nil })
	return found, errors.Join(errs...)
}

// prune forgets batches that were created before a time.
func prune(tx *ledger.Tx, owner string, before time.Time) error {
	var old []string
	err := tx.Scan(bucket, owner+"/", func(key string, data []byte) (bool, error) {
		var rec record
		if json.Unmarshal(data, &rec) != nil || rec.At.Before(before) {
			old = append(old, key)
		}
		return true, nil
	})
	for _, key := range old {
		err = errors.Join(err, tx.Delete(bucket, key))
	}
	return err
}

// linked returns a batch whose results are at this daemon: SDKs follow the link with the key that they have.
func linked(batch rawjson.Object, base string) rawjson.Object {
	if !batch.Has("results_url") {
		return batch
	}
	return batch.With("results_url", base+Path+"/"+url.PathEscape(batch.Text("id"))+"/results")
}

// pass copies an upstream's answer to the client.
func pass(w http.ResponseWriter, res *http.Response, err error) error {
	if err != nil {
		return err
	}
	return messages.CopyResponse(w, res)
}

func readObject(res *http.Response) (rawjson.Object, error) {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	_ = res.Body.Close()
	if err != nil {
		return nil, err
	}
	o, err := rawjson.Parse(text)
	if err != nil {
		return nil, broken()
	}
	return o, nil
}

func broken() error {
	return proto.Errorf(proto.Unavailable, "", "upstream",
		"The upstream's answer about message batches cannot be read.")
}

// writeObject answers with an object and the other headers of an upstream's answer.
func writeObject(w http.ResponseWriter, res *http.Response, o rawjson.Object) error {
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	text := o.Raw()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(res.StatusCode)
	_, err := w.Write(text)
	return err
}

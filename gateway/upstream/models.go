package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/gateway/upstream/answer"
	"berth/gateway/upstream/chat"
	"berth/proto"
)

// PathModels is the path of the list of models.
const PathModels = "/v1/models"

// UnavailableHeader is a header of the list of models. It names the models of upstreams that gave no list.
const UnavailableHeader = "Berth-Unavailable"

// Limits for asking one upstream for its models.
const (
	modelsTimeout = 15 * time.Second
	maxModelPages = 20       // of 1000 models each
	maxModelList  = 16 << 20 // bytes of one page
)

// A model describes a model: an object of the Messages dialect.
type model map[string]json.RawMessage

func (m model) text(name string) (text string) {
	_ = json.Unmarshal(m[name], &text) // anything else counts as ""
	return text
}

// A modelList is the models of one upstream, or why there is no list.
type modelList struct {
	models  []model
	refused *http.Response // the upstream's error; nil: none
	err     error          // it gave no answer
}

// Models answers a request for the list of models: those of all upstreams under the names that requests use. If some
// upstreams give no list, a header of the answer names them. If none gives one, the answer is the first one's error.
func (s *Set) Models(ctx context.Context, client http.Header, query url.Values) (*http.Response, error) {
	upstreams := s.All()
	lists := make([]modelList, len(upstreams))
	var asked sync.WaitGroup
	for i, u := range upstreams {
		asked.Go(func() { lists[i] = u.listModels(ctx, client) })
	}
	asked.Wait()
	var all []model
	var missing []string
	seen := map[string]bool{}
	failed := -1
	for i, list := range lists {
		if list.err != nil || list.refused != nil {
			if failed < 0 {
				failed = i
			}
			for _, p := range upstreams[i].cfg.Prefixes {
				missing = append(missing, modelsOf(p))
			}
			continue
		}
		for _, m := range s.named(upstreams[i], list.models) {
			if id := m.text("id"); !seen[id] {
				seen[id] = true
				all = append(all, m)
			}
		}
	}
	if len(missing) > 0 && len(all) == 0 {
		return lists[failed].refused, lists[failed].err
	}
	res, err := modelPage(all, query)
	if err == nil && len(missing) > 0 {
		res.Header.Set(UnavailableHeader, strings.Join(missing, ", "))
	}
	return res, err
}

// Model answers a request for one model. Its name chooses the upstream, as that of a Messages request does.
func (s *Set) Model(ctx context.Context, client http.Header, name string) (*http.Response, error) {
	u, err := s.For(name)
	if err != nil {
		return nil, err
	}
	own := u.OwnName(name)
	if u.cfg.Kind == KindMessages && strings.Trim(own, ".") != "" { // a path segment that leads nowhere else
		res, err := u.get(ctx, PathModels+"/"+url.PathEscape(own), nil, u.header(client))
		if err != nil {
			return nil, err
		}
		if res.StatusCode < http.StatusBadRequest {
			if m, ok := readModel(res); ok {
				m["id"] = answer.Encode(strings.TrimSuffix(name, own) + cmp.Or(m.text("id"), own))
				return answer.JSONResponse(http.StatusOK, res.Header, answer.Encode(m)), nil
			}
		} else if !hasNoModels(res.StatusCode) {
			return u.failed(res, messagesError), nil
		}
		_ = res.Body.Close() // the list may have it
	}
	list := u.listModels(ctx, client)
	if list.err != nil || list.refused != nil {
		return list.refused, list.err
	}
	for _, m := range s.named(u, list.models) {
		if m.text("id") == name {
			return answer.JSONResponse(http.StatusOK, http.Header{}, answer.Encode(m)), nil
		}
	}
	return nil, proto.Errorf(proto.NotFound, "", "model", "The upstream %s has no model %q; GET %s lists all.",
		u.cfg.Name, answer.Short(own), PathModels)
}

// readModel reads one model.
func readModel(res *http.Response) (m model, ok bool) {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxModelList))
	_ = res.Body.Close()
	if err != nil || json.Unmarshal(text, &m) != nil || m == nil {
		return nil, false
	}
	return describeModel(m), true
}

// hasNoModels reports whether a status means that a server has no list of models.
func hasNoModels(status int) bool {
	return status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented
}

// named returns the models of an upstream under the names that requests use. It leaves out those that a request
// cannot reach, because their names choose another upstream.
func (s *Set) named(u *Upstream, list []model) (out []model) {
	for _, m := range list {
		id := m.text("id")
		for _, p := range u.cfg.Prefixes {
			name := id
			if isRoutingPrefix(p) {
				name = p + id
			}
			if chosen, err := s.For(name); id == "" || err != nil || chosen != u || u.OwnName(name) != id ||
				slices.ContainsFunc(out, func(o model) bool { return o.text("id") == name }) {
				continue
			}
			named := model{}
			for k, v := range m {
				named[k] = v
			}
			named["id"] = answer.Encode(name)
			out = append(out, named)
		}
	}
	return out
}

// listModels asks an upstream for its models. A server without such a list has none.
func (u *Upstream) listModels(ctx context.Context, client http.Header) (list modelList) {
	ctx, cancel := context.WithTimeout(ctx, modelsTimeout)
	defer cancel()
	path, header, read := PathModels, u.header(client), messagesError
	query := url.Values{"limit": {"1000"}}
	if u.cfg.Kind == KindOpenAI {
		path, header, query = "/models", u.chatHeader(client), nil
	}
	for range maxModelPages {
		res, err := u.get(ctx, path, query, header)
		if err != nil {
			return modelList{err: err}
		}
		if hasNoModels(res.StatusCode) {
			_ = res.Body.Close()
			return list
		}
		if res.StatusCode >= http.StatusBadRequest {
			if u.cfg.Kind == KindOpenAI {
				read = chat.ReadError(res.StatusCode)
			}
			return modelList{refused: u.failed(res, read)}
		}
		text, err := io.ReadAll(io.LimitReader(res.Body, maxModelList))
		_ = res.Body.Close()
		if err != nil {
			return modelList{err: err}
		}
		var page struct {
			Data    []model `json:"data"`
			HasMore bool    `json:"has_more"`
			LastID  string  `json:"last_id"`
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return modelList{err: u.errorf(proto.Unavailable, "gave a list of models that cannot be read: %s",
				answer.OneLine(text))}
		}
		for _, m := range page.Data {
			list.models = append(list.models, describeModel(m))
		}
		if !page.HasMore || page.LastID == "" || len(page.Data) == 0 || query == nil {
			break
		}
		query.Set("after_id", page.LastID)
	}
	return list
}

// describeModel returns a model in the Messages dialect. Servers that speak chat completions describe less.
func describeModel(m model) model {
	if m.text("type") == "model" || m == nil {
		return m
	}
	var more struct {
		Created json.Number `json:"created"`
		Window  json.Number `json:"max_model_len"` // some servers tell
	}
	_ = json.Unmarshal(answer.Encode(map[string]json.RawMessage{"created": m["created"],
		"max_model_len": m["max_model_len"]}), &more) // what is malformed stays 0
	created, _ := more.Created.Int64()
	out := model{
		"type": answer.Encode("model"), "id": m["id"], "display_name": answer.Encode(m.text("id")),
		"created_at": answer.Encode(time.Unix(created, 0).UTC().Format(time.RFC3339)),
		"lifecycle":  answer.Encode("active"),
	}
	for _, name := range []string{"capabilities", "deprecated_at", "line", "max_input_tokens", "max_tokens",
		"retires_at"} {
		out[name] = json.RawMessage("null")
	}
	if n, err := more.Window.Int64(); err == nil && n > 0 {
		out["max_input_tokens"] = answer.Encode(n)
	}
	return out
}

// modelPage returns the page of the list that a query asks for.
func modelPage(all []model, query url.Values) (*http.Response, error) {
	limit := 20
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1000 {
			return nil, proto.Invalid("limit", "limit must be a whole number from 1 to 1000")
		}
		limit = n
	}
	from, to := 0, len(all)
	for name, bound := range map[string]*int{"after_id": &from, "before_id": &to} {
		id := query.Get(name)
		if id == "" {
			continue
		}
		at := slices.IndexFunc(all, func(m model) bool { return m.text("id") == id })
		if at < 0 {
			return nil, proto.Invalid(name, "%s: there is no model %q in the list", name, answer.Short(id))
		}
		if *bound = at; name == "after_id" {
			*bound = at + 1
		}
	}
	page, more := all[min(from, to):to], false
	if len(page) > limit {
		more = true
		if page = page[:limit]; query.Get("before_id") != "" && query.Get("after_id") == "" {
			page = all[to-limit : to]
		}
	}
	out := struct {
		Data    []model         `json:"data"`
		FirstID json.RawMessage `json:"first_id"`
		HasMore bool            `json:"has_more"`
		LastID  json.RawMessage `json:"last_id"`
	}{Data: append([]model{}, page...), HasMore: more}
	if len(page) > 0 {
		out.FirstID, out.LastID = page[0]["id"], page[len(page)-1]["id"]
	}
	return answer.JSONResponse(http.StatusOK, http.Header{}, answer.Encode(out)), nil
}

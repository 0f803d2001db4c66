package anthropic

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"berth/api"
	"berth/files"
	"berth/proto"
)

// pagePrefix begins a page cursor; the rest is that of the last file's ID.
const pagePrefix = "page_"

// The answers of the three dialects. Lists are never null, cursors are null at the end.
type listGA struct {
	Data     []any   `json:"data"`
	NextPage *string `json:"next_page"`
}

// FirstID and LastID are what a client gives back as before_id and after_id.
type listLegacy struct {
	Data    []any   `json:"data"`
	HasMore bool    `json:"has_more"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
}

type listHybrid struct {
	listLegacy
	NextPage *string `json:"next_page"`
}

// list answers one page.
func (e edge) list(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	s := shapeOf(r)
	// Query keys that this does not know are ignored, unlike at the native edge, as the hosted
	// service ignores them.
	q, err := parseQuery(r.URL.Query(), s)
	if err != nil {
		return err
	}
	page, err := e.Files.List(r.Context(), c.Owner, q)
	if err != nil {
		return err
	}
	return api.JSON(w, http.StatusOK, describePage(page, q, s))
}

// parseQuery reads the query that a dialect knows.
func parseQuery(v url.Values, s shape) (q files.Query, err error) {
	if s != shapeGA { // to which scope_id is an unknown key like any other
		q.Scope = v.Get("scope_id")
	}
	if q.Limit, err = parseLimit(v); err != nil {
		return q, err
	}
	if q.AfterID, q.BeforeID, err = parseCursors(v, s); err != nil {
		return q, err
	}
	if s == shapeLegacy { // which has neither page nor ids[]
		return q, nil
	}
	// Clients differ in whether they write the brackets of a list.
	q.IDs = append(v["ids[]"], v["ids"]...)
	// A list by IDs is answered in one piece, so there is nothing to go on with.
	if len(q.IDs) > 0 && (v.Has("page") || v.Has("limit")) {
		return q, invalid("ids", "ids[] cannot be combined with page or limit.")
	}
	return q, nil
}

// parseLimit is 0 where none is given.
// files.List takes 0 for its default. A limit of 0 that was given is refused here, so that nobody
// gets twenty files for having asked for none.
func parseLimit(v url.Values) (int, error) {
	if !v.Has("limit") {
		return 0, nil
	}
	n, err := strconv.Atoi(v.Get("limit"))
	if err != nil || n < 1 || n > files.MaxLimit {
		return 0, invalid("limit", "limit must be a whole number from 1 to %d.", files.MaxLimit)
	}
	return n, nil
}

// parseCursors reads where to go on. Pages are GA, IDs are of the betas, the hybrid has both.
func parseCursors(v url.Values, s shape) (after, before string, err error) {
	after, before = v.Get("after_id"), v.Get("before_id")
	// Refused and not ignored: a client of the beta that lost its header would walk the first page
	// for ever.
	if s == shapeGA && (after != "" || before != "") {
		return "", "", invalid("before_id",
			"before_id and after_id belong to beta versions of this endpoint; use page.")
	}
	for _, id := range []string{after, before} {
		if id != "" && !proto.ValidID(proto.FilePrefix, id) {
			return "", "", invalid("before_id", "before_id and after_id must be IDs of files.")
		}
	}
	// To the oldest clients page is an unknown key like any other.
	if s == shapeLegacy || !v.Has("page") {
		return after, before, nil
	}
	if after != "" || before != "" {
		return "", "", invalid("page", "page cannot be combined with before_id or after_id.")
	}
	after, err = parsePage(v.Get("page"))
	return after, "", err
}

// parsePage is the file ID after which a page begins.
func parsePage(page string) (string, error) {
	// A cursor is the ID of a file under another name, so no state is kept for it and it never
	// runs out.
	if !proto.ValidID(pagePrefix, page) {
		return "", invalid("page", "page is not one that this endpoint gave out as next_page.")
	}
	return proto.FilePrefix + strings.TrimPrefix(page, pagePrefix), nil
}

// nextPage is the cursor after a page. Who walks towards newer files has none.
func nextPage(p files.Page, q files.Query) *string {
	if !p.More || q.BeforeID != "" {
		return nil
	}
	// More without a file cannot be: a page is at least one long.
	last := p.Files[len(p.Files)-1].ID
	next := pagePrefix + strings.TrimPrefix(last, proto.FilePrefix)
	return &next
}

// describePage writes a page in a dialect.
func describePage(p files.Page, q files.Query, s shape) any {
	old := listLegacy{Data: make([]any, 0, len(p.Files)), HasMore: p.More}
	for _, f := range p.Files {
		old.Data = append(old.Data, describe(f, s))
	}
	// Of an empty page both stay null.
	if n := len(p.Files); n > 0 {
		old.FirstID, old.LastID = &p.Files[0].ID, &p.Files[n-1].ID
	}
	switch s {
	case shapeLegacy:
		return old
	case shapeHybrid:
		return listHybrid{old, nextPage(p, q)}
	}
	return listGA{old.Data, nextPage(p, q)}
}

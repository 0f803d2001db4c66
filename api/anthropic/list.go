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

// pagePrefix is the prefix of a page cursor; the rest is from the ID of the last file.
const pagePrefix = "page_"

// Lists of the three dialects. Data is never null; cursors are null at the end.
type listGA struct {
	Data     []any   `json:"data"`
	NextPage *string `json:"next_page"`
}

// Clients send FirstID and LastID as before_id and after_id.
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
	// Unlike at the native edge, unknown query keys are ignored, as the hosted service does.
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

// parseQuery reads the query keys of a dialect.
func parseQuery(v url.Values, s shape) (q files.Query, err error) {
	if s != shapeGA { // there scope_id is an unknown key
		q.Scope = v.Get("scope_id")
	}
	if q.Limit, err = parseLimit(v); err != nil {
		return q, err
	}
	if q.AfterID, q.BeforeID, err = parseCursors(v, s); err != nil {
		return q, err
	}
	if s == shapeLegacy { // it has neither page nor ids[]
		return q, nil
	}
	// Some clients leave out the brackets.
	q.IDs = append(v["ids[]"], v["ids"]...)
	// A list by IDs has one page.
	if len(q.IDs) > 0 && (v.Has("page") || v.Has("limit")) {
		return q, proto.Invalid("ids", "ids[] cannot be combined with page or limit.")
	}
	return q, nil
}

// parseLimit returns 0, the default of files.List, if there is no limit. A limit of 0 is refused: the client would
// get twenty files for it.
func parseLimit(v url.Values) (int, error) {
	if !v.Has("limit") {
		return 0, nil
	}
	n, err := strconv.Atoi(v.Get("limit"))
	if err != nil || n < 1 || n > files.MaxLimit {
		return 0, proto.Invalid("limit", "limit must be a whole number from 1 to %d.", files.MaxLimit)
	}
	return n, nil
}

// parseCursors reads where to continue. GA has pages, the betas have IDs, the hybrid has both.
func parseCursors(v url.Values, s shape) (after, before string, err error) {
	after, before = v.Get("after_id"), v.Get("before_id")
	// Refuse them, since a beta client that lost its header would read the first page forever.
	if s == shapeGA && (after != "" || before != "") {
		return "", "", proto.Invalid("before_id",
			"before_id and after_id belong to beta versions of this endpoint; use page.")
	}
	for _, id := range []string{after, before} {
		if id != "" && !proto.ValidID(proto.FilePrefix, id) {
			return "", "", proto.Invalid("before_id", "before_id and after_id must be IDs of files.")
		}
	}
	// For the oldest clients page is an unknown key.
	if s == shapeLegacy || !v.Has("page") {
		return after, before, nil
	}
	if after != "" || before != "" {
		return "", "", proto.Invalid("page", "page cannot be combined with before_id or after_id.")
	}
	after, err = parsePage(v.Get("page"))
	return after, "", err
}

// parsePage returns the ID of the file after which a page starts.
func parsePage(page string) (string, error) {
	// A cursor is the ID of a file with another prefix, so it needs no state and never expires.
	if !proto.ValidID(pagePrefix, page) {
		return "", proto.Invalid("page", "page is not one that this endpoint gave out as next_page.")
	}
	return proto.FilePrefix + strings.TrimPrefix(page, pagePrefix), nil
}

// nextPage returns the cursor after a page. Pages towards newer files have none.
func nextPage(p files.Page, q files.Query) *string {
	if !p.More || q.BeforeID != "" {
		return nil
	}
	// A page with More has at least one file.
	last := p.Files[len(p.Files)-1].ID
	next := pagePrefix + strings.TrimPrefix(last, proto.FilePrefix)
	return &next
}

// describePage converts a page to a dialect.
func describePage(p files.Page, q files.Query, s shape) any {
	old := listLegacy{Data: make([]any, 0, len(p.Files)), HasMore: p.More}
	for _, f := range p.Files {
		old.Data = append(old.Data, describe(f, s))
	}
	// They stay null for an empty page.
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

// Package approvals is the HTTP edge of what waits for a person's decision: connections of containers to hosts that are
// not listed, calls of tools by code, and runs of stored tools. A person has one list of all, and two verbs.
//
// Calls and runs have routes of their own, too, in package native. Who keeps and decides is in session/asking,
// tools/bridge and tools/toolstore.
package approvals

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"berth/api"
	"berth/api/openapi"
	"berth/api/strictjson"
	"berth/proto"
	"berth/session/asking"
	"berth/tools/bridge"
	"berth/tools/toolstore"
)

// Config is what the edge serves. All fields must be set.
type Config struct {
	Desk   *asking.Desk
	Bridge *bridge.Bridge
	Tools  *toolstore.Store
}

// A source has the approvals of one kind, whose IDs have one prefix.
type source interface {
	waiting(owner string) ([]proto.Approval, error)
	get(owner, id string) (proto.Approval, error)
	approve(ctx context.Context, owner, id string, how proto.Approving) (proto.Approval, error)
	refuse(ctx context.Context, owner, id string, how proto.Refusing) (proto.Approval, error)
}

type edge struct {
	sources map[string]source
}

// New makes the edge.
func New(cfg Config) api.Edge {
	e := edge{map[string]source{proto.AskPrefix: connections{cfg.Desk}, proto.CallPrefix: calls{cfg.Bridge},
		proto.RunPrefix: runs{cfg.Tools}}}
	out := api.Edge{Name: "approvals", Dialect: api.Plain, Browser: true, Prefixes: []string{"/v1/approvals"}}
	for _, r := range e.rows() {
		r.Doc.Tag = "approvals"
		r.Where, r.MaxBodyBytes = api.None, maxBody
		if r.Doc.Body != nil {
			r.Media = []string{"application/json"}
		}
		out.Routes = append(out.Routes, r)
	}
	return out
}

// maxBody bounds a body, in bytes: a reason, escaped.
const maxBody = 16 << 10

// What waits for a decision, newest first.
type approvalPage struct {
	Data    []proto.Approval `json:"data"`
	HasMore bool             `json:"has_more"`
	// Value of after for the next page; null on the last one.
	NextAfter *string `json:"next_after"`
}

// mostListed bounds a list.
const mostListed = 100

var basic = []int{400, 401, 404, 413, 429, 500, 503}

func js(v any) []openapi.Content { return []openapi.Content{{Media: "application/json", Of: v}} }

func (e edge) rows() []api.Route {
	const one = "/v1/approvals/{id}"
	kinds := make([]string, len(proto.ApprovalKinds))
	for i, k := range proto.ApprovalKinds {
		kinds[i] = string(k)
	}
	answer := map[int][]openapi.Content{http.StatusOK: js(proto.Approval{})}
	all := openapi.Operation{ID: "listApprovals", Summary: "List what waits for a decision, newest first.",
		Description: "Connections that wait in containers whose network has ask, calls of tools by code, and runs of " +
			"stored tools.",
		Query: []openapi.Param{
			{Name: "kind", Choices: kinds, Description: "Only approvals of this kind."},
			{Name: "container", Description: "Only approvals of this container."},
			{Name: "limit", Kind: openapi.Whole, Max: mostListed,
				Description: "Maximum length of the page, 1 to 100; 0 is the default, 100."},
			{Name: "after", Description: "ID of an approval, also of a decided one: the page starts after it."},
		},
		Answers: map[int][]openapi.Content{http.StatusOK: js(approvalPage{})},
		Fails:   slices.DeleteFunc(slices.Clone(basic), func(s int) bool { return s == 404 })}
	return []api.Route{
		{Method: "GET", Pattern: "/v1/approvals", Doc: &all, Handle: func(w http.ResponseWriter, r *http.Request,
			c api.Caller) error {
			return e.list(w, r, c, all)
		}},
		{Method: "GET", Pattern: one, Handle: e.get, Doc: &openapi.Operation{ID: "getApproval",
			Summary: "Describe an approval.", Answers: answer, Fails: append([]int{410}, basic...)}},
		{Method: "POST", Pattern: one + "/approve", Handle: decide(e, source.approve), Act: "approval.approve",
			Doc: &openapi.Operation{ID: "approve", Summary: "Approve what waits.", Description: approveMore,
				Body: js(proto.Approving{}), Optional: true, Answers: answer,
				Fails: append([]int{403, 409, 410, 501}, basic...)}},
		{Method: "POST", Pattern: one + "/refuse", Handle: decide(e, source.refuse), Act: "approval.refuse",
			Doc: &openapi.Operation{ID: "refuse", Summary: "Refuse what waits.", Description: refuseMore,
				Body: js(proto.Refusing{}), Optional: true, Answers: answer,
				Fails: append([]int{403, 409, 410}, basic...)}},
	}
}

const approveMore = "Connections go on. With for once, these are those that wait, and others to the same host and " +
	"port until the commands that run now have ended. With for life, host and port become an entry of the " +
	"container's network.allow. A call or a run goes on; for is not for these. The same decision about connections " +
	"once more changes nothing; any other second one is a 409. A decision after the deadline is a 410."

const refuseMore = "Connections are refused, and code gets an error. With for once, others to the same host and port " +
	"are refused until the commands that run now have ended. With for life, host and port become an entry of the " +
	"container's network.deny, and are refused without asking."

func (e edge) list(w http.ResponseWriter, r *http.Request, c api.Caller, o openapi.Operation) error {
	q, err := o.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	found := approvalPage{Data: []proto.Approval{}}
	for _, s := range e.sources {
		waiting, err := s.waiting(c.Owner)
		if err != nil {
			return err
		}
		for _, a := range waiting {
			if (q.Get("kind") == "" || q.Get("kind") == string(a.Kind)) &&
				(q.Get("container") == "" || q.Get("container") == a.ContainerID) {
				found.Data = append(found.Data, a)
			}
		}
	}
	slices.SortFunc(found.Data, newestFirst)
	if id := q.Get("after"); id != "" {
		last, err := e.find(c.Owner, id)
		if err != nil {
			return proto.Invalid("after", "after must be the ID of an approval, not %.80q.", id)
		}
		found.Data = slices.DeleteFunc(found.Data, func(a proto.Approval) bool { return newestFirst(a, last) <= 0 })
	}
	most, _ := strconv.Atoi(q.Get("limit")) // checked, or absent
	if most == 0 {
		most = mostListed
	}
	if found.HasMore = len(found.Data) > most; found.HasMore {
		found.Data = found.Data[:most]
		found.NextAfter = &found.Data[most-1].ID
	}
	return api.JSON(w, http.StatusOK, found)
}

// newestFirst compares approvals for a list. Two of one moment are in the order of their IDs, so that pages agree.
func newestFirst(a, b proto.Approval) int {
	if n := b.CreatedAt.Compare(a.CreatedAt.Time); n != 0 {
		return n
	}
	return strings.Compare(b.ID, a.ID)
}

// find returns an approval of any kind, whether it waits or is decided.
func (e edge) find(owner, id string) (proto.Approval, error) {
	s, err := e.of(id)
	if err != nil {
		return proto.Approval{}, err
	}
	return s.get(owner, id)
}

// of returns the source of an approval.
func (e edge) of(id string) (source, error) {
	for prefix, s := range e.sources {
		if proto.ValidID(prefix, id) {
			return s, nil
		}
	}
	return nil, asking.Unknown(id)
}

func (e edge) get(w http.ResponseWriter, r *http.Request, c api.Caller) error {
	if _, err := (openapi.Operation{}).ParseQuery(r.URL.RawQuery); err != nil {
		return err
	}
	a, err := e.find(c.Owner, r.PathValue("id"))
	if err != nil {
		return err
	}
	return api.JSON(w, http.StatusOK, a)
}

// decide returns the handler of a verb whose body is a B.
func decide[B any](e edge, verb func(source, context.Context, string, string, B) (proto.Approval, error)) api.Handler {
	return func(w http.ResponseWriter, r *http.Request, c api.Caller) error {
		var how B
		if err := strictjson.DecodeOptional(r, &how); err != nil {
			return err
		}
		if _, err := (openapi.Operation{}).ParseQuery(r.URL.RawQuery); err != nil {
			return err
		}
		id := r.PathValue("id")
		s, err := e.of(id)
		if err != nil {
			return err
		}
		a, err := verb(s, r.Context(), c.Owner, id, how)
		if err != nil {
			return err
		}
		note := a.Item
		if a.Decision != nil && a.Decision.Reason != "" {
			note += ": " + a.Decision.Reason
		}
		api.Note(r.Context(), note)
		api.NoteContainer(r.Context(), a.ContainerID)
		return api.JSON(w, http.StatusOK, a)
	}
}

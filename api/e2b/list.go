package e2b

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/proto"
	"berth/session"
)

// maxPage is the longest page of a list.
const maxPage = 100

// A listFilter chooses sandboxes to list.
type listFilter struct {
	metadata map[string]string
	states   []state
	template string
	since    time.Time // started then or later
}

func (f listFilter) matches(info proto.Container) bool {
	return slices.Contains(f.states, stateOf(info)) && proto.HasLabels(info.Labels, f.metadata) &&
		(f.template == "" || settingsOf(info).template == f.template) &&
		!info.CreatedAt.Time.Truncate(time.Microsecond).Before(f.since)
}

// listFilter reads the filter of a query.
func (c *call) listFilter() (f listFilter, err error) {
	if f.metadata, err = metadataQuery(c.query.Get("metadata")); err != nil {
		return f, err
	}
	for _, list := range c.query["state"] {
		for one := range strings.SplitSeq(list, ",") {
			if one = strings.TrimSpace(one); one != string(running) && one != string(paused) {
				return f, proto.Invalid("state", "state %.80q is not running or paused", one)
			}
			f.states = append(f.states, state(one))
		}
	}
	if f.states == nil {
		f.states = []state{running, paused}
	}
	if f.template = c.query.Get("template"); strings.Contains(f.template, ":") {
		return f, proto.Invalid("template", "template must be an ID or an alias, without a tag")
	}
	for _, name := range []string{"startedAfter", "started_after"} {
		if text := c.query.Get(name); text != "" {
			if f.since, err = parseTime(name, text); err != nil {
				return f, err
			}
			f.since = f.since.Truncate(time.Microsecond)
		}
	}
	return f, nil
}

// metadataQuery reads metadata, a query whose keys and values are encoded twice.
func metadataQuery(text string) (map[string]string, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, proto.Invalid("metadata", "metadata must be a query such as key=value&key2=value2, with keys "+
			"and values encoded twice")
	}
	out := map[string]string{}
	for k, v := range values {
		key, err := url.PathUnescape(k)
		value, wrong := url.PathUnescape(v[0])
		if err != nil || wrong != nil {
			return nil, proto.Invalid("metadata", "metadata has a %% that begins no escape")
		}
		out[key] = value
	}
	return out, nil
}

// listRunning lists what runs, for clients of the first generation.
func (e *Edge) listRunning(c *call) (any, error) {
	f, err := c.listFilter()
	if err != nil {
		return nil, err
	}
	f.states = []state{running}
	all, err := e.matching(c.owner, f)
	return listedAll(all), err
}

// listSandboxes lists sandboxes in pages. X-Next-Token begins the next page.
func (e *Edge) listSandboxes(c *call) (any, error) {
	f, err := c.listFilter()
	if err != nil {
		return nil, err
	}
	limit, err := c.whole("limit", maxPage, 1, maxPage)
	if err != nil {
		return nil, err
	}
	order := cmp.Or(c.query.Get("order"), "desc")
	if order != "asc" && order != "desc" {
		return nil, proto.Invalid("order", "order must be asc or desc")
	}
	all, err := e.matching(c.owner, f)
	if err != nil {
		return nil, err
	}
	if slices.Contains(f.states, running) {
		n := 0
		for _, info := range all {
			if stateOf(info) == running {
				n++
			}
		}
		c.w.Header().Set("X-Total-Running", strconv.Itoa(n))
	}
	if order == "asc" {
		slices.Reverse(all)
	}
	if text := c.query.Get("nextToken"); text != "" {
		at, err := parsePlace(text)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(info proto.Container) bool {
			before := placeOfContainer(info).compare(at)
			return before == 0 || order == "asc" && before < 0 || order == "desc" && before > 0
		})
	}
	if int64(len(all)) > limit {
		all = all[:limit]
		c.w.Header().Set("X-Next-Token", placeOfContainer(all[limit-1]).String())
	}
	return listedAll(all), nil
}

// matching returns the containers of an owner that match, the newest first.
func (e *Edge) matching(owner string, f listFilter) (all []proto.Container, err error) {
	for after, more := "", true; more; {
		var page []proto.Container
		page, more, err = e.cfg.Sessions.List(owner, session.Filter{Labels: f.metadata, After: after, Limit: 1000})
		if err != nil {
			return nil, err
		}
		for _, info := range page {
			if after = info.ID; f.matches(info) {
				all = append(all, info)
			}
		}
	}
	slices.SortFunc(all, func(a, b proto.Container) int { return placeOfContainer(b).compare(placeOfContainer(a)) })
	return all, nil
}

func listedAll(all []proto.Container) []listed {
	out := make([]listed, 0, len(all))
	for _, info := range all {
		out = append(out, listedOf(info))
	}
	return out
}

// A place is where a container stands in a list. It does not change while others come and go.
type place struct {
	start time.Time
	id    string
}

func placeOfContainer(info proto.Container) place { return place{info.CreatedAt.Time, info.ID} }

func (p place) compare(o place) int {
	return cmp.Or(p.start.Compare(o.start), strings.Compare(p.id, o.id))
}

// String spells a place for a client.
func (p place) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(p.start.Format(time.RFC3339Nano) + " " + p.id))
}

// parsePlace reads a place that String spelled.
func parsePlace(text string) (p place, err error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	at, id, ok := strings.Cut(string(b), " ")
	if err == nil {
		p.start, err = time.Parse(time.RFC3339Nano, at)
	}
	if p.id = id; err != nil || !ok {
		return p, proto.Invalid("nextToken", "nextToken is not the X-Next-Token of an answer")
	}
	return p, nil
}

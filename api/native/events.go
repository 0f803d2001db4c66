package native

import (
	"cmp"
	"net/http"

	"berth/api"
	"berth/api/openapi"
	"berth/events"
	"berth/proto"
)

// eventRows are the routes of events. A daemon without an audit log has none.
func (e *edge) eventRows() []row {
	if e.Events == nil {
		return nil
	}
	return []row{
		{"GET", "/v1/events", get(e.readEvents), openapi.Operation{ID: "readEvents",
			Summary: "Read or follow what happens to containers, commands, files and approvals.",
			Fails:   also(basic, 403),
			Description: "Events are in the order in which they happened, and each has an ID. Without after and " +
				"since, the answer has the newest. With Accept: text/event-stream it continues with new events until " +
				"the client goes away, and without after, since and Last-Event-ID it begins with the next event. A " +
				"client that was away sends the ID of its last event as Last-Event-ID or after and misses nothing, " +
				"also after a restart of the daemon. If some events are no longer there, the first is a gap that " +
				"says so: the daemon reads at most the newest 256 MiB of its log. An admin sees the events of all " +
				"owners, others their own.",
			Query: []openapi.Param{
				{Name: "container", Pattern: "^(container_[0-9A-Za-z]{22})?$", Description: "Only events of this " +
					"container."},
				{Name: "type", Repeat: true, Description: "Only events of this type, such as exec.ended; with a dot " +
					"at the end, of all types with this prefix: exec. May be repeated; gaps always come."},
				{Name: "owner", Description: "Only events of this owner; for others than admins, the own one."},
				{Name: "since", Kind: openapi.Date, Description: "Begin with the first event from this time on, RFC " +
					"3339."},
				{Name: "after", Pattern: eventIDPattern, Description: "ID of an event: begin behind it."},
				{Name: "limit", Kind: openapi.Whole, Max: events.MaxPage, Description: "Maximum length of the page, " +
					"1 to 1000; 0 is the default, 100. Ignored for a stream."},
			},
			Header: []openapi.Param{{Name: lastEvent.Name, Pattern: eventIDPattern,
				Description: lastEvent.Description}},
			Answers: withEvents(answers(http.StatusOK, js(page[proto.FeedEvent]{})), proto.FeedEvent{})}},
	}
}

const eventIDPattern = "^([0-9]{1,18}-[0-9a-f]{8}-[0-9]{1,2})?$"

func (e *edge) readEvents(c *call) (any, error) {
	caller := proto.CallerOf(c.ctx())
	f := events.Filter{Owner: c.query.Get("owner"), Container: c.query.Get("container"), Types: c.query["type"]}
	switch {
	case caller.Admin:
	case f.Owner != "" && f.Owner != c.owner:
		return nil, proto.Errorf(proto.PermissionDenied, "", "owner", "Only an admin's API key reads the events of "+
			"another owner; leave owner out.")
	default:
		f.Owner = c.owner
	}
	if f.Container != "" && !proto.ValidID(proto.ContainerPrefix, f.Container) {
		return nil, proto.Invalid("container", "container %.80q is not the ID of a container", f.Container)
	}
	from := events.Start{After: cmp.Or(c.r.Header.Get(lastEvent.Name), c.query.Get("after"))}
	if from.After == "" {
		from.Since = c.moment("since")
	} else if c.query.Has("since") && c.query.Has("after") {
		return nil, proto.Invalid("since", "The query has both after and since; send one of them.")
	}
	if c.wantsEvents() {
		return nil, e.followEvents(c, f, from)
	}
	limit := cmp.Or(int(c.whole("limit")), events.DefaultPage)
	list, more, err := e.Events.Read(c.ctx(), f, from, limit)
	return listPart(list, more, err, func(e *proto.FeedEvent) *string { return &e.ID })
}

// followEvents runs until the client or the daemon leaves, which is a failure of neither.
func (e *edge) followEvents(c *call, f events.Filter, from events.Start) error {
	follower, err := e.Events.Follow(c.ctx(), f, from)
	if err != nil {
		return err
	}
	defer follower.Close()
	es := api.NewEventStream(c.w, c.r)
	defer es.Close()
	err = follower.Each(es.Context(), func(event proto.FeedEvent) error {
		return es.SendID(event.ID, string(event.Type), event)
	})
	if api.IsDraining(c.ctx()) {
		return nil
	}
	return err
}

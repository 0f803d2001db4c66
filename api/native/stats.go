package native

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"berth/api"
	"berth/api/openapi"
	"berth/proto"
	"berth/session"
	"berth/session/stats"
)

// maxWatched bounds how many containers a request for stats may name.
const maxWatched = 100

// statRows are the routes of what containers use.
func (e *edge) statRows() []row {
	if e.Stats == nil {
		return nil
	}
	every := openapi.Param{Name: "interval", Kind: openapi.Whole, Max: 60, Description: "Seconds between two " +
		"measurements of a stream, 1 to 60; 0 is the default, 2."}
	const streams = "With Accept: text/event-stream the answer continues with a new measurement each interval. " +
		"Measuring neither wakes a container nor keeps it from being paused or stopped. "
	return []row{
		{"GET", "/v1/containers/{id}/stats", getIn(e, e.containerStats), openapi.Operation{ID: "getStats",
			Summary: "Get what a container uses, now and over the last hour.", Fails: inContainer,
			Description: streams + "The daemon keeps samples of an hour in memory: every 5 seconds while something " +
				"happens in the container, down to one a minute while nothing does, and none while it is stopped. " +
				"They end with the daemon.",
			Query: []openapi.Param{
				{Name: "since", Kind: openapi.Date, Description: "Only samples from this time on, RFC 3339."},
				{Name: "until", Kind: openapi.Date, Description: "Only samples before this time, RFC 3339."}, every},
			Answers: withEvents(answers(http.StatusOK, js(containerStats{})), proto.Stats{})}},
		{"GET", "/v1/stats", get(e.listStats), openapi.Operation{ID: "listStats",
			Summary: "Get what the running containers use now.", Fails: inContainer,
			Description: streams + "Each event has all of them.",
			Query: []openapi.Param{{Name: "container", Repeat: true, Description: "Only this container, also if it " +
				"is stopped. May be repeated, up to 100 times."}, every},
			Answers: withEvents(answers(http.StatusOK, js(page[proto.Stats]{})), page[proto.Stats]{})}},
	}
}

// What a container uses.
type containerStats struct {
	Current proto.Stats   `json:"current"`
	Data    []proto.Stats `json:"data"` // Samples, oldest first.
}

func (e *edge) containerStats(c *call, s *session.Session) (any, error) {
	if !c.wantsEvents() {
		one := s.Info()
		return containerStats{e.Stats.Now(one), e.Stats.History(one, c.moment("since"), c.moment("until"))}, nil
	}
	var last proto.Stats
	return nil, c.everyInterval(func(es *api.EventStream) error {
		last = e.Stats.Since(s.Info(), last)
		if err := es.Send("stats", last); err != nil {
			return err
		}
		if last.State == proto.StateExpired {
			return context.Canceled
		}
		return nil
	})
}

func (e *edge) listStats(c *call) (any, error) {
	names := c.query["container"]
	if len(names) > maxWatched {
		return nil, proto.Invalid("container", "The query names %d containers; %d is the limit.", len(names),
			maxWatched)
	}
	before := map[string]proto.Stats{}
	now, err := e.statsOf(c.owner, names, before)
	if err != nil || !c.wantsEvents() {
		return page[proto.Stats]{Data: now}, err
	}
	return nil, c.everyInterval(func(es *api.EventStream) error {
		now, err := e.statsOf(c.owner, names, before)
		if err == nil {
			err = es.Send("stats", page[proto.Stats]{Data: now})
		}
		return err
	})
}

// statsOf measures the named containers of an owner, or all that run, and replaces what was measured before.
func (e *edge) statsOf(owner string, names []string, before map[string]proto.Stats) ([]proto.Stats, error) {
	list := []proto.Stats{}
	add := func(one proto.Container) {
		now := e.Stats.Since(one, before[one.ID])
		before[one.ID] = now
		list = append(list, now)
	}
	for _, name := range names {
		s, err := e.Sessions.Get(owner, name)
		if err != nil {
			return nil, err
		}
		add(s.Info())
	}
	if len(names) > 0 {
		return list, nil
	}
	for f := (session.Filter{Limit: 1000}); ; {
		part, more, err := e.Sessions.List(owner, f)
		for _, one := range part {
			if stats.Measured(one) {
				add(one)
			}
		}
		if err != nil || !more {
			return list, err
		}
		f.After = part[len(part)-1].ID
	}
}

// everyInterval calls fn at once and then once each interval, until it fails or the client or the daemon leaves.
func (c *call) everyInterval(fn func(*api.EventStream) error) error {
	es := api.NewEventStream(c.w, c.r)
	defer es.Close()
	tick := time.NewTicker(time.Duration(cmp.Or(c.whole("interval"), 2)) * time.Second)
	defer tick.Stop()
	for {
		if err := fn(es); err != nil {
			return nil // the client has gone, or the container has: the stream ends
		}
		select {
		case <-tick.C:
		case <-es.Context().Done():
			return nil
		}
	}
}

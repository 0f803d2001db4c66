package native

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"berth/api"
	"berth/events"
	"berth/proto"
	protosse "berth/proto/sse"
	"berth/session"
	"berth/state/audit"
	"berth/test/sessiontest"
)

// eventSite serves a core whose actions are in an audit log with a feed.
func eventSite(t *testing.T) *site {
	var log *audit.Log
	core := session.Config{Audit: func(e proto.AuditEntry) { log.Append(e) }}
	stack := sessiontest.New(t, core)
	log = auditLog(t, stack)
	return siteOver(t, stack, core, func(cfg *Config) { cfg.Events = events.New(log) },
		func(cfg *api.Config) { cfg.Audit = log })
}

// types returns the types of events.
func types(list []proto.FeedEvent) (all []string) {
	for _, e := range list {
		all = append(all, string(e.Type))
	}
	return all
}

// A watcher sees what happens to a container as it happens, in order, and continues where it was cut off.
func TestEventsOfAContainer(t *testing.T) {
	s := eventSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err := s.client.Do(s.request(t, ctx, "GET", "/v1/events", nil, "Accept", eventType))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	stream := protosse.NewReader(res.Body, protosse.Options{})
	next := func(r *protosse.Reader, want string) (id, text string) {
		t.Helper()
		e, err := r.Next()
		if err != nil || e.Name != want || !strings.Contains(string(e.Data), fmt.Sprintf(`"id":%q`, e.ID)) {
			t.Fatalf("%q %q %s %v, want %s", e.ID, e.Name, e.Data, err, want)
		}
		return e.ID, string(e.Data)
	}
	at := s.container(t)
	made, _ := next(stream, "container.started")
	if _, text := next(stream, "container.created"); !strings.Contains(text, `"generation":1`) {
		t.Error(text)
	}
	pid := fmt.Sprintf(`"pid":%d`, s.run(t, at, "echo hi >made; exit 3").Exec.PID)
	if _, text := next(stream, "exec.started"); !strings.Contains(text, pid) {
		t.Errorf("%s, want %s", text, pid)
	}
	_, text := next(stream, "exec.ended")
	if !strings.Contains(text, pid) || !strings.Contains(text, `"return_code":3`) || !strings.Contains(text, `"reason":"exit"`) ||
		!strings.Contains(text, "echo hi") {
		t.Error(text)
	}
	if _, text := next(stream, "files.changed"); !strings.Contains(text, `"paths":["made"]`) {
		t.Error(text)
	}
	s.want(t, "POST", at+"/stop", nil, http.StatusOK, nil)
	next(stream, "container.stopped")

	res, err = s.client.Do(s.request(t, ctx, "GET", "/v1/events?type=exec.", nil, "Accept", eventType, "Last-Event-ID",
		made))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	again := protosse.NewReader(res.Body, protosse.Options{})
	next(again, "exec.started")
	next(again, "exec.ended")

	var page page[proto.FeedEvent]
	s.want(t, "GET", "/v1/events?after="+made+"&limit=2", nil, http.StatusOK, &page)
	if !slices.Equal(types(page.Data), []string{"container.created", "exec.started"}) || !page.HasMore ||
		*page.NextAfter != page.Data[1].ID {
		t.Errorf("%+v", page)
	}
	s.want(t, "GET", "/v1/events?limit=1", nil, http.StatusOK, &page)
	if !slices.Equal(types(page.Data), []string{"container.stopped"}) {
		t.Errorf("%v", types(page.Data))
	}
	for query, status := range map[string]int{
		"type=exec": 400, "after=1-2-3": 400, "limit=1001": 400, "container=x": 400,
		"since=2026-01-02T15:04:05Z&after=" + made: 400,
	} {
		if res, text := s.do(t, "GET", "/v1/events?"+query, nil); res.StatusCode != status {
			t.Errorf("%s: %d %s", query, res.StatusCode, text)
		}
	}
}

// A key that is no admin's sees its owner's events alone.
func TestEventsAreTheOwners(t *testing.T) {
	s := eventSite(t)
	at := s.container(t)
	other, err := s.Keys.Create(proto.Caller{}, proto.CreateKey{Owner: "other"})
	if err != nil {
		t.Fatal(err)
	}
	for query, status := range map[string]int{"": 200, "?owner=other": 200, "?owner=" + sessiontest.Owner: 403,
		"?container=" + strings.TrimPrefix(at, "/v1/containers/"): 200} {
		res, text := s.do(t, "GET", "/v1/events"+query, nil, "X-Api-Key", other.Secret)
		if res.StatusCode != status || strings.Contains(text, "container.created") {
			t.Errorf("%q: %d %s", query, res.StatusCode, text)
		}
	}
	if res, text := s.do(t, "GET", "/v1/events?owner="+sessiontest.Owner, nil); res.StatusCode != 200 ||
		!strings.Contains(text, "container.created") {
		t.Errorf("an admin: %d %s", res.StatusCode, text)
	}
}

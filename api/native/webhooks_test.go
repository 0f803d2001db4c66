package native

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"berth/proto"
)

// What happens to a container is posted to its owner's webhook, which the owner alone sees, changes and removes.
func TestWebhooks(t *testing.T) {
	s := eventSite(t)
	got := make(chan proto.WebhookMessage, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m proto.WebhookMessage
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		got <- m
	}))
	defer receiver.Close()
	var made proto.NewWebhook
	s.want(t, "POST", "/v1/webhooks", proto.CreateWebhook{URL: receiver.URL, Types: []string{"exec.ended"}},
		http.StatusCreated, &made)
	s.run(t, s.container(t), "echo hello")
	if m := <-got; m.Type != proto.FeedExecEnded || !strings.Contains(m.Data.Exec.Command, "echo hello") {
		t.Errorf("%+v", m)
	}
	other, err := s.Keys.Create(proto.Caller{}, proto.CreateKey{Owner: "other"})
	if err != nil {
		t.Fatal(err)
	}
	at := "/v1/webhooks/" + made.ID
	for _, method := range []string{"GET", "DELETE"} {
		if res, text := s.do(t, method, at, nil, "X-Api-Key", other.Secret); res.StatusCode != 404 {
			t.Errorf("%s by another owner: %d %s", method, res.StatusCode, text)
		}
	}
	if res, text := s.do(t, "GET", at, nil); res.StatusCode != 200 || strings.Contains(text, made.Secret) {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	var w proto.Webhook
	s.want(t, "PATCH", at, `{"enabled":false}`, http.StatusOK, &w)
	if w.Enabled || len(w.Deliveries) != 1 || w.Deliveries[0].Status != 200 {
		t.Errorf("%+v", w)
	}
	s.want(t, "PATCH", at, `{"url":"ftp://x"}`, http.StatusBadRequest, nil)
	s.want(t, "DELETE", at, nil, http.StatusOK, nil)
	s.want(t, "GET", at, nil, http.StatusNotFound, nil)
}

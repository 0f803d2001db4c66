package api_test

import (
	"net/http"
	"strings"
	"testing"

	"berth/proto"
	"berth/session"
)

// Calls of tools and runs of stored tools wait in the one list of approvals. They are decided about there as by their
// own routes.
func TestApprovalsOfCallsAndRuns(t *testing.T) {
	h := newHouse(t, session.Config{})
	ann := h.guest(t, proto.CreateKey{Owner: "ann"})
	hers := ann.settle(t)
	second := do[proto.Container](t, ann, "POST", "/v1/containers", "").ID
	refused := ann.parkCall(t, second)
	list := func(query string) []proto.Approval {
		t.Helper()
		return do[struct{ Data []proto.Approval }](t, ann, "GET", "/v1/approvals"+query, nil).Data
	}
	for kind, id := range map[string]string{"tool_call": hers.call, "tool_run": hers.run, "network": hers.ask} {
		found := false
		for _, a := range list("?kind=" + kind) {
			if string(a.Kind) != kind || a.State != proto.ApprovalParked {
				t.Errorf("%+v in the list of %s", a, kind)
			}
			found = found || a.ID == id
		}
		if !found {
			t.Errorf("%s %s is not in the list", kind, id)
		}
	}
	for _, a := range list("?container=" + hers.container + "&kind=tool_call") {
		if a.ContainerID != hers.container || a.Item != "pay" || a.ExpiresAt == nil {
			t.Errorf("%+v", a)
		}
	}
	decide := func(id, verb, body string, want int) proto.Approval {
		t.Helper()
		res, text := ann.send(t, "POST", "/v1/approvals/"+id+"/"+verb, body)
		if res.StatusCode != want {
			t.Fatalf("%s %s is answered %d %s", verb, id, res.StatusCode, text)
		}
		if want >= 300 {
			return proto.Approval{}
		}
		return do[proto.Approval](t, ann, "GET", "/v1/approvals/"+id, nil)
	}
	for _, id := range []string{hers.call, hers.run} {
		decide(id, "approve", `{"for": "life"}`, http.StatusBadRequest)
	}
	if a := decide(hers.call, "approve", "{}", http.StatusOK); a.State != proto.ApprovalApproved || a.Decision == nil ||
		a.Decision.By != ann.id {
		t.Errorf("%+v", a)
	}
	decide(hers.call, "refuse", `{"reason": "too late"}`, http.StatusConflict)
	for id, reason := range map[string]string{refused: "too much", hers.run: "not now"} {
		a := decide(id, "refuse", `{"reason": "`+reason+`"}`, http.StatusOK)
		if a.State != proto.ApprovalRefused || a.Decision == nil || a.Decision.Reason != reason {
			t.Errorf("%+v", a)
		}
		decide(id, "approve", "{}", http.StatusConflict)
	}
	call := do[proto.ToolCall](t, ann, "GET", "/v1/containers/"+second+"/tool_calls/"+refused, nil)
	if call.State != proto.CallRefused || call.Decision == nil || call.Decision.Reason != "too much" {
		t.Errorf("its own route says %+v", call)
	}
	for _, a := range list("") {
		if a.ID == hers.call || a.ID == refused || a.ID == hers.run {
			t.Errorf("%s waits still", a.ID)
		}
	}
	bob := h.guest(t, proto.CreateKey{Owner: "bob"})
	if _, text := bob.send(t, "GET", "/v1/approvals", nil); strings.Contains(text, hers.call) {
		t.Errorf("bob's list has hers: %s", text)
	}
}

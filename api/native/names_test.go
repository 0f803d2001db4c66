package native

import (
	"encoding/json"
	"testing"

	"berth/proto"
	"berth/tools/tooluse"
)

// TestNameInPlaceOfID checks that a name stands wherever an ID does: in paths of all kinds and in bodies.
func TestNameInPlaceOfID(t *testing.T) {
	s := newSite(t)
	_, body := s.do(t, "POST", "/v1/containers", proto.CreateContainer{Name: "web"})
	var c proto.Container
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		method, path string
		body         any
		status       int
	}{
		{"GET", "", nil, 200},
		{"POST", "/exec", proto.Cmd{Command: "true"}, 200},
		{"GET", "/execs", nil, 200},
		{"PUT", "/fs/content?path=f", "text", 200},
		{"GET", "/fs/content?path=f", nil, 200},
		{"GET", "/jobs", nil, 200},
		{"GET", "/contexts", nil, 200},
		{"POST", "/stop", nil, 200},
		{"POST", "/reset", nil, 200},
		{"PATCH", "", proto.ChangeContainer{Name: new(string)}, 200}, // the last: it takes the name away
		{"GET", "", nil, 404},
	} {
		if r.path == "/contexts" {
			_, result := s.do(t, "POST", "/v1/tool_use", toolUseOnce{Container: "web", Use: tooluse.Use{Type: "tool_use",
				ID: "t", Name: "bash", Input: []byte(`{"command":"echo $HOSTNAME"}`)}})
			if idOf(result) != c.ID {
				t.Errorf("the block ran in %s", result)
			}
		}
		if res, body := s.do(t, r.method, "/v1/containers/web"+r.path, r.body); res.StatusCode != r.status {
			t.Errorf("%s %s: %d %s", r.method, r.path, res.StatusCode, body)
		}
	}
}

// TestExistingOverHTTP checks that a create answers an existing container with another status, and says what differs.
func TestExistingOverHTTP(t *testing.T) {
	s := newSite(t)
	for i, status := range []int{201, 200} {
		res, body := s.do(t, "POST", "/v1/containers", proto.CreateContainer{Name: "web", Existing: true,
			IdleTimeoutSeconds: int64(60 + i)})
		var c proto.Container
		if err := json.Unmarshal([]byte(body), &c); err != nil || res.StatusCode != status {
			t.Fatalf("%d %s", res.StatusCode, body)
		}
		if found := i > 0; c.Existing != found || len(c.Differences) != i {
			t.Errorf("existing %v, %+v", c.Existing, c.Differences)
		}
	}
}

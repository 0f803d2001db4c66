package approvals_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"berth/proto"
	"berth/test/apitest"
	"berth/test/sessiontest"
)

// The pages of the list have each approval once, newest first, also where one is decided between two pages.
func TestPages(t *testing.T) {
	s := apitest.Serve(t, nil)
	ask := func(method, path, body string, status int, answer any) {
		t.Helper()
		req, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Api-Key", sessiontest.Secret)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err == nil && answer != nil {
			err = json.Unmarshal(text, answer)
		}
		if err != nil || res.StatusCode != status {
			t.Fatalf("%s %s: %d %v %s", method, path, res.StatusCode, err, text)
		}
	}
	ask("POST", "/v1/tools", `{"name":"pay","tool_type":"code_runner","approval_action":"review","configuration":
		{"type":"CodeRunner","runtime":"python","code":"def run(input):\n    return {}"}}`, 201, nil)
	var runs []string
	for range 5 {
		var run proto.ToolRun
		ask("POST", "/v1/tools/pay/run", `{"input":{}}`, 202, &run)
		runs = append(runs, run.ID)
	}
	slices.Reverse(runs)
	type page struct {
		Data      []proto.Approval
		HasMore   bool    `json:"has_more"`
		NextAfter *string `json:"next_after"`
	}
	ids := func(p page) (list []string) {
		for _, a := range p.Data {
			list = append(list, a.ID)
		}
		return list
	}
	var first, second page
	ask("GET", "/v1/approvals?limit=2", "", 200, &first)
	if !slices.Equal(ids(first), runs[:2]) || !first.HasMore || first.NextAfter == nil || *first.NextAfter != runs[1] {
		t.Errorf("%+v, want %v", first, runs[:2])
	}
	ask("POST", "/v1/approvals/"+runs[1]+"/refuse", "{}", 200, nil)
	ask("GET", "/v1/approvals?limit=3&after="+*first.NextAfter, "", 200, &second)
	if !slices.Equal(ids(second), runs[2:]) || second.HasMore || second.NextAfter != nil {
		t.Errorf("%+v, want %v", second, runs[2:])
	}
	for _, bad := range []string{"x", "run_0000000000000000000000", "container_0000000000000000000000"} {
		ask("GET", "/v1/approvals?after="+bad, "", 400, nil)
	}
}

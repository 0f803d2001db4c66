package anthropic

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"berth/files"
	"berth/proto"
)

// some uploads n files and returns their IDs, newest first.
func (d *desk) some(t *testing.T, n int) []string {
	t.Helper()
	ids := []string{}
	for i := range n {
		ids = append(ids, d.upload(t, filePart("x", "text/plain", fmt.Sprint(i))).wantOK(t).str("id"))
	}
	slices.Reverse(ids)
	return ids
}

func TestRows16to18ListGA(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	empty := d.do(t, "GET", "/v1/files", nil).wantOK(t)
	if strings.TrimSpace(string(empty.body)) != `{"data":[],"next_page":null}` {
		t.Fatalf("%s", empty.body)
	}
	ids := d.some(t, 23)
	first := d.do(t, "GET", "/v1/files", nil).wantOK(t)
	if !slices.Equal(first.ids(), ids[:20]) || keysOf(first.json) != "data next_page" {
		t.Fatalf("%s", first.body)
	}
	var walked []string
	for path := "/v1/files?limit=10"; ; {
		a := d.do(t, "GET", path, nil).wantOK(t)
		walked = append(walked, a.ids()...)
		if a.json["next_page"] == nil {
			break
		}
		if !strings.HasPrefix(a.str("next_page"), "page_") {
			t.Fatalf("%s", a.body)
		}
		path = "/v1/files?limit=10&page=" + a.str("next_page")
	}
	if !slices.Equal(walked, ids) {
		t.Fatalf("walked %v\nwant %v", walked, ids)
	}
	some := d.do(t, "GET", "/v1/files?ids%5B%5D="+ids[3]+"&ids%5B%5D="+ids[1]+"&ids%5B%5D="+ids[3]+
		"&ids%5B%5D=file_0000000000000000000000&ids%5B%5D=..%2fx", nil).wantOK(t)
	if !slices.Equal(some.ids(), []string{ids[1], ids[3]}) || some.json["next_page"] != nil {
		t.Fatalf("%s", some.body)
	}
	many := "/v1/files?"
	for i := range 101 {
		many += fmt.Sprintf("ids[]=file_%022d&", i)
	}
	d.do(t, "GET", strings.TrimSuffix(many, "ids[]=file_0000000000000000000100&"), nil).wantOK(t)
	page := first.str("next_page")
	for _, bad := range []string{many, "/v1/files?limit=0", "/v1/files?limit=1001", "/v1/files?limit=-1",
		"/v1/files?limit=ten", "/v1/files?limit=",
		"/v1/files?page=", "/v1/files?page=page_", "/v1/files?page=" + ids[0],
		"/v1/files?page=page_..%2f..%2f..%2f..%2f..%2f..%2f..x",
		"/v1/files?before_id=" + ids[0], "/v1/files?after_id=" + ids[0],
		"/v1/files?ids[]=" + ids[0] + "&limit=5", "/v1/files?ids[]=" + ids[0] + "&page=" + page} {
		d.do(t, "GET", bad, nil).wantError(t, 400, "invalid_request_error", "")
	}
	d.do(t, "GET", "/v1/files?limit=1000", nil).wantOK(t)
	// Of a beta, and here an unknown key like any other.
	if a := d.do(t, "GET", "/v1/files?scope_id=container_1", nil).wantOK(t); !slices.Equal(a.ids(), ids[:20]) {
		t.Errorf("scope_id without a beta: %s", a.body)
	}
}

func TestRows19and20ListBetas(t *testing.T) {
	d := newDesk(t, files.Config{}, false)
	ids := d.some(t, 6)
	made := d.produce(t, "png")
	ids = append([]string{made.ID}, ids...)
	const legacy, hybrid = "files-api-2025-04-14", "managed-agents-2026-04-01"
	get := func(query, beta string) answer {
		return d.do(t, "GET", "/v1/files?beta=true&"+query, nil, "anthropic-beta", beta).wantOK(t)
	}
	for _, beta := range []string{legacy, hybrid} {
		var walked []string
		for query := "limit=3"; ; {
			a := get(query, beta)
			walked = append(walked, a.ids()...)
			if n := len(a.ids()); a.str("first_id") != a.ids()[0] || a.str("last_id") != a.ids()[n-1] {
				t.Fatalf("%s", a.body)
			}
			if a.json["has_more"] == false {
				break
			}
			query = "limit=3&after_id=" + a.str("last_id")
		}
		if !slices.Equal(walked, ids) {
			t.Fatalf("%s walked %v\nwant %v", beta, walked, ids)
		}
		before := get("limit=2&before_id="+ids[4], beta)
		if !slices.Equal(before.ids(), ids[2:4]) || before.json["has_more"] != true {
			t.Fatalf("%s", before.body)
		}
		if a := get("scope_id=container_1", beta); !slices.Equal(a.ids(), ids[:1]) {
			t.Fatalf("%s", a.body)
		}
		if a := get("after_id="+ids[6], beta); a.json["first_id"] != nil || a.json["last_id"] != nil ||
			len(a.ids()) != 0 {
			t.Fatalf("%s", a.body)
		}
		d.do(t, "GET", "/v1/files?after_id=x", nil, "anthropic-beta", beta).wantError(t, 400, "invalid_request_error",
			"")
		d.do(t, "GET", "/v1/files?after_id="+ids[0]+"&before_id="+ids[1], nil, "anthropic-beta", beta).wantError(
			t, 400, "invalid_request_error", "")
	}
	entry := func(a answer) string { return keysOf(a.json["data"].([]any)[0].(map[string]any)) }
	old := get("", legacy)
	if keysOf(old.json) != "data first_id has_more last_id" || strings.Contains(entry(old), "expires_at") {
		t.Fatalf("%s", old.body)
	}
	both := get("limit=2", hybrid)
	if keysOf(both.json) != "data first_id has_more last_id next_page" ||
		!strings.Contains(entry(both), "expires_at") ||
		!strings.Contains(string(both.body), `"scope":{"type":"session","id":"container_1"}`) {
		t.Fatalf("%s", both.body)
	}
	if a := get("limit=2&page="+both.str("next_page"), hybrid); !slices.Equal(a.ids(), ids[2:4]) {
		t.Fatalf("%s", a.body)
	}
	if a := get("", hybrid+","+legacy); keysOf(a.json) != "data first_id has_more last_id" {
		t.Fatalf("both betas: %s", a.body)
	}
}

func FuzzParsePage(f *testing.F) {
	for _, s := range []string{"page_0000000000000000000000", "page_", "", "file_0000000000000000000000",
		"page_../../../../../../../../", "page_000000000000000000000\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, page string) {
		id, err := parsePage(page)
		if (err == nil) != proto.ValidID(proto.FilePrefix, id) {
			t.Fatalf("%q became %q, %v", page, id, err)
		}
		if err == nil && *nextPage(files.Page{Files: []proto.StoredFile{{ID: id}}, More: true}, files.Query{}) != page {
			t.Fatalf("%q does not survive a round trip", page)
		}
	})
}

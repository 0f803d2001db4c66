package anthropic

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"berth/api"
	"berth/gateway/messages"
	"berth/gateway/messages/batches"
	"berth/gateway/upstream"
	"berth/state/ledger"
)

// A batcher is an upstream with message batches and models.
type batcher struct {
	*httptest.Server
	name    string
	batches []string // IDs, newest first
	created []string // bodies
	keys    []string // of all requests
}

func newBatcher(t *testing.T, name string) *batcher {
	b := &batcher{name: name}
	describe := func(id string) string {
		return fmt.Sprintf(`{"id":%q,"type":"message_batch","processing_status":"ended","results_url":"https://elsewhere.example/%s"}`,
			id, id)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages/batches", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.created = append(b.created, string(body))
		b.batches = append([]string{fmt.Sprintf("msgbatch_%s%d", name, len(b.batches))}, b.batches...)
		fmt.Fprint(w, describe(b.batches[0]))
	})
	mux.HandleFunc("GET /v1/messages/batches", func(w http.ResponseWriter, r *http.Request) {
		var list []string
		for _, id := range b.batches {
			list = append(list, describe(id))
		}
		fmt.Fprintf(w, `{"data":[%s],"has_more":false,"first_id":null,"last_id":null,"limit":%q}`, strings.Join(list, ","),
			r.FormValue("limit"))
	})
	mux.HandleFunc("/v1/messages/batches/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			fmt.Fprintf(w, `{"id":%q,"type":"message_batch_deleted"}`, r.PathValue("id"))
			return
		}
		fmt.Fprint(w, describe(r.PathValue("id")))
	})
	mux.HandleFunc("POST /v1/messages/batches/{id}/cancel", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, describe(r.PathValue("id")))
	})
	mux.HandleFunc("GET /v1/messages/batches/{id}/results", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-jsonl")
		fmt.Fprintf(w, "{\"custom_id\":\"a\",\"result\":{\"type\":\"canceled\"},\"of\":%q}\n", r.PathValue("id"))
	})
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.keys = append(b.keys, r.Header.Get("X-Api-Key")+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(b.Close)
	return b
}

// serveUpstreams serves the edge over upstreams, without code execution.
func serveUpstreams(t *testing.T, list ...upstream.Config) *desk {
	t.Helper()
	db, err := ledger.Open(filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for i := range list {
		list[i].Own = func(key string) bool { return key == annKey || key == bobKey }
	}
	set, err := upstream.Open(list, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	service := messages.New(messages.Config{Upstreams: set})
	srv, err := api.New(api.Config{Auth: twoKeys{}, Edges: []api.Edge{New(Config{Messages: service,
		Batches: batches.New(batches.Config{Upstreams: set, Ledger: db, Messages: service})})}})
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{Server: httptest.NewServer(srv)}
	t.Cleanup(d.Close)
	return d
}

// batchOf is the body of a batch with a request for each model.
func batchOf(models ...string) *strings.Reader {
	var list []string
	for i, m := range models {
		list = append(list, fmt.Sprintf(
			`{"custom_id":"%d","params":{"model":%q,"max_tokens":9,"messages":[{"role":"user","content":"x"}]}}`, i, m))
	}
	return strings.NewReader(`{"requests":[` + strings.Join(list, ",") + `]}`)
}

// TestBatchesBelongToTheirOwners checks that callers who share the operator's key at an upstream do not share batches.
func TestBatchesBelongToTheirOwners(t *testing.T) {
	one, two := newBatcher(t, "one"), newBatcher(t, "two")
	d := serveUpstreams(t, upstream.Config{URL: one.URL, Key: "sk-operator"}, upstream.Config{URL: two.URL,
		Key: "sk-operator", Prefixes: []string{"two/"}}, upstream.Config{URL: "http://127.0.0.1:1",
		Kind: upstream.KindOpenAI, Prefixes: []string{"chat/"}})
	const all = "/v1/messages/batches"
	bob := []string{"Authorization", "Bearer " + bobKey}
	d.do(t, "GET", all+"?limit=1", nil).wantOK(t) // how applications try whether the API works
	first := d.do(t, "POST", all, batchOf("m", "n")).wantOK(t)
	second := d.do(t, "POST", all, batchOf("two/m")).wantOK(t)
	theirs := d.do(t, "POST", all, batchOf("m"), bob...).wantOK(t).str("id")
	if len(two.created) != 1 || !strings.Contains(two.created[0], `"model":"m"`) || len(one.created) != 2 {
		t.Errorf("%q, %q", one.created, two.created)
	}
	for _, id := range []string{first.str("id"), second.str("id")} {
		a := d.do(t, "GET", all+"/"+id, nil).wantOK(t)
		if want := d.URL + all + "/" + id + "/results"; a.str("results_url") != want {
			t.Errorf("%s, want %s", a.str("results_url"), want)
		}
		if b := d.do(t, "GET", all+"/"+id+"/results", nil).wantOK(t); !strings.Contains(string(b.body), `"of":"`+id) {
			t.Errorf("%s", b.body)
		}
		d.do(t, "POST", all+"/"+id+"/cancel", nil).wantOK(t)
	}
	for _, method := range []string{"GET", "DELETE"} {
		d.do(t, method, all+"/"+theirs, nil).wantError(t, 404, "not_found_error", "")
	}
	d.do(t, "GET", all+"/"+theirs+"/results", nil).wantError(t, 404, "not_found_error", "")
	d.do(t, "POST", all+"/"+theirs+"/cancel", nil).wantError(t, 404, "not_found_error", "")
	d.do(t, "GET", all+"/..%2F..%2Fmodels", nil).wantError(t, 404, "not_found_error", "")
	want := []string{second.str("id"), first.str("id")}
	if got := d.do(t, "GET", all, nil).wantOK(t).ids(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", got, want)
	}
	page := d.do(t, "GET", all+"?limit=1&after_id="+want[0], nil).wantOK(t)
	if fmt.Sprint(page.ids()) != fmt.Sprint(want[1:]) || page.json["has_more"] != false {
		t.Errorf("%s", page.body)
	}
	d.do(t, "DELETE", all+"/"+want[0], nil).wantOK(t)
	if got := d.do(t, "GET", all, nil).wantOK(t).ids(); fmt.Sprint(got) != fmt.Sprint(want[1:]) {
		t.Errorf("after a deletion: %v, want %v", got, want[1:])
	}
	for _, c := range []struct{ body, want string }{
		{`{"requests":[]}`, "at least one request"},
		{`{"requests":[{"custom_id":"a","params":{"model":"m","tools":[{"type":"code_execution_20250825","name":"code_execution"}],"messages":[{"role":"user","content":"x"}]}}]}`,
			"requests.0.params: code execution"},
		{`{"requests":[{"custom_id":"a","params":{"messages":[]}}]}`, "requests.0.params: model"},
	} {
		d.do(t, "POST", all, strings.NewReader(c.body)).wantError(t, 400, "invalid_request_error", "")
	}
	d.do(t, "POST", all, batchOf("m", "two/m")).wantError(t, 400, "invalid_request_error", "")
	d.do(t, "POST", all, batchOf("chat/m")).wantError(t, 400, "invalid_request_error", "")
	for _, key := range append(one.keys, two.keys...) {
		if key != "sk-operator" {
			t.Errorf("an upstream got the key %q", key)
		}
	}
}

// TestBatchesOfTheCallersOwnAccount passes on what the upstream says, since it knows the caller.
func TestBatchesOfTheCallersOwnAccount(t *testing.T) {
	one := newBatcher(t, "one")
	one.batches = []string{"msgbatch_old"} // made without this daemon
	d := serveUpstreams(t, upstream.Config{URL: one.URL})
	const all = "/v1/messages/batches"
	own := []string{"X-Api-Key", "sk-own"}
	a := d.do(t, "GET", all+"?limit=3", nil, own...).wantOK(t)
	if fmt.Sprint(a.ids()) != "[msgbatch_old]" || a.json["limit"] != "3" || strings.Contains(string(a.body), "elsewhere") {
		t.Errorf("%s", a.body)
	}
	d.do(t, "GET", all+"/msgbatch_old/results", nil, own...).wantOK(t)
	d.do(t, "DELETE", all+"/msgbatch_old", nil, own...).wantOK(t)
	for _, key := range one.keys {
		if key != "sk-own" {
			t.Errorf("the upstream got the key %q", key)
		}
	}
}

// serveModels is an upstream that gives a list of models.
func serveModels(t *testing.T, handle http.HandlerFunc) string {
	web := httptest.NewServer(handle)
	t.Cleanup(web.Close)
	return web.URL
}

func TestModels(t *testing.T) {
	hosted := serveModels(t, func(w http.ResponseWriter, r *http.Request) {
		model := func(id string) string {
			return fmt.Sprintf(`{"type":"model","id":%q,"display_name":"D","created_at":"2026-01-01T00:00:00Z","new":1}`, id)
		}
		switch {
		case r.URL.Path == "/v1/models/alias":
			fmt.Fprint(w, model("claude-a"))
		case r.URL.Path != "/v1/models":
			http.Error(w, `{"type":"error","error":{"type":"not_found_error","message":"none"}}`, http.StatusNotFound)
		case r.FormValue("after_id") == "":
			fmt.Fprintf(w, `{"data":[%s],"has_more":true,"last_id":"claude-a"}`, model("claude-a"))
		default:
			fmt.Fprintf(w, `{"data":[%s,%s],"has_more":false}`, model("claude-b"), model("local/hidden"))
		}
	})
	chat := serveModels(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer sk-chat" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"object":"list","data":[{"id":"qwen/q3","object":"model","created":1700000000,"owned_by":"x","max_model_len":4096}]}`)
	})
	listless := serveModels(t, http.NotFound)
	down := upstream.Config{URL: "http://127.0.0.1:1", Prefixes: []string{"down/"}}
	d := serveUpstreams(t, upstream.Config{URL: hosted}, upstream.Config{URL: chat + "/v1", Kind: upstream.KindOpenAI,
		Key: "sk-chat", Prefixes: []string{"local/"}}, upstream.Config{URL: listless, Prefixes: []string{"none-"}}, down)
	a := d.do(t, "GET", "/v1/models", nil, "anthropic-version", "").wantOK(t)
	if got := fmt.Sprint(a.ids()); got != "[claude-a claude-b local/qwen/q3]" || a.json["has_more"] != false ||
		a.Header.Get(upstream.UnavailableHeader) != "down/*" {
		t.Errorf("%v %s", a.Header, a.body)
	}
	var list struct{ Data []map[string]any }
	if err := json.Unmarshal(a.body, &list); err != nil || list.Data[0]["new"] != 1.0 ||
		list.Data[2]["created_at"] != "2023-11-14T22:13:20Z" || list.Data[2]["max_input_tokens"] != 4096.0 ||
		list.Data[2]["type"] != "model" || list.Data[2]["display_name"] != "qwen/q3" {
		t.Errorf("%v %+v", err, list)
	}
	if b := d.do(t, "GET", "/v1/models?limit=1&after_id=claude-a", nil).wantOK(t); fmt.Sprint(b.ids()) != "[claude-b]" ||
		b.json["has_more"] != true || b.str("last_id") != "claude-b" {
		t.Errorf("%s", b.body)
	}
	for path, want := range map[string]string{"alias": "claude-a", "claude-b": "claude-b",
		"local%2Fqwen%2Fq3": "local/qwen/q3", "local/qwen/q3": "local/qwen/q3"} {
		if b := d.do(t, "GET", "/v1/models/"+path, nil).wantOK(t); b.str("id") != want || b.str("type") != "model" {
			t.Errorf("%s: %s", path, b.body)
		}
	}
	for _, path := range []string{"claude-c", "local/none", "..%2Ffiles", "%2E%2E"} {
		d.do(t, "GET", "/v1/models/"+path, nil).wantError(t, 404, "not_found_error", "")
	}
	d.do(t, "GET", "/v1/models?limit=0", nil).wantError(t, 400, "invalid_request_error", "")
	d.do(t, "GET", "/v1/models?after_id=x", nil).wantError(t, 400, "invalid_request_error", "")
	alone := serveUpstreams(t, down)
	if b := alone.do(t, "GET", "/v1/models", nil); b.StatusCode != statusOverloaded {
		t.Errorf("%d %s", b.StatusCode, b.body)
	}
	serveUpstreams(t).do(t, "GET", "/v1/models", nil).wantOK(t)
}

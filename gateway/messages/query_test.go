package messages

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"berth/gateway/messages/history"
	"berth/gateway/messages/rawjson"
)

func TestUsageIsSummed(t *testing.T) {
	a := json.RawMessage(`{"input_tokens":1,"cache":{"x":2},"tier":"a","server_tool_use":null}`)
	b := json.RawMessage(
		`{"input_tokens":2,"output_tokens":0.5,"cache":{"x":3,"y":1},"tier":"b","server_tool_use":{"web_search_requests":1}}`)
	const want = `{"input_tokens":3,"cache":{"x":5,"y":1},"tier":"b","server_tool_use":{"web_search_requests":1},"output_tokens":0.5}`
	if got := string(addUsage(a, b)); got != want {
		t.Errorf("%s", got)
	}
	if got := string(updateUsage(json.RawMessage(`{"input_tokens":9,"output_tokens":1}`), json.RawMessage(
		`{"output_tokens":5,"input_tokens":null}`))); got != `{"input_tokens":9,"output_tokens":5}` {
		t.Errorf("%s", got)
	}
}

func TestManyFiles(t *testing.T) {
	var files []json.RawMessage
	for i := range 150_000 {
		files = append(files, json.RawMessage(`{"type":"container_upload","file_id":"file_`+strconv.Itoa(i)+`"}`))
	}
	began := time.Now()
	list, err := history.Read(rawjson.Join([]json.RawMessage{rawjson.Object{}.With("role", "user").With("content",
		rawjson.Join(files)).Raw()}))
	if err != nil {
		t.Fatal(err)
	}
	q := &query{messages: list, last: -1}
	if list, err := q.readFiles(); err != nil || len(list) != len(files) || !list[7].Current {
		t.Errorf("%d files, %v", len(list), err)
	}
	if took := time.Since(began); took > 20*time.Second { // half a minute if each call is searched for among all
		t.Errorf("it took %s", took)
	}
}

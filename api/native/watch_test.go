package native

import (
	"bufio"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"berth/proto"
)

// TestWatchIsAStream checks that a watch tells its start, and then what a command and a request change.
func TestWatchIsAStream(t *testing.T) {
	s := newSite(t)
	at := s.container(t)
	s.run(t, at, "mkdir -p /workspace/d/sub")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	res, err := s.client.Do(s.request(t, ctx, "GET", at+"/fs/watch?path=d&recursive=true&entries=true", nil))
	if err != nil || res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		t.Fatalf("%v %+v", err, res)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	until := func(kind proto.FileEventType, name string) (ev proto.FileEvent) {
		t.Helper()
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			ev = proto.FileEvent{}
			if err := json.Unmarshal([]byte(data), &ev); err != nil {
				t.Fatal(err)
			}
			if ev.Type == kind && ev.Name == name {
				return ev
			}
		}
		t.Fatalf("the stream ended before %s of %q", kind, name)
		return ev
	}
	until(proto.FileWatched, "")
	s.run(t, at, "echo x >/workspace/d/sub/f")
	if ev := until(proto.FileCreated, "sub/f"); ev.Path == "" || ev.Entry == nil || ev.Entry.Type != proto.TypeFile {
		t.Errorf("%+v", ev)
	}
	s.do(t, "PUT", at+"/fs/content?path=/workspace/d/put", "x")
	until(proto.FileCreated, "put")
	s.do(t, "DELETE", at+"/fs/content?path=/workspace/d&recursive=true", nil)
	for lines.Scan() { // to the end of the directory, which is that of the stream
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
}

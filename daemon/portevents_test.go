package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/client"
	"berth/proto"
)

// portFeed has what the daemon tells of a container's ports.
type portFeed struct {
	t    *testing.T
	s    *server
	id   string
	last string // ID of the last event
}

// errFound ends a stream of events.
var errFound = errors.New("found")

// next waits for the next event of a port.
func (f *portFeed) next() proto.FeedEvent {
	f.t.Helper()
	c, err := client.New(client.Config{Host: f.s.URL, Key: f.s.Key})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	filter := client.FeedFilter{Container: f.id, Types: []string{"port."}, After: f.last}
	if f.last == "" {
		filter.Since = time.Unix(1, 0)
	}
	var found proto.FeedEvent
	err = c.FollowEvents(ctx, filter, nil, func(e proto.FeedEvent) error {
		found = e
		return errFound
	})
	if !errors.Is(err, errFound) {
		f.t.Fatalf("no event of a port: %v", err)
	}
	f.last = found.ID
	return found
}

// want checks the next event.
func (f *portFeed) want(kind proto.FeedType, port uint16, generation int64) proto.FeedEvent {
	f.t.Helper()
	e := f.next()
	if e.Type != kind || e.Port == nil || e.Port.Port != port || e.Port.Address != "127.0.0.1" ||
		e.Generation != generation || e.Item != fmt.Sprintf("127.0.0.1:%d", port) || e.Actor != proto.ActorContainer {
		f.t.Fatalf("instead of %s of port %d the event is %+v with %+v", kind, port, e, e.Port)
	}
	return e
}

// listen starts a program that listens on ports until its input ends.
func (f *portFeed) listen(ports ...int) string {
	f.t.Helper()
	code := "import socket, time\nall = []\n"
	for _, p := range ports {
		code += fmt.Sprintf("all.append(socket.create_server(('127.0.0.1', %d)))\n", p)
	}
	cmd, _ := json.Marshal(proto.Cmd{Argv: []string{"python3", "-c", code + "time.sleep(10000)"}, Background: true})
	return call[proto.Exec](f.t, f.s, 202, "POST", "/v1/containers/"+f.id+"/exec", string(cmd)).ID
}

func (f *portFeed) end(exec string) {
	f.t.Helper()
	call[proto.Exec](f.t, f.s, 200, "POST", "/v1/containers/"+f.id+"/execs/"+exec+"/signal", `{"signal":"KILL"}`)
}

// TestPortEvents checks that each port that a program opens and closes is told once, in both classes, also over pauses,
// stops and restarts of the daemon, and that berth's own ports are not told.
func TestPortEvents(t *testing.T) {
	s := fresh(t)
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		t.Run(string(class), func(t *testing.T) {
			c := call[proto.Container](t, s, 201, "POST", "/v1/containers", fmt.Sprintf(`{"runtime_class":%q}`, class))
			defer func() { _, _, _ = s.Do("DELETE", "/v1/containers/"+c.ID, nil) }()
			portEvents := &portFeed{t: t, s: s, id: c.ID}
			portEvents.life(class)
		})
	}
}

func (f *portFeed) life(class proto.RuntimeClass) {
	t, at := f.t, "/v1/containers/"+f.id
	first := f.listen(3128, 8001) // 3128 cannot be reached, so it is not told
	e := f.want(proto.FeedPortOpened, 8001, 1)
	if known := e.Port.PID > 1 && strings.HasPrefix(e.Port.Program, "python3"); known != (class == proto.ClassRunc) {
		t.Errorf("the program is %+v", e.Port)
	}
	second := f.listen(8002)
	f.want(proto.FeedPortOpened, 8002, 1)
	f.end(second)
	if e := f.want(proto.FeedPortClosed, 8002, 1); e.Note != "" {
		t.Errorf("it is closed since %q", e.Note)
	}

	call[proto.Container](t, f.s, 200, "POST", at+"/pause", "")
	call[proto.ExecResult](t, f.s, 200, "POST", at+"/exec", `{"argv":["true"]}`) // resumes it
	third := f.listen(8003)
	f.want(proto.FeedPortOpened, 8003, 1) // and not 8001 again

	f.s.Stop(syscall.SIGKILL)
	if err := f.s.Start(); err != nil {
		t.Fatal(err)
	}
	f.listen(8004)
	f.want(proto.FeedPortOpened, 8004, 1)
	_, _ = first, third

	call[proto.Container](t, f.s, 200, "POST", at+"/stop", "")
	var closed []uint16
	for range 3 {
		e := f.next()
		if e.Type != proto.FeedPortClosed || e.Note == "" || e.Generation != 1 {
			t.Errorf("a stop tells %+v", e)
		}
		closed = append(closed, e.Port.Port)
	}
	if slices.Sort(closed); !slices.Equal(closed, []uint16{8001, 8003, 8004}) {
		t.Errorf("a stop closes %v", closed)
	}
	f.listen(8001)
	f.want(proto.FeedPortOpened, 8001, 2)
	call[struct{}](t, f.s, 200, "DELETE", at, "")
	f.want(proto.FeedPortClosed, 8001, 2)
}

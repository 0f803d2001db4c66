package pid1

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"berth/guest/wire"
	"berth/proto"
)

// TestWatchPorts checks that a port is told when it opens and when it closes, and that the watch ends with the last
// process.
func TestWatchPorts(t *testing.T) {
	w := newWorld(t, false)
	port := freePort(t)
	watched := func(list wire.PortList) (p proto.Port) {
		if i := slices.IndexFunc(list.Ports, func(l proto.Port) bool { return l.Port == port }); i >= 0 {
			p = list.Ports[i]
		}
		return p
	}
	var o collected
	p := w.start(wire.Command{Argv: []string{"python3", "-uc", fmt.Sprintf(`
import socket, time
print("up"); time.sleep(0.3)
s = socket.create_server(("127.0.0.1", %d)); time.sleep(1000)`, port)}}, &o)
	o.until(t, proto.Stdout, "up")
	events, err := w.WatchPorts(short(t))
	must(t, err)
	defer events.Close()
	list, err := events.Next()
	must(t, err)
	if got := watched(list); got.Port != 0 {
		t.Fatalf("before it listens: %+v", got)
	}
	for watched(list).Port == 0 { // other programs of this machine may listen, too
		list, err = events.Next()
		must(t, err)
	}
	if got := watched(list); got.PID != p.PID() || got.Address != "127.0.0.1" {
		t.Errorf("it listens as %+v", got)
	}
	must(t, p.Kill(short(t)))
	for watched(list).Port != 0 {
		list, err = events.Next()
		must(t, err)
	}
	for err == nil {
		_, err = events.Next()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("after the last process: %v", err)
	}
}

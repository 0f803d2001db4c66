package fs

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/fs/grep"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// Times of a search for text.
const (
	grepDelay = 200 * time.Millisecond // until a line that was found is sent
	grepTime  = wire.LongWait          // until the search ends early
)

// grep sends what a search for text finds as lines of JSON, until all is searched or the client has closed the
// connection. It sends an empty line now and then, so that the client knows that it goes on.
func (k *handler) grep(id user.User, req *wire.Request, path string) error {
	g := &grepAnswer{conn: k.conn, end: time.Now().Add(grepTime), sent: time.Now()}
	err := req.Grep.Check()
	if err == nil {
		g.search, err = grep.New(*req.Grep, g.alive, g.add)
	}
	if err == nil {
		err = beginSearch(req.Op, path)
	}
	if err != nil {
		return k.conn.SendReply(nil, err)
	}
	defer searching.Add(-1)
	err = id.Do(func() error {
		f, st, err := openSearched(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if g.err = k.conn.SendJSON(wire.FrameReply, nil); g.err != nil {
			return nil
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			g.search.RunFile(int(f.Fd()), access.Info(path, st))
			return nil
		}
		return g.search.Run(int(f.Fd()), path)
	})
	switch {
	case g.err != nil:
		return g.err
	case err != nil:
		return k.conn.SendReply(nil, wire.FileError(req.Op, path, err))
	}
	sum := g.search.Summary()
	g.add(proto.GrepEvent{Type: proto.GrepEnd, Summary: &sum})
	if g.flush(); g.err != nil {
		return g.err
	}
	return k.conn.Send(wire.FrameClose, nil)
}

// openSearched opens a directory or a regular file.
func openSearched(path string) (*os.File, *unix.Stat_t, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG &&
		st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENXIO
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, &st, nil
}

// errGone ends a search whose client has gone.
var errGone = errors.New("the client has gone")

// A grepAnswer sends events in frames of some size.
type grepAnswer struct {
	conn   *wire.Conn
	search *grep.Search
	out    []byte // lines that were not sent yet
	sent   time.Time
	end    time.Time
	err    error // of the connection
}

// add queues an event.
func (g *grepAnswer) add(ev proto.GrepEvent) {
	line, err := json.Marshal(ev)
	if err != nil {
		return
	}
	if g.out = append(append(g.out, line...), '\n'); len(g.out) >= wire.BodyBytes/2 {
		g.flush()
	}
}

// flush sends the queued events.
func (g *grepAnswer) flush() {
	for g.err == nil && len(g.out) > 0 {
		n := min(len(g.out), wire.BodyBytes)
		g.err = g.conn.Send(wire.FrameBody, g.out[:n])
		g.out = g.out[n:]
	}
	g.out, g.sent = nil, time.Now()
}

// alive reports whether the search shall go on. It also sends what has waited long enough.
func (g *grepAnswer) alive() bool {
	now := time.Now()
	switch {
	case g.err != nil || now.After(g.end):
		return false
	case len(g.out) > 0 && now.Sub(g.sent) >= grepDelay:
		g.flush()
	case now.Sub(g.sent) >= watchAlive:
		g.out = append(g.out, '\n')
		g.flush()
	}
	if g.err == nil && !g.conn.Alive() {
		g.err = errGone
	}
	return g.err == nil
}

package guest

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"berth/proto"

	"golang.org/x/sys/unix"
)

// maxIdle is how many connections a Client keeps for later.
const maxIdle = 16

// How long the guest may take where the caller's context says nothing shorter.
const (
	shortWait = 30 * time.Second // for an answer that needs no work, and between two pieces of a body
	longWait  = 10 * time.Minute // for one that may walk a large tree
)

// Bounds of an answer: its bytes, which a file's text for the editor may have as JSON, and the things that it
// consists of. Each of those takes far more room than its three bytes say: the longest list that a guest sends at
// once, of the editor, has a third of that.
const (
	maxReply = 64 << 20
	maxParts = 300_000
)

var errNoDescriptors = errors.New("this connection carries no descriptors")

// A Client is the daemon's end. It is safe for concurrent use; each operation has
// a connection to itself while it lasts.
type Client struct {
	dial func(context.Context) (net.Conn, error)

	mu     sync.Mutex
	idle   []*conn
	live   map[io.Closer]struct{} // all open connections, idle or not, and files that were handed over
	pipes  support
	hello  Hello // of the guest that pipes is about
	doubt  bool  // a connection broke since the guest last said who it is
	gets   int   // how often a connection was taken
	dozed  int   // gets as it was when the guest was told to doze; 0: it never was
	closed bool

	wg sync.WaitGroup // readers of processes
}

// A support is whether descriptors can cross to this guest.
type support int

const (
	unknown support = iota
	unsupported
	supported
	pinged // and the guest answers frameAsk
)

// NewClient makes a client of the guest that dial connects to. It dials nothing yet.
func NewClient(dial func(context.Context) (net.Conn, error)) *Client {
	return &Client{dial: dial, live: map[io.Closer]struct{}{}}
}

// Close drops every connection, which makes the guest kill the commands that run on
// them, ends what is being read, and waits until all sinks have returned.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	open := slices.Collect(maps.Keys(c.live))
	c.live, c.idle = map[io.Closer]struct{}{}, nil
	c.mu.Unlock()
	for _, it := range open {
		_ = it.Close()
	}
	c.wg.Wait()
	return nil
}

// addReader counts one more reader of a process, for which Close waits; false means that it has begun to.
func (c *Client) addReader() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Add(1)
	return true
}

// TakeOver takes the idle connections of from, another client of the same guest, which is closed.
func (c *Client) TakeOver(from *Client) {
	from.mu.Lock()
	idle, pipes, hello := from.idle, from.pipes, from.hello
	from.idle = nil
	for _, w := range idle {
		delete(from.live, w)
	}
	from.mu.Unlock()
	_ = from.Close()
	c.mu.Lock()
	c.pipes, c.hello = pipes, hello
	c.mu.Unlock()
	for _, w := range idle {
		if _, err := c.add(w); err == nil {
			c.put(w)
		}
	}
}

// Hello asks the guest who it is, and finds out whether descriptors can cross if that is not known yet.
func (c *Client) Hello(ctx context.Context) (Hello, error) { return c.Ask(ctx, shortWait)(ctx) }

// Ask is Hello in two steps. A guest that is known has been asked when it returns, one that is not is asked by the
// function that it returns; that waits for the answer, as long as its own context says. Either takes wait at most.
// The function must be called, once: until then it has a connection.
func (c *Client) Ask(ctx context.Context, wait time.Duration) (hear func(context.Context) (Hello, error)) {
	w, err := c.getWithin(ctx, wait)
	if err != nil {
		return func(context.Context) (Hello, error) { return Hello{}, err }
	}
	c.mu.Lock()
	pipes, known := c.pipes, c.hello
	c.mu.Unlock()
	if pipes >= supported {
		err = said(ctx, w.within(ctx, wait, func(w *conn) error { return askBoot(w, pipes) }))
	}
	return func(ctx context.Context) (h Hello, _ error) {
		defer c.put(w)
		if err != nil {
			return h, err
		}
		return h, said(ctx, w.within(ctx, wait, func(w *conn) (err error) {
			if pipes >= supported {
				h, err = c.hear(w, pipes, known)
			} else { // what did not cross may cross the next time
				h, err = c.meet(w)
			}
			return err
		}))
	}
}

// hear takes the answer of a guest that was asked. Where it is the one that was known, what is known of it holds.
func (c *Client) hear(w *conn, pipes support, known Hello) (Hello, error) {
	boot, err := hearBoot(w, pipes)
	if err != nil {
		return Hello{}, err
	}
	if boot != known.Boot {
		return c.meet(w)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubt = false
	return known, nil
}

// askBoot asks a guest which one it is, and hearBoot is what it says.
func askBoot(w *conn, how support) error {
	var err error
	if how < pinged {
		err = w.sendRequest(&request{Op: opHello}, nil)
	} else {
		err = w.send(frameAsk, nil)
	}
	if err != nil {
		return broken(w, err)
	}
	return nil
}

func hearBoot(w *conn, how support) (string, error) {
	if how < pinged {
		h, err := hearHello(w)
		return h.Boot, err
	}
	kind, body, err := w.message(maxBoot)
	if err == nil && kind != frameHere {
		err = errFrame
	}
	if err != nil {
		return "", broken(w, err)
	}
	return string(body), nil
}

// maxBoot is more than the length of any Hello.Boot, and maxHello of any Hello, in bytes: it is kept, and may be an
// impostor's.
const (
	maxBoot  = 64
	maxHello = 4 << 10
)

// hearHello is the answer of a guest that was asked who it is.
func hearHello(w *conn) (h Hello, err error) {
	err = w.replyWithin(maxHello, &h)
	if err == nil && len(h.Boot) > maxBoot {
		err = broken(w, errFrame)
	}
	return h, err
}

// meet asks a guest that is not known. It proves that it received the descriptor
// by writing into it: on some sandboxes they vanish on the way without an error.
func (c *Client) meet(w *conn) (Hello, error) {
	var h Hello
	r, sent, err := probePipe(w)
	if err != nil {
		return h, err
	}
	req := &request{Op: opHello}
	if r != nil {
		defer r.Close()
		req.Pipes = 1
		err = w.sendRequest(req, []int{int(sent.Fd())}) // Fd makes it blocking, as is right for what crosses
		_ = sent.Close()
	} else {
		err = w.sendRequest(req, nil)
	}
	if err != nil {
		return h, broken(w, err)
	}
	if h, err = hearHello(w); err != nil {
		return h, err
	}
	h.Pipes = h.Pipes && r != nil && probed(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubt, c.pipes, c.hello = false, supportOf(h), h
	return h, nil
}

// supportOf is what a guest that says h supports.
func supportOf(h Hello) support {
	if !h.Pipes {
		return unsupported
	}
	if h.Ping || h.Packing >= packingPing {
		return pinged
	}
	return supported
}

// probePipe makes a pipe for meet; nil where the connection cannot carry any.
func probePipe(w *conn) (r, sent *os.File, err error) {
	if w.unix == nil {
		return nil, nil, nil
	}
	return os.Pipe()
}

// probed reports whether the guest's byte arrives. It was written before the answer,
// so there is nothing to wait for.
func probed(r *os.File) bool {
	_ = r.SetReadDeadline(time.Now().Add(time.Second))
	var b [1]byte
	n, _ := r.Read(b[:])
	return n == 1
}

// crossing says whether descriptors can cross, asking once.
func (c *Client) crossing(ctx context.Context) (support, error) {
	c.mu.Lock()
	known := c.pipes
	c.mu.Unlock()
	if known != unknown {
		return known, nil
	}
	if _, err := c.Hello(ctx); err != nil {
		return unknown, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pipes, nil
}

// sure is get for what must not be lost: if a connection has broken, the guest is asked first whether it is there.
// One that is being killed loses them one by one, and of a command that is sent over the next nobody would know
// whether it began.
func (c *Client) sure(ctx context.Context) (*conn, error) {
	for {
		if c.doubted() {
			if _, err := c.Hello(ctx); err != nil {
				return nil, err
			}
		}
		w, err := c.get(ctx)
		if err != nil || !c.doubted() {
			return w, err
		}
		c.put(w)
	}
}

func (c *Client) doubted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doubt
}

// Shells lists the persistent shells.
func (c *Client) Shells(ctx context.Context) ([]ShellInfo, error) {
	var all []ShellInfo
	err := c.call(ctx, shortWait, &request{Op: opShells}, &all)
	return all, err
}

// CloseShell ends a persistent shell and all it started. NotFound names one that is not there.
func (c *Client) CloseShell(ctx context.Context, name string) error {
	return c.call(ctx, shortWait, &request{Op: opCloseShell, Name: name}, nil)
}

// call is one request with one answer.
func (c *Client) call(ctx context.Context, wait time.Duration, req *request, answer any) error {
	return c.do(ctx, wait, func(w *conn) error {
		if err := w.sendRequest(req, nil); err != nil {
			return broken(w, err)
		}
		return w.reply(answer)
	})
}

// do runs fn with a connection that is given back afterwards unless fn broke it.
func (c *Client) do(ctx context.Context, wait time.Duration, fn func(*conn) error) error {
	w, err := c.get(ctx)
	if err != nil {
		return err
	}
	err = w.within(ctx, wait, fn)
	c.put(w)
	return said(ctx, err)
}

// get takes an idle connection or makes one.
func (c *Client) get(ctx context.Context) (*conn, error) {
	if w, err := c.getIdle(ctx); w != nil || err != nil {
		return w, err
	}
	return c.connect(ctx)
}

// getWithin is get that makes a connection in the time of wait. To take an idle one needs none.
func (c *Client) getWithin(ctx context.Context, wait time.Duration) (*conn, error) {
	if w, err := c.getIdle(ctx); w != nil || err != nil {
		return w, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return c.connect(ctx)
}

// getIdle takes an idle connection; nil if there is none.
func (c *Client) getIdle(ctx context.Context) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gets++
	for n := len(c.idle); n > 0; n = len(c.idle) {
		w := c.idle[n-1]
		c.idle = c.idle[:n-1]
		if w.alive() {
			return w, nil
		}
		delete(c.live, w)
		_ = w.Close()
		c.pipes, c.doubt = unknown, true // it may be another guest from now on
	}
	return nil, nil
}

// connect makes a connection.
func (c *Client) connect(ctx context.Context) (*conn, error) {
	nc, err := c.dial(ctx)
	if err != nil {
		return nil, dialError(ctx, err)
	}
	return c.add(newConn(nc, false))
}

// add counts a new connection as live.
func (c *Client) add(w *conn) (*conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = w.Close()
		return nil, beingStopped()
	}
	c.live[w] = struct{}{}
	return w, nil
}

// put gives a connection back.
func (c *Client) put(w *conn) {
	w.rest()
	closeAll(w.descriptors()) // of which nobody wanted to know
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubt = c.doubt || w.broken
	// Bytes that were not asked for mean that the guest lies about where a message ends.
	if !w.broken && w.r.Buffered() == 0 && !c.closed && len(c.idle) < maxIdle {
		c.idle = append(c.idle, w)
		return
	}
	delete(c.live, w)
	_ = w.Close()
}

// alive reports whether the other side of an idle connection is still there and silent.
func (c *conn) alive() bool {
	if c.unix == nil {
		return true
	}
	raw, err := c.unix.SyscallConn()
	if err != nil {
		return false
	}
	silent := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		silent = err == unix.EAGAIN
	})
	return err == nil && silent
}

// bound ends what happens on w when ctx does, or after wait. The function it returns
// takes the bound away and reports whether it had not yet struck.
func (c *conn) bound(ctx context.Context, wait time.Duration) func() bool {
	_ = c.SetDeadline(time.Now().Add(wait))
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return func() bool {
		if !stop() {
			return false
		}
		return c.SetDeadline(time.Time{}) == nil
	}
}

// within runs fn, which ends with ctx or after wait. What went well before that struck has gone well; only c is of no
// more use.
func (c *conn) within(ctx context.Context, wait time.Duration, fn func(*conn) error) error {
	release := c.bound(ctx, wait)
	err := fn(c)
	if !release() {
		c.broken = true
	}
	return err
}

// unbound takes a bound away and is err. Where the bound has struck by then, c is of no more use, and what went well
// all the same is an error.
func (c *conn) unbound(release func() bool, err error) error {
	if release() {
		return err
	}
	c.broken = true
	if err == nil {
		err = broken(c, os.ErrDeadlineExceeded)
	}
	return err
}

// reply reads the answer to a request: R into v, or X as an error.
func (c *conn) reply(v any) error { return c.replyWithin(maxReply, v) }

// replyWithin is reply of no more than so many bytes.
func (c *conn) replyWithin(most int, v any) error {
	kind, body, err := c.message(most)
	if err != nil {
		return broken(c, err)
	}
	switch kind {
	case frameError:
		return c.remote(body)
	case frameReply:
		if v == nil {
			return nil
		}
		if !fewParts(body) {
			return broken(c, errFrame)
		}
		if err := decode(body, v); err != nil {
			return broken(c, err)
		}
		return nil
	}
	return broken(c, errFrame)
}

// fewParts reports whether JSON has no more than maxParts commas and brackets that open, other than in strings.
func fewParts(b []byte) bool {
	parts := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case ',', '[', '{':
			if parts++; parts > maxParts {
				return false
			}
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		}
	}
	return true
}

// remote reads the guest's error. What it says is cut and cleaned: it ends up in answers and logs.
func (c *conn) remote(body []byte) error {
	var e proto.Error
	if err := decode(body, &e); err != nil {
		return broken(c, err)
	}
	if !knownCode[e.Code] {
		e.Code = proto.Unavailable
	}
	e.Op, e.Item, e.Message = clean(e.Op, 64), clean(e.Item, 4096), clean(e.Message, 64<<10)
	return &e
}

// broken marks w as of no more use and says what its user will be told.
func broken(w *conn, err error) error {
	w.broken = true
	switch {
	case errors.Is(err, errFrame):
		return proto.Errorf(proto.Unavailable, "guest", "",
			"the container's guest answered nonsense; restart the container")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return proto.Errorf(proto.Unavailable, "guest", "", "the container's guest does not answer; try again, or "+
			"restart the container")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), isGone(err):
		return proto.Errorf(proto.Unavailable, "guest", "", "the container's guest went away")
	}
	return proto.Errorf(proto.Unavailable, "guest", "", "lost the container's guest")
}

// A never is an error of a command that cannot have been started.
type never struct{ error }

func (n never) Unwrap() error { return n.error }

// NotStarted reports whether a command whose Start failed with err certainly did not run: the guest has not
// got the whole request, or has refused it. Otherwise it may have, for a moment.
func NotStarted(err error) bool {
	var n never
	return errors.As(err, &n)
}

// said prefers the reason of ctx, if it has one, to what came of it.
func said(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && proto.CodeOf(err) == proto.Unavailable {
		return ctx.Err()
	}
	return err
}

// dialError hides where the socket is.
func dialError(ctx context.Context, err error) error {
	var e *proto.Error
	if errors.As(err, &e) {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return proto.Errorf(proto.Unavailable, "guest", "", "the container's guest cannot be reached; it may be stopped")
}

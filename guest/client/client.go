// Package client is the daemon's end of the conversation with the guest of a container: it starts commands, follows
// them, works on files, and listens on the container's loopback. The session core calls it. What both ends share is
// guest/wire; what runs inside the container is guest/pid1, of which nothing is linked here.
package client

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

	"berth/guest/wire"
	"berth/proto"
)

// MaxIdle is how many connections a Client keeps for later.
const MaxIdle = 16

// A Client is the daemon's end. It is safe for concurrent use; each operation has
// a connection to itself while it lasts.
type Client struct {
	dial func(context.Context) (net.Conn, error)

	mu     sync.Mutex
	idle   []*wire.Conn
	live   map[io.Closer]struct{} // all open connections, idle or not, and files that were handed over
	pipes  support
	hello  wire.Hello // of the guest that pipes is about
	doubt  bool       // a connection broke since the guest last said who it is
	gets   int        // how often a connection was taken
	dozed  int        // gets as it was when the guest was told to doze; 0: it never was
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

// Connections is how many connections and files are open, and how many of the connections are idle.
func (c *Client) Connections() (open, idle int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.live), len(c.idle)
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
func (c *Client) Hello(ctx context.Context) (wire.Hello, error) {
	return c.Ask(ctx, wire.ShortWait)(ctx)
}

// Ask is Hello in two steps. A guest that is known has been asked when it returns, one that is not is asked by the
// function that it returns; that waits for the answer, as long as its own context says. Either takes wait at most.
// The function must be called, once: until then it has a connection.
func (c *Client) Ask(ctx context.Context, wait time.Duration) (hear func(context.Context) (wire.Hello, error)) {
	w, err := c.getWithin(ctx, wait)
	if err != nil {
		return func(context.Context) (wire.Hello, error) { return wire.Hello{}, err }
	}
	c.mu.Lock()
	pipes, known := c.pipes, c.hello
	c.mu.Unlock()
	if pipes >= supported {
		err = preferContextError(ctx, w.Within(ctx, wait, func(w *wire.Conn) error { return sendPing(w, pipes) }))
	}
	return func(ctx context.Context) (h wire.Hello, _ error) {
		defer c.put(w)
		if err != nil {
			return h, err
		}
		return h, preferContextError(ctx, w.Within(ctx, wait, func(w *wire.Conn) (err error) {
			if pipes >= supported {
				h, err = c.readPong(w, pipes, known)
			} else { // what did not cross may cross the next time
				h, err = c.handshake(w)
			}
			return err
		}))
	}
}

// readPong takes the answer of a guest that was asked. Where it is the one that was known, what is known of it holds.
func (c *Client) readPong(w *wire.Conn, pipes support, known wire.Hello) (wire.Hello, error) {
	boot, err := readBoot(w, pipes)
	if err != nil {
		return wire.Hello{}, err
	}
	if boot != known.Boot {
		return c.handshake(w)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubt = false
	return known, nil
}

// sendPing asks a guest which one it is, and hearBoot is what it says.
func sendPing(w *wire.Conn, how support) error {
	var err error
	if how < pinged {
		err = w.SendRequest(&wire.Request{Op: wire.OpHello}, nil)
	} else {
		err = w.Send(wire.FramePing, nil)
	}
	if err != nil {
		return wire.Fail(w, err)
	}
	return nil
}

func readBoot(w *wire.Conn, how support) (string, error) {
	if how < pinged {
		h, err := readHello(w)
		return h.Boot, err
	}
	kind, body, err := w.ReadMessage(maxBoot)
	if err == nil && kind != wire.FramePong {
		err = wire.ErrFrame
	}
	if err != nil {
		return "", wire.Fail(w, err)
	}
	return string(body), nil
}

// maxBoot is more than the length of any Hello.Boot, and maxHello of any Hello, in bytes: it is kept, and may be an
// impostor's.
const (
	maxBoot  = 64
	maxHello = 4 << 10
)

// readHello is the answer of a guest that was asked who it is.
func readHello(w *wire.Conn) (h wire.Hello, err error) {
	err = w.ReadReplyWithin(maxHello, &h)
	if err == nil && len(h.Boot) > maxBoot {
		err = wire.Fail(w, wire.ErrFrame)
	}
	return h, err
}

// handshake asks a guest that is not known. It proves that it received the descriptor
// by writing into it: on some sandboxes they vanish on the way without an error.
func (c *Client) handshake(w *wire.Conn) (wire.Hello, error) {
	var h wire.Hello
	r, sent, err := probePipe(w)
	if err != nil {
		return h, err
	}
	req := &wire.Request{Op: wire.OpHello}
	if r != nil {
		defer r.Close()
		req.Pipes = 1
		err = w.SendRequest(req, []int{int(sent.Fd())}) // Fd makes it blocking, as is right for what crosses
		_ = sent.Close()
	} else {
		err = w.SendRequest(req, nil)
	}
	if err != nil {
		return h, wire.Fail(w, err)
	}
	if h, err = readHello(w); err != nil {
		return h, err
	}
	h.Pipes = h.Pipes && r != nil && probed(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubt, c.pipes, c.hello = false, supportOf(h), h
	return h, nil
}

// supportOf is what a guest that says h supports.
func supportOf(h wire.Hello) support {
	if !h.Pipes {
		return unsupported
	}
	if h.Ping || h.Packing >= wire.PackingPing {
		return pinged
	}
	return supported
}

// probePipe makes a pipe for meet; nil where the connection cannot carry any.
func probePipe(w *wire.Conn) (r, sent *os.File, err error) {
	if w.UnixConn == nil {
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

// getConfirmed is get for what must not be lost: if a connection has broken, the guest is asked first whether it is
// there. One that is being killed loses them one by one, and of a command that is sent over the next nobody would
// know whether it began.
func (c *Client) getConfirmed(ctx context.Context) (*wire.Conn, error) {
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
func (c *Client) Shells(ctx context.Context) ([]wire.ShellInfo, error) {
	var all []wire.ShellInfo
	err := c.call(ctx, wire.ShortWait, &wire.Request{Op: wire.OpShells}, &all)
	return all, err
}

// CloseShell ends a persistent shell and all it started. NotFound names one that is not there.
func (c *Client) CloseShell(ctx context.Context, name string) error {
	return c.call(ctx, wire.ShortWait, &wire.Request{Op: wire.OpCloseShell, Name: name}, nil)
}

// call is one request with one answer.
func (c *Client) call(ctx context.Context, wait time.Duration, req *wire.Request, answer any) error {
	return c.do(ctx, wait, func(w *wire.Conn) error {
		if err := w.SendRequest(req, nil); err != nil {
			return wire.Fail(w, err)
		}
		return w.ReadReply(answer)
	})
}

// do runs fn with a connection that is given back afterwards unless fn broke it.
func (c *Client) do(ctx context.Context, wait time.Duration, fn func(*wire.Conn) error) error {
	w, err := c.get(ctx)
	if err != nil {
		return err
	}
	err = w.Within(ctx, wait, fn)
	c.put(w)
	return preferContextError(ctx, err)
}

// get takes an idle connection or makes one.
func (c *Client) get(ctx context.Context) (*wire.Conn, error) {
	if w, err := c.getIdle(ctx); w != nil || err != nil {
		return w, err
	}
	return c.connect(ctx)
}

// getWithin is get that makes a connection in the time of wait. To take an idle one needs none.
func (c *Client) getWithin(ctx context.Context, wait time.Duration) (*wire.Conn, error) {
	if w, err := c.getIdle(ctx); w != nil || err != nil {
		return w, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return c.connect(ctx)
}

// getIdle takes an idle connection; nil if there is none.
func (c *Client) getIdle(ctx context.Context) (*wire.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gets++
	for n := len(c.idle); n > 0; n = len(c.idle) {
		w := c.idle[n-1]
		c.idle = c.idle[:n-1]
		if w.Alive() {
			return w, nil
		}
		delete(c.live, w)
		_ = w.Close()
		c.pipes, c.doubt = unknown, true // it may be another guest from now on
	}
	return nil, nil
}

// connect makes a connection.
func (c *Client) connect(ctx context.Context) (*wire.Conn, error) {
	nc, err := c.dial(ctx)
	if err != nil {
		return nil, dialError(ctx, err)
	}
	return c.add(wire.NewConn(nc, false))
}

// add counts a new connection as live.
func (c *Client) add(w *wire.Conn) (*wire.Conn, error) {
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
func (c *Client) put(w *wire.Conn) {
	w.Trim()
	wire.CloseAll(w.Descriptors()) // of which nobody wanted to know
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubt = c.doubt || w.Broken
	// Bytes that were not asked for mean that the guest lies about where a message ends.
	if !w.Broken && w.Reader.Buffered() == 0 && !c.closed && len(c.idle) < MaxIdle {
		c.idle = append(c.idle, w)
		return
	}
	delete(c.live, w)
	_ = w.Close()
}

// A notStartedError is an error of a command that cannot have been started.
type notStartedError struct{ error }

func (n notStartedError) Unwrap() error { return n.error }

// NotStarted reports whether a command whose Start failed with err certainly did not run: the guest has not
// got the whole request, or has refused it. Otherwise it may have, for a moment.
func NotStarted(err error) bool {
	var n notStartedError
	return errors.As(err, &n)
}

// preferContextError prefers the reason of ctx, if it has one, to what came of it.
func preferContextError(ctx context.Context, err error) error {
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

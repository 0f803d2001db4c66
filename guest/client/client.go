// Package client is the daemon's end of the protocol with the guest of a container. It starts and follows commands,
// works on files, and listens on the container's loopback. The session core calls it. guest/wire holds what both ends
// share. guest/pid1 runs inside the container; this package does not link it.
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

// MaxIdle is the maximum number of idle connections that a Client keeps.
const MaxIdle = 16

// Client is the daemon's end. It is safe for concurrent use. Each operation has a connection to itself while it runs.
type Client struct {
	dial func(context.Context) (net.Conn, error)

	mu     sync.Mutex
	idle   []*wire.Conn
	live   map[io.Closer]struct{} // all open connections, idle or not, and all handed-over files
	pipes  support
	hello  wire.Hello // of the guest that pipes describes
	doubt  bool       // a connection broke after the guest last identified itself
	closed bool

	wg sync.WaitGroup // readers of processes
}

// support says whether descriptors can cross to this guest.
type support int

const (
	unknown support = iota
	unsupported
	supported
	pinged // and the guest answers FramePing
)

// NewClient makes a client of the guest that dial connects to. It does not dial yet.
func NewClient(dial func(context.Context) (net.Conn, error)) *Client {
	return &Client{dial: dial, live: map[io.Closer]struct{}{}}
}

// Close closes every connection, which makes the guest kill the commands that run on them. It ends all reads and
// waits until all sinks have returned.
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

// Connections returns how many connections and files are open, and how many of the connections are idle.
func (c *Client) Connections() (open, idle int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.live), len(c.idle)
}

// addReader counts one more reader of a process, for which Close waits. It returns false if Close has begun.
func (c *Client) addReader() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Add(1)
	return true
}

// TakeOver takes the idle connections of from, another client of the same guest, and closes from.
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

// Idle returns nil if the container could be stopped without a loss: no process runs but the guest, and nothing is
// kept in memory. It fails with Conflict if not, and with another error if the guest cannot tell.
func (c *Client) Idle(ctx context.Context) error {
	return c.call(ctx, wire.ShortWait, &wire.Request{Op: wire.OpIdle}, nil)
}

// Hello asks the guest to identify itself. If it is not yet known whether descriptors can cross, Hello finds out.
func (c *Client) Hello(ctx context.Context) (wire.Hello, error) {
	return c.Ask(ctx, wire.ShortWait)(ctx)
}

// Ask is Hello in two steps. Ask sends the request to a known guest before it returns; the returned function sends it
// to an unknown guest. The returned function waits for the answer until its own context ends. Each step takes at most
// wait. The caller must call the function exactly once, because it holds a connection until then.
func (c *Client) Ask(ctx context.Context, wait time.Duration) (hear func(context.Context) (wire.Hello, error)) {
	within, cancel := context.WithTimeout(ctx, wait)
	w, err := c.get(within)
	cancel()
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
			} else { // descriptors that did not cross may cross next time
				h, err = c.handshake(w)
			}
			return err
		}))
	}
}

// readPong reads the answer of a guest that was asked. If the guest is the known one, it returns the known Hello.
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

// sendPing asks a guest to identify itself. readBoot reads the answer.
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

// maxBoot is more than the length of any Hello.Boot, and maxHello of any Hello, in bytes. The client keeps the
// answer, and an impostor may have sent it.
const (
	maxBoot  = 64
	maxHello = 4 << 10
)

// readHello reads the answer of a guest that was asked to identify itself.
func readHello(w *wire.Conn) (h wire.Hello, err error) {
	err = w.ReadReplyWithin(maxHello, &h)
	if err == nil && len(h.Boot) > maxBoot {
		err = wire.Fail(w, wire.ErrFrame)
	}
	return h, err
}

// handshake asks an unknown guest to identify itself. The guest proves that it received the descriptor by writing to
// it: on some sandboxes descriptors vanish on the way without an error.
func (c *Client) handshake(w *wire.Conn) (wire.Hello, error) {
	req, fds := &wire.Request{Op: wire.OpHello}, []int(nil)
	var probe, sent *os.File // nil if the connection cannot carry descriptors
	if w.UnixConn != nil {
		var err error
		if probe, sent, err = os.Pipe(); err != nil {
			return wire.Hello{}, err
		}
		defer probe.Close()
		req.Pipes, fds = 1, []int{int(sent.Fd())} // Fd makes the file blocking, as a descriptor that crosses must be
	}
	err := w.SendRequest(req, fds)
	_ = sent.Close() // fails if there is none
	if err != nil {
		return wire.Hello{}, wire.Fail(w, err)
	}
	h, err := readHello(w)
	if err != nil {
		return h, err
	}
	if probe != nil && h.Pipes { // the guest's byte comes before its answer, so this does not wait
		_ = probe.SetReadDeadline(time.Now().Add(time.Second))
		n, _ := probe.Read(make([]byte, 1))
		h.Pipes = n == 1
	} else {
		h.Pipes = false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubt, c.pipes, c.hello = false, supportOf(h), h
	return h, nil
}

// supportOf returns what a guest with this Hello supports.
func supportOf(h wire.Hello) support {
	if !h.Pipes {
		return unsupported
	}
	if h.Ping || h.Packing >= wire.PackingPing {
		return pinged
	}
	return supported
}

// crossing reports whether descriptors can cross. It asks the guest once.
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

// getConfirmed is get for requests that must not be lost. If a connection has broken, it first asks the guest whether
// it is alive. A guest that is being killed loses its connections one by one. If a command were sent over the next
// one, the client could not tell whether it started.
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

// CloseShell ends a persistent shell and all its processes. It returns NotFound if there is no such shell.
func (c *Client) CloseShell(ctx context.Context, name string) error {
	return c.call(ctx, wire.ShortWait, &wire.Request{Op: wire.OpCloseShell, Name: name}, nil)
}

// call sends one request and reads one answer.
func (c *Client) call(ctx context.Context, wait time.Duration, req *wire.Request, answer any) error {
	return c.do(ctx, wait, func(w *wire.Conn) error {
		if err := w.SendRequest(req, nil); err != nil {
			return wire.Fail(w, err)
		}
		return w.ReadReply(answer)
	})
}

// do runs fn with a connection and gives the connection back afterwards, unless fn broke it.
func (c *Client) do(ctx context.Context, wait time.Duration, fn func(*wire.Conn) error) error {
	w, err := c.get(ctx)
	if err != nil {
		return err
	}
	err = w.Within(ctx, wait, fn)
	c.put(w)
	return preferContextError(ctx, err)
}

// get takes an idle connection or makes a new one.
func (c *Client) get(ctx context.Context) (*wire.Conn, error) {
	if w, err := c.getIdle(ctx); w != nil || err != nil {
		return w, err
	}
	return c.connect(ctx)
}

// getIdle takes an idle connection. It returns nil if there is none.
func (c *Client) getIdle(ctx context.Context) (*wire.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := len(c.idle); n > 0; n = len(c.idle) {
		w := c.idle[n-1]
		c.idle = c.idle[:n-1]
		if w.Alive() {
			return w, nil
		}
		delete(c.live, w)
		_ = w.Close()
		c.pipes, c.doubt = unknown, true // from now on it may be another guest
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
	wire.CloseAll(w.Descriptors()) // descriptors that no operation has taken
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubt = c.doubt || w.Broken
	// Unrequested bytes mean that the guest lies about where a message ends.
	if !w.Broken && w.Reader.Buffered() == 0 && !c.closed && len(c.idle) < MaxIdle {
		c.idle = append(c.idle, w)
		return
	}
	delete(c.live, w)
	_ = w.Close()
}

// notStartedError is an error of a command that cannot have started.
type notStartedError struct{ error }

func (n notStartedError) Unwrap() error { return n.error }

// NotStarted reports whether a command whose Start failed with err certainly did not run: the guest did not get the
// whole request, or refused it. Otherwise the command may have run for a moment.
func NotStarted(err error) bool {
	var n notStartedError
	return errors.As(err, &n)
}

// preferContextError returns the error of ctx if there is one, else err.
func preferContextError(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && proto.CodeOf(err) == proto.Unavailable {
		return ctx.Err()
	}
	return err
}

// dialError hides the socket's path.
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

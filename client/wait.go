package client

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"time"

	"berth/proto"
)

// A client with Config.Wait waits for a daemon that is away, as while it restarts, and sends its request again. That is
// safe in two cases: no connection came about, so nothing was sent; or the request may be repeated, since it only
// reads, leads to the same state, or has an idempotency key.

const (
	// how long the first request of a client waits: it cannot know whether there is a daemon at all
	firstWait = time.Second
	tellAfter = 2 * time.Second // when Config.Waiting is called
	askAgain  = 50 * time.Millisecond
)

// A brokenError says that the connection broke while a request was under way.
type brokenError struct{ err *proto.Error }

func (e brokenError) Error() string { return e.err.Error() }

// Unwrap returns the error for callers.
func (e brokenError) Unwrap() error { return e.err }

// Redo calls do, which may be done again from its beginning, and calls it again when the daemon goes away meanwhile, as
// while it restarts. It waits for the daemon as Config.Wait says, and returns the error of the last call.
func (c *Client) Redo(ctx context.Context, do func() error) error { return c.whileAway(ctx, true, do) }

// brokenOff returns the error for an answer that ended before its result, as when the daemon is killed.
func (c *Client) brokenOff(message string) error {
	return brokenError{&proto.Error{Code: proto.Unavailable, Item: c.Host(), Message: message}}
}

// whileAway calls do until it succeeds, fails for another reason than that the daemon is away, or the wait is over.
// Only a request that may be repeated is sent again after its connection broke.
func (c *Client) whileAway(ctx context.Context, repeatable bool, do func() error) error {
	var since time.Time
	told := c.cfg.Waiting == nil
	for {
		err := do()
		if err == nil || c.cfg.Wait == 0 || ctx.Err() != nil {
			return err
		}
		pause := askAgain
		if limited := c.limited(err); limited > 0 {
			pause = limited
		} else if !away(err, repeatable) {
			return err
		}
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		most := c.cfg.Wait
		if !c.met.Load() {
			most = min(most, firstWait)
		}
		switch gone := now.Sub(since); {
		case gone >= most || gone+pause > most+askAgain:
			return err
		case gone >= tellAfter && !told:
			c.cfg.Waiting()
			told = true
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// limited returns how long to wait for a limit that refused a request, which then did nothing; 0: not at all.
func (c *Client) limited(err error) time.Duration {
	if !c.cfg.WaitForRate || proto.CodeOf(err) != proto.TooMany {
		return 0
	}
	return time.Duration(proto.AsError(err).RetryAfter) * time.Second
}

// hasEnded reports whether the daemon has ended just now: its port refuses connections. It is false if that is unknown,
// as behind a proxy.
func (c *Client) hasEnded(ctx context.Context) bool {
	for range 20 {
		_, err := c.callOnce(ctx, request{method: http.MethodGet, path: "/healthz"}, nil)
		var broken brokenError
		if !errors.As(err, &broken) {
			return errors.Is(err, syscall.ECONNREFUSED)
		}
		select { // it may be about to end
		case <-time.After(askAgain):
		case <-ctx.Done():
			return false
		}
	}
	return false
}

// away reports whether err means that the daemon may come back.
func away(err error, repeatable bool) bool {
	var dial *DialError
	if errors.As(err, &dial) {
		return errors.Is(dial.Err, syscall.ECONNREFUSED) || errors.Is(dial.Err, syscall.ECONNRESET)
	}
	var broken brokenError
	if !repeatable {
		return false
	}
	return errors.As(err, &broken) || proto.CodeOf(err) == proto.Unavailable &&
		(strings.Contains(proto.AsError(err).Message, "daemon is shutting down") ||
			strings.Contains(proto.AsError(err).Message, "the daemon ends"))
}

// knownFor is how long a daemon knows the key of a command with reconnect_seconds at least, if it begins with
// proto.OncePrefix. It knows other keys for a day.
const knownFor = time.Minute

// once returns the idempotency key for a request that has none, so that it may be repeated.
func (c *Client) once(key string) string {
	switch {
	case key != "" || c.cfg.Wait == 0:
		return key
	case c.cfg.Wait > knownFor:
		return proto.NewID("again_")
	}
	return proto.NewID(proto.OncePrefix)
}

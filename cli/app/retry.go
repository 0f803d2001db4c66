package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"berth/client"
	"berth/proto"
)

// A daemon that stopped answering may be restarting. berth waits for it for comeback, and asks every askEvery.
const (
	comeback = time.Minute
	askEvery = 250 * time.Millisecond
	// how long one request waits for it
	requestWait = 30 * time.Second
)

// tellAway says that berth waits for the daemon, once.
func (a *App) tellAway() {
	if !a.toldAway.Swap(true) {
		fmt.Fprintln(a.Stderr, "berth: the daemon went away; waiting for it to come back")
	}
}

// RetryWhileDown repeats do while the daemon is down, until it returns or the time is over. on reports whether do
// made progress, which restarts the time.
func (a *App) RetryWhileDown(ctx context.Context, do func() (on bool, err error)) error {
	var gone time.Time
	for {
		on, err := do()
		if !IsDaemonGone(err) {
			return err
		}
		switch {
		case on:
			gone = time.Time{}
			continue
		case gone.IsZero():
			gone = time.Now()
			a.tellAway()
		// Return the latest error, because it describes the current state.
		case time.Since(gone) > comeback:
			return err
		}
		select {
		case <-time.After(askEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Follow works like RetryWhileDown for do, which prints what it receives. do passes the result of each print to
// printed, and stops if that returns an error: an error of printing ends Follow, and must not look like a daemon that
// is down.
func (a *App) Follow(ctx context.Context, do func(printed func(error) error) (on bool, err error)) error {
	full := error(nil)
	err := a.RetryWhileDown(ctx, func() (bool, error) {
		on, err := do(func(err error) error {
			full = err
			return err
		})
		if full != nil {
			return false, nil
		}
		return on, err
	})
	return cmp.Or(full, err)
}

// IsDaemonGone reports whether err means that the daemon no longer answers. A daemon that shuts down returns
// Unavailable, and so does a broken connection.
func IsDaemonGone(err error) bool {
	var dial *client.DialError
	return errors.As(err, &dial) || proto.CodeOf(err) == proto.Unavailable
}

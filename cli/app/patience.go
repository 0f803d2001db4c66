package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/client"
	"berth/proto"
)

// A daemon that was there and is not may be about to come back: it is being restarted. So long it is waited for, and so
// often asked.
const (
	comeback = time.Minute
	askEvery = 250 * time.Millisecond
)

// RetryWhileDown does again what failed because the daemon went away, until it is back or does not come. on reports
// whether there was progress, which starts the time anew.
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
			fmt.Fprintln(a.Stderr, "berth: the daemon went away; waiting for it to come back")
		// The error is that of the last try, and so tells how it is now.
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

// IsDaemonGone reports whether err is that of a daemon that does not answer any more.
// Unavailable is also what a daemon says that is shutting down, and what a broken connection
// becomes.
func IsDaemonGone(err error) bool {
	var dial *client.DialError
	return errors.As(err, &dial) || proto.CodeOf(err) == proto.Unavailable
}

package app

import (
	"context"
	"errors"

	"berth/client"
	"berth/proto"
)

// EachContainer does something with every container named. One that fails does not keep the others from it.
// Errors are joined, each with its own line at the end, so one call with ten names is no worse
// than ten calls.
func (a *App) EachContainer(ctx context.Context, c *client.Client, names []string, fn func(id string) error) error {
	return EachName(ctx, names, func(name string) error {
		id, err := a.FindContainer(ctx, c, name)
		if err != nil {
			return err
		}
		return fn(id)
	})
}

// EachName is each for what looks the names up by itself.
func EachName(ctx context.Context, names []string, fn func(name string) error) error {
	var errs []error
	for _, name := range names {
		err := fn(name)
		// Ten names and no daemon make one error, not ten.
		if ctx.Err() != nil || IsFatal(err) {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// IsFatal reports whether the next attempt would fail in the same way.
// No daemon, or a key that it does not know, is the same for every name.
func IsFatal(err error) bool {
	var dial *client.DialError
	return errors.As(err, &dial) || proto.CodeOf(err) == proto.Unauthenticated && err != nil
}

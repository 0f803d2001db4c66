package app

import (
	"context"
	"errors"

	"berth/client"
	"berth/proto"
)

// EachContainer calls fn for every named container. An error for one container does not stop the others. The errors
// are joined, and each is printed on its own line.
func (a *App) EachContainer(ctx context.Context, c *client.Client, names []string, fn func(id string) error) error {
	return EachName(ctx, names, func(name string) error {
		id, err := a.FindContainer(ctx, c, name)
		if err != nil {
			return err
		}
		return fn(id)
	})
}

// EachName is EachContainer for names that fn resolves itself.
func EachName(ctx context.Context, names []string, fn func(name string) error) error {
	var errs []error
	for _, name := range names {
		err := fn(name)
		// Ten names without a daemon should cause one error, not ten.
		if ctx.Err() != nil || IsFatal(err) {
			return errors.Join(append(errs, err)...)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// IsFatal reports whether the next attempt would fail in the same way: no daemon, or an unknown key, fails for every
// name.
func IsFatal(err error) bool {
	var dial *client.DialError
	return errors.As(err, &dial) || proto.CodeOf(err) == proto.Unauthenticated && err != nil
}

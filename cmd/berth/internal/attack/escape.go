package attack

import (
	"context"
	"errors"

	"berth/proto"
)

// Group 30: the known ways from a container to its host.
var _ = register(
	Case{
		Group: 30, Name: "escape/sysrq", Inside: true,
		Tries: "write to /proc/sysrq-trigger as the container's root",
		Wants: "the write is refused",
		Run: func(ctx context.Context, t *Target) (string, error) {
			con, err := t.Container(ctx, proto.CreateContainer{})
			if err != nil {
				return "", err
			}
			res, err := t.Do(ctx, con.ID, proto.Cmd{Command: "echo h > /proc/sysrq-trigger", User: proto.UserRoot})
			if err != nil {
				return "", err
			}
			r := res.Result.Result
			switch {
			case r == nil:
				return "", errors.New(describe(res))
			case r.ReturnCode == 0:
				return "", Breached("the write went through")
			}
			return r.Stderr, nil
		},
	},
)

package flags

import (
	"time"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/proto"
)

// A Lease says when a container ends and what happens then. The end stays as typed until Request, which names the flag
// in its errors.
type Lease struct{ mode, atEnd, ends string }

// Register adds the flags to a command.
func (f *Lease) Register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.mode, "lease", "", "what moves the end: each use (rolling), or only a change (absolute)")
	fs.StringVar(&f.atEnd, "at-end", "", "what happens at the end: stop, pause, or remove with all files")
	fs.StringVar(&f.ends, "ends", "", "when it ends: a time from now, such as 2h, or a moment, such as "+
		"2006-01-02T15:04:05Z")
	app.CompleteFlag(cmd, "lease", string(proto.LeaseRolling), string(proto.LeaseAbsolute))
	app.CompleteFlag(cmd, "at-end", string(proto.LeaseStop), string(proto.LeasePause), string(proto.LeaseRemove))
}

// Request returns the lease of a request.
func (f *Lease) Request() (proto.LeaseRequest, error) {
	req := proto.LeaseRequest{Mode: proto.LeaseMode(f.mode), AtEnd: proto.LeaseAction(f.atEnd)}
	if f.ends == "" {
		return req, nil
	}
	if d, err := time.ParseDuration(f.ends); err == nil && d >= 0 {
		seconds := int64((d + time.Second - 1) / time.Second)
		req.EndsInSeconds = &seconds
		return req, nil
	}
	t, err := time.Parse(time.RFC3339, f.ends)
	if err != nil {
		return req, proto.Errorf(proto.InvalidArgument, "", "ends", "--ends %q is no time; write it as 90s, 5m or 24h "+
			"from now, or as 2006-01-02T15:04:05Z", f.ends)
	}
	at := proto.At(t)
	req.EndsAt = &at
	return req, nil
}

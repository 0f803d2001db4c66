package buildenv

import (
	"context"
	"errors"
	"syscall"

	"berth/proto"
)

// Op names the building of images in errors.
const Op = "building image"

// Missing names the Debian package to install.
func Missing(pkg string) error {
	return proto.Errorf(proto.Unsupported, Op, pkg, "%s is not installed; install it with: apt-get install %s", pkg,
		pkg)
}

// Unavailable is a failure that may be temporary, or caused by the host's apt configuration.
func Unavailable(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	reason := ""
	var t *toolError
	if errors.As(err, &t) {
		reason = " (" + t.Error() + ")"
	}
	return proto.Errorf(proto.Unavailable, Op, "", "%s%s; check the network and this machine's apt sources, then "+
		"run it again", what, reason)
}

// IOError is a failure of the host's file system. It leaves out paths.
func IOError(what string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		err = no
	}
	return proto.Errorf(proto.Internal, Op, what, "%s: %v", what, err)
}

package sandboximage

import (
	"context"
	"errors"
	"syscall"

	"berth/proto"
)

// Op names the building of images in errors.
const op = "building image"

// missing names the Debian package to install.
func missing(pkg string) error {
	return proto.Errorf(proto.Unsupported, op, pkg, "%s is not installed; install it with: apt-get install %s", pkg,
		pkg)
}

// unavailable is a failure that may be temporary, or caused by the host's apt configuration.
func unavailable(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	reason := ""
	var t *toolError
	if errors.As(err, &t) {
		reason = " (" + t.Error() + ")"
	}
	return proto.Errorf(proto.Unavailable, op, "", "%s%s; check the network and this machine's apt sources, then "+
		"run it again", what, reason)
}

// ioError is a failure of the host's file system. It leaves out paths.
func ioError(what string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		err = no
	}
	return proto.Errorf(proto.Internal, op, what, "%s: %v", what, err)
}

package filework

import (
	"context"
	"fmt"
	"io"

	"berth/proto"
	"berth/session"
)

// Write is session.Files.WriteFile with errors that name the disk limit of the container. A body of a known length that
// is larger than the whole disk is refused before the container is woken.
func Write(ctx context.Context, s session.Files, as, path string, opt session.WriteOptions, r io.Reader) (
	fi proto.FileInfo, err error) {
	const least = 16 << 20 // no disk is smaller
	if opt.Size > least && opt.Size > s.Limits().DiskBytes {
		return fi, proto.Errorf(proto.QuotaExceeded, "", path, "%s: %d bytes are more than the disk limit of the "+
			"container, %d bytes (limits.disk_bytes)", path, opt.Size, s.Limits().DiskBytes)
	}
	fi, err = s.WriteFile(ctx, as, path, opt, r)
	if proto.CodeOf(err) == proto.QuotaExceeded {
		named := *proto.AsError(err)
		named.Message += fmt.Sprintf("; limits.disk_bytes is %d", s.Limits().DiskBytes)
		err = &named
	}
	return fi, err
}

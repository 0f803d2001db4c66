package images

import (
	"errors"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"berth/proto"
)

// progressStep is how many bytes an import reads between two reports.
const progressStep = 4 << 20

// counter reports how much of an archive has been read.
type counter struct {
	in             io.Reader
	progress       func(proto.ImageProgress)
	done, reported int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.done += int64(n)
	if c.done-c.reported >= progressStep {
		c.reported = c.done
		report(c.progress, proto.ImageProgress{Stage: "importing", Done: c.done})
	}
	return n, err
}

// report calls progress, which may be nil.
func report(progress func(proto.ImageProgress), p proto.ImageProgress) {
	if progress != nil {
		progress(p)
	}
}

// shortDigest returns the first 12 hexadecimal digits of a digest, for display.
func shortDigest(d string) string {
	_, hex, ok := strings.Cut(d, ":")
	if !ok || len(hex) < 12 {
		return d
	}
	return hex[:12]
}

// DiskFull reports whether err means a full disk. Errors from containerd's services are text only, so DiskFull also
// looks at the text.
func DiskFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) ||
		strings.Contains(err.Error(), unix.ENOSPC.Error())
}

package native

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"berth/api"
	"berth/proto"
)

// An opener opens a file from offset on for n bytes; n < 0 is to its end.
// The FileInfo is of the file that was opened, so size and content belong together.
type opener func(offset, n int64) (io.ReadCloser, proto.FileInfo, error)

// sendFile answers with a file or the part of it that Range asks for. Several ranges, and a Range that
// cannot be read, are answered with the whole file, as RFC 9110 allows. So is any with If-Range: what it can name is
// Last-Modified, and a file that changes twice in one second keeps that.
func (c *call) sendFile(open opener) error {
	want, ok := parseRange(c.r.Header.Get("Range"))
	ok = ok && c.r.Header.Get("If-Range") == ""
	if c.r.Method == http.MethodHead {
		return c.sendHead(open)
	}
	if ok {
		return c.sendPart(open, want)
	}
	r, fi, err := open(0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	describe(c.w.Header(), fi)
	contentLength(c.w.Header(), fi.SizeBytes)
	_, err = io.Copy(c, r)
	return err
}

// HEAD opens the file too: that it may be read is part of the answer. Range does not matter to it.
func (c *call) sendHead(open opener) error {
	r, fi, err := open(0, 0)
	if err != nil {
		return err
	}
	describe(c.w.Header(), fi)
	contentLength(c.w.Header(), fi.SizeBytes)
	c.w.WriteHeader(http.StatusOK)
	return r.Close()
}

// sendPart looks at the file's size first, since a range may count from its end and may lie behind it.
func (c *call) sendPart(open opener, want span) error {
	r, fi, err := open(0, 0)
	if err != nil {
		return err
	}
	if err := r.Close(); err != nil {
		return err
	}
	first, n := want.within(fi.SizeBytes)
	h := c.w.Header()
	if n <= 0 {
		// As RFC 9110 wants it of a 416: so a client that resumes learns that it has all.
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", fi.SizeBytes))
		return api.WithStatus(http.StatusRequestedRangeNotSatisfiable,
			invalid("Range", "The file has %d bytes; the range lies behind them.", fi.SizeBytes))
	}
	if r, fi, err = open(first, n); err != nil {
		return err
	}
	defer r.Close()
	// Looked at again, since the second open may have found another file: Content-Length must not
	// promise what does not come.
	if fi.SizeBytes < first+n {
		return proto.Errorf(proto.Conflict, "", fi.Path, "%s became shorter while it was read; ask again.", fi.Path)
	}
	describe(h, fi)
	contentLength(h, n)
	h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, first+n-1, fi.SizeBytes))
	c.w.WriteHeader(http.StatusPartialContent)
	_, err = io.Copy(c, r)
	return err
}

// A span is one range as it was asked for: from first to last, or the last suffix bytes.
type span struct {
	first, last int64 // last is -1 for the end of the file
	suffix      int64 // first and last do not count unless it is 0
}

// parseRange reads "bytes=first-last", "bytes=first-" and "bytes=-suffix".
func parseRange(header string) (s span, ok bool) {
	text, ok := strings.CutPrefix(header, "bytes=")
	first, last, dash := strings.Cut(strings.TrimSpace(text), "-")
	if !ok || !dash {
		return s, false
	}
	switch {
	case first == "":
		s.suffix, ok = number(last)
		s.first, s.last = -1, -1
	case last == "":
		s.first, ok = number(first)
		s.last = -1
	default:
		var ok2 bool
		s.first, ok = number(first)
		s.last, ok2 = number(last)
		ok = ok && ok2 && s.first <= s.last
	}
	return s, ok
}

// number reads digits alone.
func number(s string) (int64, bool) {
	// ParseUint takes no sign, and 63 bits fit an int64.
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err == nil
}

// within is the part of a file of this size that the range covers; n is 0 if there is none.
func (s span) within(size int64) (first, n int64) {
	if s.first < 0 {
		n = min(s.suffix, size)
		return size - n, n
	}
	end := size
	if s.last >= 0 {
		end = min(s.last, size-1) + 1
	}
	return s.first, max(0, end-s.first)
}

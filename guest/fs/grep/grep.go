// Package grep looks for lines in the files below a directory of a container. Memory is bounded, whatever is in the
// files: a line is held in pieces if it is very long. Package guest/fs sends what it finds.
package grep

import (
	"bytes"
	"cmp"

	"golang.org/x/sys/unix"

	"berth/guest/fs/find"
	"berth/proto"
)

// Bounds of a search.
const (
	chunk     = 256 << 10 // bytes that are held of a file; a longer line is searched in pieces
	maxText   = 2000      // bytes of a line that are told
	beforeHit = 400       // bytes of them before the match, in a line that is longer
	maxOutput = 8 << 20   // bytes of all events, about
)

// A Search looks for a pattern.
type Search struct {
	opt  proto.GrepOptions
	pat  pattern
	tell func(proto.GrepEvent)
	// alive is asked at each piece of a file, and now and then between files
	alive func() bool
	sum   proto.GrepSummary
	left  int // bytes of output
	buf   []byte
	done  bool
}

// New makes a search. Its options must be checked, except the pattern. tell gets each line that is found, in order.
func New(opt proto.GrepOptions, alive func() bool, tell func(proto.GrepEvent)) (*Search, error) {
	p, err := compile(&opt)
	opt.MaxMatches = cmp.Or(opt.MaxMatches, proto.DefaultMatches)
	return &Search{opt: opt, pat: p, tell: tell, alive: alive, left: maxOutput}, err
}

// Run searches the files below the open directory d, whose path is given.
func (s *Search) Run(d int, path string) error {
	s.buf = make([]byte, chunk)
	o := s.opt.FindOptions
	o.Types = []proto.FileType{proto.TypeFile}
	w := find.New(o, s.alive, true)
	err := w.Run(d, path, func(e *find.Entry) bool {
		s.entry(e)
		return !s.done
	})
	s.sum.Skipped = w.Skipped()
	s.sum.Truncated = s.sum.Truncated || w.Next() != nil
	return err
}

// RunFile searches one open file.
func (s *Search) RunFile(fd int, fi proto.FileInfo) {
	s.buf = make([]byte, chunk)
	s.file(fd, fi)
}

// Summary returns what was done.
func (s *Search) Summary() proto.GrepSummary { return s.sum }

// entry searches a file that a walk has found. It may have become something else in the meantime.
func (s *Search) entry(e *find.Entry) {
	if e.Info.SizeBytes == 0 {
		s.sum.Searched++ // what the kernel makes up is not searched: its size is 0
		return
	}
	fd, err := unix.Openat(e.Dir, e.Name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT || err == unix.ELOOP {
		return
	}
	if err != nil {
		s.sum.SkippedFiles++
		return
	}
	s.file(fd, e.Info)
	_ = unix.Close(fd)
}

// file searches one open file up to the size that it has.
func (s *Search) file(fd int, fi proto.FileInfo) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	s.sum.Searched++
	l := &lines{s: s, fi: fi, line: 1}
	held, left := 0, st.Size
	for first := true; left > 0 && !l.over; first = false {
		if !s.alive() {
			s.done, s.sum.Truncated = true, true
			return
		}
		n, err := unix.Pread(fd, s.buf[held:held+int(min(left, int64(chunk-held)))], st.Size-left)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			s.sum.SkippedFiles++
			return
		case n == 0: // it became shorter
			left = 0
		}
		left, held = left-int64(n), held+n
		if nul := bytes.IndexByte(s.buf[held-n:held], 0); nul >= 0 {
			s.sum.BinaryFiles++
			if first {
				s.sum.Searched--
			}
			return
		}
		held = copy(s.buf, s.buf[l.search(s.buf[:held], left == 0):held])
	}
}

package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// current is the name of the segment being written.
const current = "audit.log"

// segmentName is the name of the n-th segment once it is full, from 1.
func segmentName(n int) string { return fmt.Sprintf("audit-%06d.log", n) }

// A segment is one file of the log.
type segment struct {
	name   string
	number int // from the name; the current segment follows the last
}

// segments lists the log's files in the order of their entries, the current one last.
func segments(dir string) ([]segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var list []segment
	for _, f := range entries {
		var n int
		if _, err := fmt.Sscanf(f.Name(), "audit-%06d.log", &n); err == nil && f.Name() == segmentName(n) {
			list = append(list, segment{f.Name(), n})
		}
	}
	slices.SortFunc(list, func(a, b segment) int { return a.number - b.number })
	if _, err := os.Lstat(filepath.Join(dir, current)); err == nil {
		last := 0
		if len(list) > 0 {
			last = list[len(list)-1].number
		}
		return append(list, segment{current, last + 1}), nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return list, nil
}

// A snapshot is the log at one moment, while a daemon may go on writing. Full segments never change, and the current
// one is open, whatever happens to its name.
type snapshot struct {
	dir  string
	list []segment
	open *os.File // the current segment; nil if there is none
}

// take makes a snapshot. It starts again if a rotation replaced the current segment meanwhile.
func take(dir string) (*snapshot, error) {
	for {
		f, err := os.Open(filepath.Join(dir, current))
		if errors.Is(err, fs.ErrNotExist) {
			f = nil
		} else if err != nil {
			return nil, err
		}
		s := &snapshot{dir: dir, open: f}
		s.list, err = segments(dir)
		if err == nil && s.stands() {
			return s, nil
		}
		s.close()
		if err != nil {
			return nil, err
		}
	}
}

// stands reports whether the open file still has the name.
func (s *snapshot) stands() bool {
	now, err := os.Stat(filepath.Join(s.dir, current))
	if s.open == nil || err != nil {
		return s.open == nil && err != nil
	}
	was, err := s.open.Stat()
	return err == nil && os.SameFile(was, now)
}

func (s *snapshot) close() {
	if s.open != nil {
		s.open.Close()
	}
}

// errEnough ends a scan early.
var errEnough = errors.New("enough")

// scan calls fn with each line of a segment from offset on, its line feed included. fn also gets the torn bytes after
// the last line feed. fn must not keep line.
func (s *snapshot) scan(seg segment, offset int64, fn func(line []byte) error) error {
	f := s.open
	if seg.name != current {
		var err error
		if f, err = os.Open(filepath.Join(s.dir, seg.name)); err != nil {
			return err
		}
		defer f.Close()
	}
	r := bufio.NewReaderSize(io.NewSectionReader(f, offset, 1<<62), maxLine)
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			if err := fn(line); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull): // no valid line is this long; the rest is passed as another line
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

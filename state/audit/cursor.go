package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"berth/proto"
)

// A Cursor reads the entries of a log in their order, from any entry on, and waits for new ones. It reads the files
// alone: an entry that no cursor reads costs nothing. It is not safe for concurrent use.
type Cursor struct {
	log    *Log
	number int // of the segment
	f      *os.File
	offset int64 // of the next line
	last   int64 // number of the entry before; 0 is unknown
	grown  <-chan struct{}
}

// Window is how many of the newest segments a cursor reads. It bounds what a reader of old entries can make the
// daemon do.
const Window = 16

// Cursor returns a cursor at the oldest entry of the window.
func (l *Log) Cursor() (*Cursor, error) {
	c := &Cursor{log: l, grown: l.growth()}
	if err := c.enter(l.out.oldest()); err != nil {
		return nil, err
	}
	return c, nil
}

// Close closes the cursor's file.
func (c *Cursor) Close() error {
	if c.f == nil {
		return nil
	}
	return c.f.Close()
}

// SeekAfter moves the cursor to the first entry with a number above seq, and reports whether all entries between the
// two are there. If not, the cursor is at the oldest entry that is.
func (c *Cursor) SeekAfter(seq int64) (bool, error) {
	return c.seek(func(line []byte) bool { n, ok := lineSeq(line); return ok && n <= seq })
}

// SeekTime moves the cursor to the first entry that is not older than t.
func (c *Cursor) SeekTime(t proto.Time) error {
	_, err := c.seek(func(line []byte) bool {
		var e struct{ Time proto.Time }
		return json.Unmarshal(line, &e) == nil && e.Time.Before(t.Time)
	})
	return err
}

// seek moves the cursor behind the last line of which before is true; it is true of the first lines, and false of the
// rest. It reports whether there is such a line, or whether the log begins here.
func (c *Cursor) seek(before func(line []byte) bool) (bool, error) {
	c.last = 0
	oldest := c.log.out.oldest()
	for n := c.log.out.newest(); n >= oldest; n-- {
		if err := c.enter(n); errors.Is(err, fs.ErrNotExist) {
			continue // an operator has moved old segments away
		} else if err != nil {
			return false, err
		}
		if first, err := c.lineAt(0); err != nil {
			return false, err
		} else if len(first) > 0 && before(first) {
			return true, c.bisect(before)
		}
	}
	err := c.enter(oldest)
	return c.number == 1, err
}

// bisect moves the cursor within its segment. The first line is before.
func (c *Cursor) bisect(before func(line []byte) bool) error {
	fi, err := c.f.Stat()
	if err != nil {
		return err
	}
	low, high := int64(0), fi.Size() // the line at low is before; no line that begins at high or later is known to be
	for high-low > maxLine {
		middle := low + (high-low)/2
		skipped, err := c.lineAt(middle)
		if err != nil {
			return err
		}
		at := middle + int64(len(skipped))
		line, err := c.lineAt(at)
		if err != nil {
			return err
		}
		if at < high && len(line) > 0 && before(line) {
			low = at
		} else {
			high = middle
		}
	}
	c.offset = low
	return c.lines(func(line []byte) (bool, error) { return before(line), nil })
}

// lineAt returns what is from an offset to the end of the line there.
func (c *Cursor) lineAt(offset int64) ([]byte, error) {
	r := bufio.NewReaderSize(io.NewSectionReader(c.f, offset, maxLine), 4<<10)
	line, err := r.ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return line, err
}

// A Reader takes what a cursor reads. After an error of one of its functions, the cursor continues with the same line.
type Reader struct {
	Wanted func(line []byte) bool // chooses the lines to decode
	Entry  func(proto.AuditEntry) error
	Gap    func(from, to int64) error // entries with these numbers are missing here
}

// Read reads up to the present end. It skips lines that are damaged; Verify reports those.
func (c *Cursor) Read(ctx context.Context, r Reader) error {
	for {
		c.grown = c.log.growth()     // before the read, so that Wait misses no entry behind it
		newest := c.log.out.newest() // likewise: a segment that is not the newest does not grow
		err := c.lines(func(line []byte) (bool, error) {
			err := ctx.Err()
			if err == nil {
				err = c.pass(line, r)
			}
			return err == nil, err
		})
		if err != nil || c.number >= newest {
			return err
		}
		if err := c.enter(c.number + 1); err != nil {
			return err
		}
	}
}

// pass passes a line on.
func (c *Cursor) pass(line []byte, r Reader) error {
	seq, ok := lineSeq(line)
	if !ok {
		return nil
	}
	if c.last > 0 && seq > c.last+1 {
		if err := r.Gap(c.last+1, seq-1); err != nil {
			return err
		}
	}
	c.last = max(c.last, seq-1) // a gap is passed on once, even if Entry fails
	if r.Wanted(line) {
		if e, err := decode(line); err == nil {
			if err := r.Entry(e); err != nil {
				return err
			}
		}
	}
	c.last = max(c.last, seq)
	return nil
}

// Wait returns once there are entries that Read has not read.
func (c *Cursor) Wait(ctx context.Context) error {
	select {
	case <-c.grown:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lines calls fn with the whole lines from the cursor on, and moves the cursor behind those that fn takes.
func (c *Cursor) lines(fn func(line []byte) (bool, error)) error {
	r := bufio.NewReaderSize(io.NewSectionReader(c.f, c.offset, 1<<62), 256<<10)
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			var rest []byte
			line = bytes.Clone(line)
			rest, err = r.ReadBytes('\n')
			line = append(line, rest...)
		}
		if errors.Is(err, io.EOF) {
			return nil // a line without an end is being written
		}
		if err != nil {
			return err
		}
		on, err := fn(line)
		if err != nil || !on {
			return err
		}
		c.offset += int64(len(line))
	}
}

// enter moves the cursor to the beginning of a segment, or of the next one that exists.
func (c *Cursor) enter(number int) error {
	f, number, err := c.log.out.open(number)
	if err != nil {
		return err
	}
	if c.f != nil {
		_ = c.f.Close() // it was only read
	}
	c.f, c.number, c.offset = f, number, 0
	return nil
}

// open opens a segment to read, or the next one that exists.
func (o *output) open(number int) (*os.File, int, error) {
	o.mu.Lock() // rotate renames segments
	defer o.mu.Unlock()
	for ; number < o.newest(); number++ {
		f, err := os.Open(filepath.Join(o.dir, segmentName(number)))
		if !errors.Is(err, fs.ErrNotExist) {
			return f, number, err
		}
	}
	f, err := os.Open(filepath.Join(o.dir, current))
	return f, o.newest(), err
}

// newest returns the number of the segment that is written to.
func (o *output) newest() int { return int(o.number.Load()) }

// oldest returns the number of the first segment of the window.
func (o *output) oldest() int { return max(1, o.newest()-Window+1) }

// seqMember begins every line.
const seqMember = `{"seq":`

// lineSeq returns the number of the entry on a line, without decoding the rest.
func lineSeq(line []byte) (int64, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(seqMember))
	end := bytes.IndexByte(rest, ',')
	if !ok || end < 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(rest[:end]), 10, 64)
	return n, err == nil
}

package audit

import (
	"errors"
	"fmt"
)

// A Report is what Verify found.
type Report struct {
	Entries int64  `json:"entries"` // entries read, good or bad
	Seq     int64  `json:"seq"`     // of the last good entry
	Hash    string `json:"hash"`
	Beyond  int64  `json:"beyond"` // good entries after the anchor
	Bad     *Bad   `json:"bad"`    // the first error; nil if there is none
}

// A Bad describes an error in a log, and its place.
type Bad struct {
	Segment string `json:"segment"` // name of the file; "" if the error concerns the whole log
	Line    int    `json:"line"`    // in the segment, from 1
	Seq     int64  `json:"seq"`     // number of the bad or missing entry
	Kind    string `json:"kind"`    // one of the kinds below
	Message string `json:"message"`
}

// The kinds.
const (
	BadEdited     = "edited"     // the text is not the text that was hashed
	BadInserted   = "inserted"   // it does not follow on the one before: it, or that one, was written by somebody else
	BadDuplicated = "duplicated" // it was there before
	BadReordered  = "reordered"  // it stands too early; what belongs before it comes later
	BadCut        = "cut"        // entries before it are missing
	BadSegment    = "segment"    // a whole file is missing
	BadTail       = "tail"       // entries at the end are missing
	BadTorn       = "torn"       // the last line has no end
	BadHead       = "head"       // the end is not the one that was noted
)

// A Head is an end of the chain that is known from elsewhere: from the ledger, or noted by somebody.
type Head struct {
	Seq    int64  // 0: not known
	Hash   string // "" : nothing is known
	Exact  bool   // nothing may come after it
	Origin string // who knows it, for messages: "the ledger"
}

// Verify reads the whole log in dir and checks every entry, that they follow on each other, and that they reach the
// heads given. Its error is about reading; what is wrong with the log is in the report.
func Verify(dir string, heads ...Head) (Report, error) {
	now, err := take(dir)
	if err != nil {
		return Report{}, err
	}
	defer now.close()
	v := &verifier{log: now, last: head{0, genesis}, seen: map[string]int64{}, wanted: map[int64]string{}}
	v.watch(heads)
	for i, s := range now.list {
		if v.bad == nil && s.number != i+1 {
			v.fail(BadSegment, v.last.seq+1, "the segment %s is missing", segmentName(i+1))
		}
		if err := v.segment(s, now.list[i:]); err != nil {
			return Report{}, err
		}
		if v.bad != nil {
			break
		}
	}
	v.judge(heads)
	r := Report{Entries: v.entries, Seq: v.last.seq, Hash: v.last.hash, Bad: v.bad}
	for _, h := range heads {
		if h.Seq > 0 && h.Seq < r.Seq {
			r.Beyond = max(r.Beyond, r.Seq-h.Seq)
		}
	}
	return r, nil
}

// A verifier is one Verify.
type verifier struct {
	log     *snapshot
	name    string // of the segment that is read
	line    int
	last    head
	entries int64
	bad     *Bad
	seen    map[string]int64 // hashes that heads ask for, to their numbers
	wanted  map[int64]string // hashes by the numbers that heads name
	asked   map[string]bool
}

// watch notes the entries that the heads name, so that the others need not be kept.
func (v *verifier) watch(heads []Head) {
	v.asked = map[string]bool{}
	for _, h := range heads {
		v.asked[h.Hash] = true
		if h.Seq > 0 {
			v.wanted[h.Seq] = ""
		}
	}
}

func (v *verifier) fail(kind string, seq int64, format string, args ...any) {
	if v.bad == nil {
		v.bad = &Bad{Segment: v.name, Line: v.line, Seq: seq, Kind: kind, Message: fmt.Sprintf(format, args...)}
	}
}

// segment checks one file. rest is that file and the ones after it.
func (v *verifier) segment(s segment, rest []segment) error {
	v.name, v.line = s.name, 0
	err := v.log.scan(s, 0, func(line []byte) error {
		v.line++
		v.entries++
		if err := v.entry(line, rest); err != nil {
			return err
		}
		if v.bad != nil {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// entry checks one line against the line before.
func (v *verifier) entry(line []byte, rest []segment) error {
	next := v.last.seq + 1
	if line[len(line)-1] != '\n' {
		v.fail(BadTorn, next, "entry %d is torn: its line has no end", next)
		return nil
	}
	e, err := decode(line)
	switch {
	case err != nil:
		v.fail(BadEdited, next, "where entry %d should be, %v", next, err)
	case e.Seq == next && e.Prev == v.last.hash:
		v.accept(head{e.Seq, e.Hash})
	case e.Seq == next:
		v.fail(BadInserted, e.Seq, "entry %d does not follow on entry %d: one of the two was not written by the daemon",
			e.Seq, v.last.seq)
	case e.Seq == v.last.seq && e.Hash != v.last.hash:
		v.fail(BadInserted, e.Seq, "there are two different entries %d: one of them was not written by the daemon",
			e.Seq)
	case e.Seq < next:
		v.fail(BadDuplicated, e.Seq, "entry %d stands again behind entry %d", e.Seq, v.last.seq)
	default:
		return v.gap(e.Seq, rest)
	}
	return nil
}

func (v *verifier) accept(h head) {
	v.last = h
	if v.asked[h.hash] {
		v.seen[h.hash] = h.seq
	}
	if _, ok := v.wanted[h.seq]; ok {
		v.wanted[h.seq] = h.hash
	}
}

// gap distinguishes entries in the wrong order from missing entries.
func (v *verifier) gap(found int64, rest []segment) error {
	missing, later := v.last.seq+1, false
	for _, s := range rest {
		err := v.log.scan(s, 0, func(line []byte) error {
			if e, err := decode(line); err == nil && e.Seq == missing {
				later = true
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
	}
	if later {
		v.fail(BadReordered, found, "entry %d stands before entry %d", found, missing)
		return nil
	}
	v.fail(BadCut, missing, "entries %d to %d are missing", missing, found-1)
	return nil
}

// judge checks that the chain reaches the known heads.
func (v *verifier) judge(heads []Head) {
	v.name, v.line = "", 0
	for _, h := range heads {
		at, hasHash := v.seen[h.Hash]
		switch {
		case h.Hash == "" || v.bad != nil:
		case h.Seq > v.last.seq:
			v.fail(BadTail, v.last.seq+1, "entries %d to %d are missing at the end: %s knows them", v.last.seq+1, h.Seq,
				h.Origin)
		case h.Seq > 0 && v.wanted[h.Seq] != h.Hash:
			v.fail(BadHead, h.Seq, "entry %d is not the one that %s knows: the log was written anew", h.Seq, h.Origin)
		case h.Seq == 0 && !hasHash:
			v.fail(BadHead, v.last.seq,
				"no entry has the hash that %s knows: the log was cut before it, or written anew", h.Origin)
		case h.Exact && v.last.seq > max(h.Seq, at):
			v.fail(BadInserted, max(h.Seq, at)+1, "entries %d to %d were added after the daemon had ended",
				max(h.Seq, at)+1, v.last.seq)
		}
	}
}

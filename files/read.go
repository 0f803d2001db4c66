package files

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"berth/proto"
	"berth/state/ledger"
)

// The range of Query.Limit.
const (
	DefaultLimit = 20
	MaxLimit     = 1000
	MaxIDs       = 100 // of Query.IDs, after removing duplicates
)

// Get describes a file. An expired file is still described until Sweep removes its record.
func (s *Store) Get(_ context.Context, owner, id string) (proto.StoredFile, error) {
	rec, err := s.get("get file", owner, id)
	return rec.stored(), err
}

func (s *Store) get(op, owner, id string) (rec record, err error) {
	err = s.cfg.Ledger.View(func(tx *ledger.Tx) error {
		rec, err = find(tx, op, owner, id)
		return err
	})
	return rec, err
}

// Open opens a file's content; the caller closes it. An open file stays readable if it is deleted. Open fails with
// Expired once the file has expired.
//
// The result is an *os.File, so a server can pass it to the kernel as a whole.
func (s *Store) Open(_ context.Context, owner, id string) (io.ReadSeekCloser, proto.StoredFile, error) {
	const op = "open file"
	rec, err := s.get(op, owner, id)
	if err != nil {
		return nil, proto.StoredFile{}, err
	}
	if rec.expired(s.now()) {
		return nil, rec.stored(), proto.Errorf(proto.Expired, op, id,
			"File `%s` expired at %s; upload it again.", id, rec.ExpiresAt.Format("2006-01-02T15:04:05Z"))
	}
	f, err := os.Open(s.blobPath(rec.SHA256))
	if errors.Is(err, os.ErrNotExist) {
		if _, err := s.get(op, owner, id); err != nil {
			return nil, rec.stored(), err // it was deleted meanwhile
		}
		s.log.Error("file store: content is missing", "file", id)
		return nil, rec.stored(), proto.Errorf(proto.Internal, op, id,
			"The content of file `%s` is lost; delete the file and upload it again.", id)
	}
	if err != nil {
		return nil, rec.stored(), fmt.Errorf("opening the content of %s: %w", id, err)
	}
	return f, rec.stored(), nil
}

// A Query selects files. IDs excludes Limit and the cursors; AfterID and BeforeID exclude each other.
type Query struct {
	Limit    int      // 1 to MaxLimit; 0 is DefaultLimit
	AfterID  string   // only files after this ID in the list: older files
	BeforeID string   // only files directly before it: newer files
	Scope    string   // only files made by this container
	IDs      []string // only these; unknown ones are left out
}

// A Page is one answer to a Query, newest first.
type Page struct {
	Files []proto.StoredFile // never nil
	More  bool               // there are more in the direction asked for
}

// List lists an owner's files, newest first. A cursor is a position in the order; its file need not exist any more.
func (s *Store) List(_ context.Context, owner string, q Query) (Page, error) {
	if err := q.check(); err != nil {
		return Page{}, err
	}
	if q.Limit == 0 {
		q.Limit = DefaultLimit
	}
	page := Page{Files: []proto.StoredFile{}}
	err := s.cfg.Ledger.View(func(tx *ledger.Tx) error {
		var ids []string // in the order of the list
		var err error
		switch {
		case len(q.IDs) > 0:
			ids = unique(q.IDs)
			slices.Reverse(ids)
		case q.BeforeID != "":
			ids, page.More, err = q.newer(tx, owner)
		default:
			ids, page.More, err = q.older(tx, owner)
		}
		if err != nil {
			return err
		}
		page.Files, err = q.load(tx, owner, ids)
		return err
	})
	return page, err
}

func (q Query) check() error {
	const op = "list files"
	cursor := cmp.Or(q.AfterID, q.BeforeID)
	switch {
	case q.Limit < 0 || q.Limit > MaxLimit:
		return proto.Errorf(proto.InvalidArgument, op, "limit", "limit must be between 1 and %d.", MaxLimit)
	case q.AfterID != "" && q.BeforeID != "":
		return proto.Errorf(proto.InvalidArgument, op, "before_id", "before_id and after_id cannot be combined.")
	case cursor != "" && !proto.ValidID(proto.FilePrefix, cursor):
		return proto.Errorf(proto.InvalidArgument, op, "cursor", "The cursor is not the ID of a file.")
	case len(q.IDs) > 0 && (q.Limit != 0 || cursor != ""):
		return proto.Errorf(proto.InvalidArgument, op, "ids", "ids cannot be combined with a limit or a cursor.")
	case len(unique(q.IDs)) > MaxIDs:
		return proto.Errorf(proto.InvalidArgument, op, "ids", "At most %d different ids may be given.", MaxIDs)
	}
	return nil
}

// older walks down from AfterID, or from the top.
func (q Query) older(tx *ledger.Tx, owner string) (ids []string, more bool, err error) {
	before := ""
	if q.AfterID != "" {
		before = ownerKey(owner, q.AfterID)
	}
	err = q.walk(tx, owner, before, func(id string) bool {
		more = len(ids) == q.Limit
		if !more {
			ids = append(ids, id)
		}
		return !more
	})
	return ids, more, err
}

// newer walks down from the top to BeforeID and keeps the last ones it saw.
func (q Query) newer(tx *ledger.Tx, owner string) (ids []string, more bool, err error) {
	err = q.walk(tx, owner, "", func(id string) bool {
		if id <= q.BeforeID {
			return false
		}
		if len(ids) == q.Limit {
			ids, more = ids[1:], true
		}
		ids = append(ids, id)
		return true
	})
	return ids, more, err
}

// walk calls fn with an owner's IDs of the right scope in descending order until it returns false.
func (q Query) walk(tx *ledger.Tx, owner, before string, fn func(id string) bool) error {
	prefix := ownerKey(owner, "")
	return tx.ScanBack(bucketOwners, prefix, before, func(key string, data []byte) (bool, error) {
		var scope string
		if err := json.Unmarshal(data, &scope); err != nil {
			return false, err
		}
		if q.Scope != "" && q.Scope != scope {
			return true, nil
		}
		return fn(strings.TrimPrefix(key, prefix)), nil
	})
}

// load reads the records of ids. It leaves out those that the owner does not have, or that are of another scope.
func (q Query) load(tx *ledger.Tx, owner string, ids []string) ([]proto.StoredFile, error) {
	list := make([]proto.StoredFile, 0, len(ids))
	for _, id := range ids {
		rec, err := find(tx, "list files", owner, id)
		if proto.CodeOf(err) == proto.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		if q.Scope == "" || q.Scope == rec.Scope {
			list = append(list, rec.stored())
		}
	}
	return list, nil
}

// unique returns ids in ascending order without duplicates.
func unique(ids []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(ids)))
}

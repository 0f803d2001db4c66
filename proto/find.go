package proto

import (
	"encoding/base64"
	"path"
	"strings"
)

// Bounds of a search for files, and of a directory's list.
const (
	MaxFindPage  = 10_000 // entries of one page
	MaxFindDepth = 200    // levels below the directory; each holds a descriptor
	MaxGlobs     = 64     // of one request
	MaxGlobBytes = 1024   // length of a glob
	maxCursor    = 8192   // length of a cursor
)

// FindOptions say which entries below a directory are found. The zero value finds all.
type FindOptions struct {
	// Names has globs of which one must match: *, ? and [a-z] within a name, ** for any directories. A glob without a
	// slash is compared with the last part of a path, another one with the path below the directory.
	Names []string `json:"names,omitempty"`
	// Exclude has globs of what is left out, directories with all that is below them.
	Exclude    []string   `json:"exclude,omitempty"`
	IgnoreCase bool       `json:"ignore_case,omitempty"` // in Names and Exclude
	Types      []FileType `json:"types,omitempty"`       // of the entries; empty: all
	MinSize    int64      `json:"min_size,omitempty"`    // bytes; files alone have a size
	MaxSize    *int64     `json:"max_size,omitempty"`    // bytes, of files; nil: any
	After      *Time      `json:"after,omitempty"`       // modified at this time or later
	Before     *Time      `json:"before,omitempty"`      // modified before this time
	Depth      int        `json:"depth,omitempty"`       // levels; 1 is the directory's own entries, 0 all
	Limit      int        `json:"limit,omitempty"`       // entries of the page; 0: MaxFindPage
	Cursor     []byte     `json:"cursor,omitempty"`      // FindPage.Next of the page before
}

// A FindPage is one part of the entries below a directory: depth first, by the bytes of their names, each directory
// before what is in it.
type FindPage struct {
	Files []FileInfo
	// Next is where the next page begins: after this path below the directory. It is nil at the end. Entries that are
	// there all the time are on one page each, whatever comes and goes meanwhile. A page may be short, or empty, and
	// not the last one: a search looks at a bounded number of entries.
	Next []byte
	// Skipped counts directories that were left out since the user may not read them, since they are too deep, or
	// since their paths are too long.
	Skipped int
}

// Check refuses options that no guest accepts.
func (o *FindOptions) Check() error {
	for _, globs := range [][]string{o.Names, o.Exclude} {
		if len(globs) > MaxGlobs {
			return Invalid("name", "There are %d globs; %d is the limit.", len(globs), MaxGlobs)
		}
		for _, g := range globs {
			if err := CheckGlob(g); err != nil {
				return err
			}
		}
	}
	switch {
	case o.Depth < 0 || o.Depth > MaxFindDepth:
		return Invalid("depth", "depth must be from 0 to %d.", MaxFindDepth)
	case o.Limit < 0 || o.Limit > MaxFindPage:
		return Invalid("limit", "limit must be from 0 to %d.", MaxFindPage)
	}
	return nil
}

// CheckGlob reports what is wrong with a glob.
func CheckGlob(glob string) error {
	if glob == "" || len(glob) > MaxGlobBytes {
		return Invalid("name", "A glob must have 1 to %d bytes.", MaxGlobBytes)
	}
	for part := range strings.SplitSeq(glob, "/") {
		if _, err := path.Match(part, ""); err != nil {
			return Invalid("name", "The glob %.80q has a [ without its ], or ends with a backslash.",
				strings.ToValidUTF8(glob, "\uFFFD"))
		}
	}
	return nil
}

// EncodeCursor returns a cursor as text for clients.
func EncodeCursor(cursor []byte) string { return base64.RawURLEncoding.EncodeToString(cursor) }

// ParseCursor reads a text of EncodeCursor.
func ParseCursor(text string) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) > maxCursor || strings.IndexByte(string(b), 0) >= 0 {
		return nil, Invalid("after", "after %.80q is not the next_after of a page; leave it out for the first page.",
			strings.ToValidUTF8(text, "\uFFFD"))
	}
	return b, nil
}

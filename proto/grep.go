package proto

import "unicode/utf8"

// Bounds of a search for text.
const (
	MaxGrepPattern = 4096   // bytes
	MaxGrepMatches = 10_000 // lines with a match
	MaxGrepContext = 20     // lines around a match, on each side
	DefaultMatches = 1000   // lines with a match, if none are asked for
)

// GrepOptions say what to look for, and in which files.
type GrepOptions struct {
	FindOptions        // which files: Names, Exclude and Depth; IgnoreCase is for globs and pattern
	Pattern     string `json:"pattern"`         // a regular expression of RE2, for one line
	Fixed       bool   `json:"fixed,omitempty"` // Pattern is the text itself
	LinesBefore int    `json:"lines_before,omitempty"`
	LinesAfter  int    `json:"lines_after,omitempty"`
	MaxMatches  int    `json:"max_matches,omitempty"`  // lines with a match; 0: DefaultMatches
	MaxPerFile  int    `json:"max_per_file,omitempty"` // lines with a match; 0: all
}

// Check refuses options that no guest accepts, except for a malformed pattern.
func (o *GrepOptions) Check() error {
	switch {
	case o.Pattern == "" || len(o.Pattern) > MaxGrepPattern || !utf8.ValidString(o.Pattern):
		return Invalid("pattern", "pattern must be UTF-8 and have 1 to %d bytes.", MaxGrepPattern)
	case o.LinesBefore < 0 || o.LinesBefore > MaxGrepContext || o.LinesAfter < 0 || o.LinesAfter > MaxGrepContext:
		return Invalid("context", "Lines of context must be from 0 to %d.", MaxGrepContext)
	case o.MaxMatches < 0 || o.MaxMatches > MaxGrepMatches:
		return Invalid("max_matches", "max_matches must be from 0 to %d.", MaxGrepMatches)
	case o.MaxPerFile < 0:
		return Invalid("max_per_file", "max_per_file must not be negative.")
	}
	return o.FindOptions.Check()
}

// What an event of a search for text is.
type GrepEventType string

// The types of a GrepEvent.
const (
	GrepMatch   GrepEventType = "match"   // A line with a match.
	GrepContext GrepEventType = "context" // A line near one.
	GrepEnd     GrepEventType = "end"     // The search has ended; the event has its summary.
)

// A GrepEvent is a line that a search for text has found, or its end.
type GrepEvent struct {
	Type    GrepEventType `json:"type"`
	Path    string        `json:"path,omitempty"`        // Absolute; bytes that are not UTF-8 show as U+FFFD.
	RawPath []byte        `json:"path_base64,omitempty"` // The true path, where it is not UTF-8.
	Line    int64         `json:"line,omitempty"`        // From 1.
	Column  int64         `json:"column,omitempty"`      // Of the first match, in bytes from 1.
	Length  int           `json:"length,omitempty"`      // Of the first match, in bytes.
	// The line, or the part of a long one around the match, at most 2,000 bytes.
	Text       string       `json:"text,omitempty"`
	TextColumn int64        `json:"text_column,omitempty"` // Where text begins in the line, if not at 1.
	Cut        bool         `json:"cut,omitempty"`         // The line is longer than text.
	Summary    *GrepSummary `json:"summary,omitempty"`
}

// A GrepSummary is what a search for text has done.
type GrepSummary struct {
	Matches      int  `json:"matches"`       // Lines with a match.
	Files        int  `json:"files"`         // Files with a match.
	Searched     int  `json:"searched"`      // Files that were searched.
	BinaryFiles  int  `json:"binary_files"`  // Files that were not searched, or not to the end, for a NUL byte.
	SkippedFiles int  `json:"skipped_files"` // Files that the user may not read.
	Skipped      int  `json:"skipped_directories"`
	Truncated    bool `json:"truncated"` // The search ended early, at a limit of matches, output or time.
}

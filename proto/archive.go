package proto

import (
	"archive/tar"
	"io"
	"net/url"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// An ArchiveNote says why an archive of a container's directory lacks a file, or has a part of it only. It stands in
// the archive as a comment: a global header (pax) of the keyword ArchiveComment. Its value begins with the note and
// continues with the name of the file. Other programs that unpack archives skip comments.
type ArchiveNote string

// ArchiveComment is the keyword of notes.
const ArchiveComment = "comment"

// The notes.
const (
	ArchiveLeftOut    ArchiveNote = "left out: "   // a pipe, socket or device, which an archive cannot hold
	ArchiveUnreadable ArchiveNote = "unreadable: " // the user may not read it, or it cannot be opened
	ArchiveIncomplete ArchiveNote = "incomplete: " // it could not be read to its end; see CopyPadded
)

// Header returns the note about a file.
func (n ArchiveNote) Header(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{ArchiveComment: string(n) + name}}
}

// NoteOf returns the note that a header is, and the file's name. ok is false for another header.
func NoteOf(h *tar.Header) (n ArchiveNote, name string, ok bool) {
	if h.Typeflag != tar.TypeXGlobalHeader {
		return "", "", false
	}
	for _, n := range []ArchiveNote{ArchiveLeftOut, ArchiveUnreadable, ArchiveIncomplete} {
		if name, ok := strings.CutPrefix(h.PAXRecords[ArchiveComment], string(n)); ok {
			return n, name, true
		}
	}
	return "", "", false
}

// CopyPadded copies the n bytes of a file that its header in an archive promises. If the file cannot be read to there,
// as one that became shorter, zeros follow. The archive is whole then, as GNU tar does it. The error is one of w.
func CopyPadded(w io.Writer, file io.Reader, n int64) (padded bool, err error) {
	src := &noteError{r: file}
	done, err := io.Copy(w, io.LimitReader(src, n))
	if err != nil && src.err == nil || done == n {
		return false, err
	}
	_, err = io.CopyN(w, zeros{}, n-done)
	return true, err
}

// noteError keeps the error of a reader, to tell it from those of the writer.
type noteError struct {
	r   io.Reader
	err error
}

func (n *noteError) Read(p []byte) (int, error) {
	k, err := n.r.Read(p)
	if err != nil && err != io.EOF {
		n.err = err
	}
	return k, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// Unread are the files that an archive lacks, or has a part of only, because they could not be read.
type Unread struct {
	Count int64
	Names []string // the first of them, as far as they fit into MaxUnreadText
}

// MaxUnreadText is the length in bytes to which the names of an Unread are cut.
const MaxUnreadText = 4000

// Add counts a file.
func (u *Unread) Add(name string) {
	u.Count++
	// Once a name did not fit, no later one is kept, so that the list has no gap.
	if int64(len(u.Names)) == u.Count-1 && len(Unread{Names: u.Names}.Text())+3*len(name) < MaxUnreadText {
		u.Names = append(u.Names, name)
	}
}

// The trailers of an answer that is an archive. They come once it is complete: a broken one has none.
const (
	UnreadTrailer      = "Berth-Unread"       // Unread.Count
	UnreadNamesTrailer = "Berth-Unread-Names" // Unread.Text
)

// UnreadOf returns what an archive lacks, once it was read to its end. It is nil if its reader does not tell.
func UnreadOf(r io.Reader) *Unread {
	if a, ok := r.(interface{ Unread() *Unread }); ok {
		return a.Unread()
	}
	return nil
}

// Text returns the names in a form for a header: separated by ", ", and with all bytes percent-encoded but letters,
// digits and "-._~/".
func (u Unread) Text() string {
	var list []string
	for _, name := range u.Names {
		list = append(list, asInPath.Replace(url.QueryEscape(name)))
	}
	return strings.Join(list, ", ")
}

// asInPath undoes what url.QueryEscape does otherwise than Text says.
var asInPath = strings.NewReplacer("+", "%20", "%2F", "/")

// ParseUnread reads the values of the two trailers. ok is false if they are not there.
func ParseUnread(count, names string) (u Unread, ok bool) {
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || n < 0 {
		return u, false
	}
	u.Count = n
	for part := range strings.SplitSeq(names, ",") {
		if name, err := url.PathUnescape(strings.TrimSpace(part)); err == nil && name != "" {
			u.Names = append(u.Names, name)
		}
	}
	return u, true
}

// LinkStaysInside reports whether a symbolic link called name in an archive leads to a target inside the unpacked
// directory. The client skips other links, and the guest refuses them. A target with ".." after a directory name is not
// inside: the directory may be a link, so the result is unknown.
func LinkStaysInside(name, target string) bool {
	down := false
	for part := range strings.SplitSeq(target, "/") {
		if part == ".." && down {
			return false
		}
		down = down || part != ".." && part != "." && part != ""
	}
	return !path.IsAbs(target) && filepath.IsLocal(path.Join(path.Dir(name), target))
}

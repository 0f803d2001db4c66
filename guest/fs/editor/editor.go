// Package editor runs the commands of the text editor tool in a container: view, create, str_replace and insert. Its
// error messages are those that models know from this tool. Package guest/fs calls it; package guest/fs/hunk describes
// the changes.
package editor

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"berth/guest/fs/access"
	"berth/guest/fs/hunk"
	"berth/guest/user"
	"berth/guest/wire"
	"berth/proto"
)

// Limits of the editor.
const (
	maxView = 16 << 20 // bytes of text that one view returns, and bytes of a file that is edited
	maxScan = 1 << 30  // bytes of a file that is read for a range of its lines
)

// An Editor runs the commands of the editor tool on the files of one container. It is safe for concurrent use.
type Editor struct {
	workspace access.Workspace
	editing   sync.Mutex // held from the read of a file to its replacement; see Run
}

// New makes an editor for a container with this workspace.
func New(w access.Workspace) *Editor { return &Editor{workspace: w} }

// viewDepth is the depth of a directory view.
const viewDepth = 2

// Run runs one command of the editor. A view changes nothing and takes no lock, so a long view does not block edits.
func (e *Editor) Run(id user.User, path string, in *proto.EditorInput) (proto.EditorResult, error) {
	if in.Command == "view" {
		return e.view(id, path, in)
	}
	e.editing.Lock() // from the read to the write; otherwise one of two concurrent edits would undo the other
	defer e.editing.Unlock()
	switch in.Command {
	case "create":
		return e.create(id, path, in)
	case "str_replace":
		return e.strReplace(id, path, in)
	case "insert":
		return e.insert(id, path, in)
	}
	return proto.EditorResult{}, invalid("command", "unknown command %q; use view, create, str_replace or insert",
		wire.CleanText(in.Command, 64))
}

// invalid returns an error that says how to correct the call.
func invalid(item, format string, args ...any) error {
	return proto.Errorf(proto.InvalidArgument, wire.OpEdit, item, format, args...)
}

// editError reports an error of opening a file in the words that models know. The sentences are part of the tool: a
// model that has seen them before knows what to do next.
func editError(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case access.IsMissing(err), errors.Is(err, unix.ENOTDIR):
		return proto.Errorf(proto.NotFound, wire.OpEdit, path,
			"The path %s does not exist. Please provide a valid path.",
			path)
	case errors.Is(err, unix.EISDIR):
		return invalid(path, "The path %s is a directory and only the `view` command can be used on directories", path)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return proto.Errorf(proto.PermissionDenied, wire.OpEdit, path, "Permission denied. Cannot access file %s.",
			path)
	}
	return wire.FileError(wire.OpEdit, path, err)
}

// view shows a file or a directory. It opens the file as the user and uses only that descriptor from then on, because
// the path may lead elsewhere at any time.
func (e *Editor) view(id user.User, path string, in *proto.EditorInput) (proto.EditorResult, error) {
	f, st, err := access.OpenAs(id, path, unix.O_RDONLY)
	if errors.Is(err, unix.EISDIR) {
		if len(in.ViewRange) > 0 {
			return proto.EditorResult{}, invalid("view_range", "The `view_range` parameter is not allowed when "+
				"`path` points to a directory.")
		}
		files, err := viewDir(id, path)
		return proto.EditorResult{List: files}, editError(path, err)
	}
	if err != nil {
		return proto.EditorResult{}, editError(path, err)
	}
	defer f.Close()
	// File type detection usually looks at 512 bytes.
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return proto.EditorResult{}, editError(path, err)
	}
	kind, err := fileType(path, head[:n])
	if err != nil {
		return proto.EditorResult{}, err
	}
	var v *proto.EditorView
	if kind == "text" {
		v, err = viewText(f, path, st.Size, in.ViewRange)
	} else {
		v, err = viewBinary(f, path, kind, st.Size, in.ViewRange)
	}
	return proto.EditorResult{View: v}, err
}

// signatures are the first bytes of the file types that a view shows as image or PDF.
var signatures = []struct{ head, kind string }{
	{"\x89PNG\r\n\x1a\n", "image"},
	{"\xff\xd8\xff", "image"}, // JPEG
	{"GIF87a", "image"},
	{"GIF89a", "image"},
	{"%PDF-", "pdf"},
}

// fileType determines the editor's file type from the first bytes. A NUL byte marks a binary file, as in git and
// grep. Other bytes may be an old encoding and count as text.
func fileType(path string, head []byte) (string, error) {
	for _, s := range signatures {
		if bytes.HasPrefix(head, []byte(s.head)) {
			return s.kind, nil
		}
	}
	if len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == "WEBP" {
		return "image", nil
	}
	if bytes.IndexByte(head, 0) >= 0 {
		return "",
			invalid(path, "%s is a binary file, not text. Use bash to look at it, with `file` or `xxd` for instance.",
				path)
	}
	return "text", nil
}

// viewBinary returns an image or PDF as base64. Images and PDFs go to the model unchanged. The size is that of the
// open file; if the file has shrunk since then, the result ends in zeros.
func viewBinary(f *os.File, path, kind string, size int64, lines []int) (*proto.EditorView, error) {
	if len(lines) > 0 {
		return nil, invalid("view_range", "%s is no text file (%s); view it without `view_range`.", path, kind)
	}
	if size > maxView {
		return nil, tooLarge(path, size)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, editError(path, err)
	}
	return &proto.EditorView{Type: proto.TypeEditorView, FileType: kind, Content: base64.StdEncoding.EncodeToString(b)},
		nil
}

// tooLarge returns an error that names the two alternatives: a part of the file, or other tools.
func tooLarge(path string, size int64) error {
	return proto.Errorf(proto.TooLarge, wire.OpEdit, path,
		"%s has %d bytes; the editor takes up to %d. View a range of its lines with `view_range`, or use bash.", path,
		size, maxView)
}

// viewText returns the lines of a range. It reads the file once and keeps only the range.
func viewText(f *os.File, path string, size int64, lines []int) (*proto.EditorView, error) {
	// Without a range the answer holds the whole file. With a range the file is only read through, which costs time
	// but no memory.
	if size > maxView && len(lines) == 0 || size > maxScan {
		return nil, tooLarge(path, size)
	}
	first, last, err := rangeOf(lines)
	if err != nil {
		return nil, err
	}
	c := &cutter{first: first, last: last}
	// The section ends at the file's size at the open, so that a growing file does not make the read endless.
	if err := c.read(io.NewSectionReader(f, 0, size)); err != nil {
		if errors.Is(err, errTooLong) {
			return nil, tooLarge(path, size)
		}
		return nil, editError(path, err)
	}
	if err := c.check(lines); err != nil {
		return nil, err
	}
	start, total := first, c.total
	count := min(last, total) - first + 1
	if total == 0 {
		count = 0
	}
	// The answer is JSON and must be UTF-8. The file itself does not change: an edit works with its bytes.
	text := strings.ToValidUTF8(string(bytes.TrimSuffix(c.kept, []byte{'\n'})), "\uFFFD")
	return &proto.EditorView{
		Type: proto.TypeEditorView, FileType: "text", Content: text,
		NumLines: &count, StartLine: &start, TotalLines: &total,
	}, nil
}

// endless means the end of a file whose number of lines is not known yet.
const endless = int(^uint(0) >> 1)

// rangeOf checks a view_range as far as possible without the file.
func rangeOf(r []int) (first, last int, err error) {
	switch {
	case len(r) == 0:
		return 1, endless, nil
	case len(r) != 2:
		return 0, 0, invalid("view_range", "Invalid `view_range`. It should be a list of two integers.")
	case r[0] < 1:
		return 0, 0, invalid("view_range", "Invalid `view_range`: %v. Its first element `%d` should be at least 1: "+
			"lines are counted from 1.", r, r[0])
	case r[1] == -1:
		return r[0], endless, nil
	case r[1] < r[0]:
		return 0, 0, invalid("view_range", "Invalid `view_range`: %v. Its second element `%d` should be at least "+
			"the first, `%d`, or -1 for the end of the file.", r, r[1], r[0])
	}
	return r[0], r[1], nil
}

// errTooLong is reported as too large: the range does not fit, not the file.
var errTooLong = errors.New("more than an answer holds")

// cutter counts the lines of a text and keeps those from first to last.
type cutter struct {
	first, last int
	total       int
	kept        []byte
}

// read reads to the end in pieces, because one line may be longer than all memory.
func (c *cutter) read(r io.Reader) error {
	br := bufio.NewReaderSize(r, 64<<10)
	partial := false
	for {
		piece, err := br.ReadSlice('\n')
		if len(piece) > 0 {
			if line := c.total + 1; line >= c.first && line <= c.last {
				if len(c.kept)+len(piece) > maxView {
					return errTooLong
				}
				c.kept = append(c.kept, piece...)
			}
			partial = piece[len(piece)-1] != '\n'
			if !partial {
				c.total++
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if partial {
				c.total++
			}
			return nil
		// A full buffer without a newline is a piece of a long line, not an error.
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// check compares a range with the file's lines.
func (c *cutter) check(r []int) error {
	if len(r) == 0 {
		return nil
	}
	if c.first > max(c.total, 1) {
		return invalid("view_range", "Invalid `view_range`: %v. Its first element `%d` should be within the range "+
			"of lines of the file: [1, %d]", r, c.first, c.total)
	}
	if c.last != endless && c.last > max(c.total, 1) {
		return invalid("view_range", "Invalid `view_range`: %v. Its second element `%d` should not be larger than "+
			"the number of lines in the file: `%d`", r, c.last, c.total)
	}
	return nil
}

// viewDir lists a directory two levels deep, without hidden entries and node_modules.
func viewDir(id user.User, path string) ([]proto.FileInfo, error) {
	files := []proto.FileInfo{}
	err := id.Do(func() error {
		d, err := access.OpenDir(unix.AT_FDCWD, path, true)
		if err != nil {
			return err
		}
		defer d.Close()
		files, err = viewLevel(d, path, 1, files)
		return err
	})
	return files, err
}

// viewLevel descends by descriptors, never by names from the top. So a directory that is replaced by a link in the
// meantime leads nowhere.
func viewLevel(d *os.File, path string, depth int, files []proto.FileInfo) ([]proto.FileInfo, error) {
	// The number of entries is bounded before they are sorted, so that a directory of millions does not use up the
	// guest's memory.
	names, err := d.Readdirnames(wire.MaxList)
	if err != nil && !errors.Is(err, io.EOF) {
		return files, err
	}
	slices.Sort(names)
	for _, name := range names {
		if strings.HasPrefix(name, ".") || name == "node_modules" || len(files) >= wire.MaxList {
			continue
		}
		child := filepath.Join(path, name)
		fi, err := access.InfoAt(int(d.Fd()), name, child)
		if err != nil {
			continue // removed in the meantime
		}
		files = append(files, fi)
		if fi.Type != proto.TypeDirectory || depth == viewDepth {
			continue
		}
		sub, err := access.OpenDir(int(d.Fd()), name, false)
		if err != nil {
			continue // listed, but not readable
		}
		files, _ = viewLevel(sub, child, depth+1, files)
		_ = sub.Close()
	}
	return files, nil
}

// create makes a file, or replaces its content.
func (e *Editor) create(id user.User, path string, in *proto.EditorInput) (proto.EditorResult, error) {
	if in.FileText == nil {
		return proto.EditorResult{}, invalid("file_text", "Parameter `file_text` is required for command: create")
	}
	before, err := e.replaceFile(id, path, []byte(*in.FileText), nil)
	if err != nil {
		return proto.EditorResult{}, err
	}
	return proto.EditorResult{Create: &proto.EditorCreate{Type: proto.TypeEditorCreate, IsFileUpdate: before}}, nil
}

// replaceFile writes a whole file and reports whether the file existed before. If was is set, the file must still be
// in that state. The text goes to a temporary file beside it, which is then renamed: a reader sees the old file or
// the new one, never a mix.
func (e *Editor) replaceFile(id user.User, path string, text []byte, was *unix.Stat_t) (bool, error) {
	file, err := e.workspace.Create(id, path, wire.WriteOptions{})
	if err != nil {
		// For a directory, the error of opening for writing says less than the message that models know.
		if proto.CodeOf(err) == proto.InvalidArgument {
			if st, serr := os.Stat(path); serr == nil && st.IsDir() {
				err = editError(path, unix.EISDIR)
			}
		}
		return false, err
	}
	if _, err := file.Write(text); err != nil {
		file.Drop()
		return false, wire.FileError(wire.OpEdit, path, err)
	}
	// The lock excludes only other edits. A command may write to the file at any time.
	if was != nil && !file.Unchanged(was) {
		file.Drop()
		return false, proto.Errorf(proto.Conflict, wire.OpEdit, path,
			"%s was changed by a command while it was edited. View it and edit again.", path)
	}
	_, err = file.Commit()
	return file.Replaces(), err
}

// load reads a file that is to be changed, and returns the state that it had.
func load(id user.User, path string) ([]byte, *unix.Stat_t, error) {
	f, st, err := access.OpenAs(id, path, unix.O_RDONLY)
	if err != nil {
		return nil, nil, editError(path, err)
	}
	defer f.Close()
	if st.Size > maxView {
		return nil, nil, tooLarge(path, st.Size)
	}
	// The size was checked a moment ago. The limit also holds for a file that has grown since then.
	text, err := io.ReadAll(io.LimitReader(f, maxView+1))
	if err == nil && len(text) > maxView {
		return nil, nil, tooLarge(path, int64(len(text)))
	}
	return text, st, editError(path, err)
}

// strReplace replaces the only occurrence of old_str.
func (e *Editor) strReplace(id user.User, path string, in *proto.EditorInput) (proto.EditorResult, error) {
	// An empty old_str matches everywhere, so it is refused like a missing one.
	if in.OldStr == nil || *in.OldStr == "" {
		return proto.EditorResult{}, invalid("old_str", "Parameter `old_str` is required for command: str_replace, "+
			"and must not be empty")
	}
	text, was, err := load(id, path)
	if err != nil {
		return proto.EditorResult{}, err
	}
	old, replacement := []byte(*in.OldStr), []byte(nil)
	if in.NewStr != nil {
		replacement = []byte(*in.NewStr)
	}
	at, lines, n := find(text, old)
	if n == 0 {
		return proto.EditorResult{}, invalid("old_str", "No replacement was performed, old_str `%s` did not appear "+
			"verbatim in %s. The number of matches is 0; compare the text with `view`.", quote(*in.OldStr), path)
	}
	// More than one match is an error, because only the caller knows which one was meant.
	if n > 1 {
		return proto.EditorResult{}, invalid("old_str", "No replacement was performed. Multiple occurrences of "+
			"old_str `%s` in lines [%s]: %d matches. Please ensure it is unique", quote(*in.OldStr), lines, n)
	}
	after := slices.Concat(text[:at.from], at.fitted(text, old, replacement), text[at.to:])
	return e.changed(id, path, was, text, after)
}

// changed writes the new text and describes the change. It fails if a command has changed the file since it was read.
func (e *Editor) changed(id user.User, path string, was *unix.Stat_t, before, after []byte) (proto.EditorResult,
	error) {
	if _, err := e.replaceFile(id, path, after, was); err != nil {
		return proto.EditorResult{}, err
	}
	h := hunk.Between(before, after)
	return proto.EditorResult{Replace: &h}, nil
}

// quote shortens text that an error repeats. A model gets its text back to compare, but not megabytes.
func quote(s string) string {
	if len(s) <= 1000 {
		return s
	}
	return wire.CleanText(s, 1000) + "…"
}

// maxNamedLines is the maximum number of lines that an error names.
const maxNamedLines = 50

// matches counts the occurrences of old and names the lines where they begin. It counts overlapping ones too, since
// each could be meant.
func matches(text, old []byte) (lines string, n int) {
	var named []string
	line, from := 1, 0
	for {
		i := bytes.Index(text[from:], old)
		if i < 0 {
			return strings.Join(named, ", "), n
		}
		line += bytes.Count(text[from:from+i], []byte{'\n'})
		if n++; n <= maxNamedLines {
			named = append(named, strconv.Itoa(line))
		} else if n == maxNamedLines+1 {
			named = append(named, "…")
		}
		// The next search begins one byte later, so that it finds overlapping occurrences. A newline that is passed
		// this way is counted here.
		if text[from+i] == '\n' {
			line++
		}
		from += i + 1
	}
}

// insert puts text after a line.
func (e *Editor) insert(id user.User, path string, in *proto.EditorInput) (proto.EditorResult, error) {
	add := in.InsertText
	if add == nil {
		add = in.NewStr // the name in older versions of the tool
	}
	switch {
	case in.InsertLine == nil:
		return proto.EditorResult{}, invalid("insert_line", "Parameter `insert_line` is required for command: insert")
	case add == nil:
		return proto.EditorResult{}, invalid("insert_text", "Parameter `insert_text` is required for command: insert")
	}
	text, was, err := load(id, path)
	if err != nil {
		return proto.EditorResult{}, err
	}
	plain := bytes.TrimPrefix(text, bom)
	n, lines := *in.InsertLine, hunk.CountLines(plain)
	if n < 0 || n > lines {
		return proto.EditorResult{}, invalid("insert_line", "Invalid `insert_line` parameter: %d. It should be "+
			"within the range of lines of the file: [0, %d]", n, lines)
	}
	at := hunk.LineStart(plain, n)
	after := inserted(plain[:at], plain[at:], *add)
	if hasCRLF(plain, at) {
		// only the new lines: the others may differ
		head, tail := after[:at], after[len(after)-(len(plain)-at):]
		after = slices.Concat(head, withCRLF(after[at:len(after)-len(tail)]), tail)
	}
	return e.changed(id, path, was, text, slices.Concat(text[:len(text)-len(plain)], after))
}

// inserted puts text on lines of its own between two parts of a text, and adds missing newlines. An empty text
// changes nothing, not even the file's last newline.
func inserted(before, after []byte, text string) []byte {
	var first, last string
	if text != "" && len(before) > 0 && before[len(before)-1] != '\n' {
		first = "\n"
	}
	if text != "" && len(after) > 0 && !strings.HasSuffix(text, "\n") {
		last = "\n"
	}
	b := make([]byte, 0, len(before)+len(first)+len(text)+len(last)+len(after))
	return append(append(append(append(append(b, before...), first...), text...), last...), after...)
}

package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"berth/proto"
)

// Group 6: names of files. Group 12: names of jobs. POSIX allows every byte in a name except NUL and slash. All other
// bytes must be returned unchanged, and must have no special meaning.
var _ = register(
	Case{
		// If a name is changed, two files may become one, and one of them is lost.
		Group: 6, Name: "names/files", Inside: true,
		Tries: "write, list, read back and remove files with names of 255 and 256 bytes, newlines, options, " +
			"escapes, invalid UTF-8, marks for right to left, and twins in case and composition",
		Wants: "each is kept apart byte for byte, or refused by name",
		Run:   fileNames,
	},
	Case{
		// Names appear in a header of an answer. CRLF in a name would split the answer (CWE-113), and a right-to-left
		// mark can disguise an .exe as a picture.
		Group: 6, Name: "names/downloads",
		Tries: "have outputs and uploads stored under names with line ends, quotes, control characters and headers in them",
		Wants: "a download has one Content-Disposition with that name made harmless, and no header that the name asked for",
		Run:   downloadNames,
	},
	Case{
		// A job's name is the name of a directory below the workspace, so ".." would be the workspace's parent.
		Group: 12, Name: "names/jobs",
		Tries: "run commands in, and ask for the books of, jobs named \"..\", by paths, by 10 KiB, in another case, " +
			"of another tenant, and of a container that is gone",
		Wants: "each is refused as invalid or not found, and twins in case are two jobs",
		Run:   jobNames,
	},
)

// hostileNames are names that can be in one directory together.
var hostileNames = []string{
	// 255 bytes are the maximum of Linux file systems. Options and shell characters are for tools that put names into
	// command lines.
	strings.Repeat("n", 255), "new\nline", "-rf", "--help", " ", "$(reboot)", "`reboot`", "a;b&c|d", `"quoted'`,
	`back\slash`, "\x1b[31mred\x1b[0m", "bell\a", "tab\t",
	// Composed and decomposed letters look alike but are different bytes. Invalid UTF-8 must not be replaced by
	// U+FFFD, which is also used as a name here.
	"bad\xff", "bad\xfe", "bad\uFFFD", "\u202Eexe.txt", "caf\u00e9", "cafe\u0301", "Case", "case", "~", "*", "?", "[a]",
	"%2e%2e%2f", "a%00b", "CON", "..a", "...", "\r", "\u2028",
}

// fileNames creates all names in one directory. If a name is changed, two of them may become one.
func fileNames(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	const dir = "/workspace/names/dir"
	fs := t.FS(b.id, proto.UserDefault)
	for i, name := range hostileNames {
		if _, err := fs.Write(ctx, dir+"/"+name, 0, strings.NewReader(fmt.Sprint(i)), 0); err != nil {
			return "", fmt.Errorf("writing %q: %w", name, err)
		}
	}
	list, err := fs.List(ctx, dir)
	if err != nil || len(list) != len(hostileNames) {
		return "", Breached("%d names became %d files: %v", len(hostileNames), len(list), err)
	}
	for i, name := range hostileNames {
		a, err := t.ask(ctx, "GET", b.at("fs/content"), b.query(dir+"/"+name), nil)
		if err != nil || string(a.body) != fmt.Sprint(i) {
			return "", Breached("%q holds %.100q %v", name, a.body, err)
		}
	}
	// 256 bytes: as 256 letters, and as 128 characters. The limit counts bytes.
	for _, name := range []string{strings.Repeat("n", 256), strings.Repeat("é", 128)} {
		_, err := fs.Write(ctx, dir+"/"+name, 0, strings.NewReader("x"), 0)
		if _, err := Refused(err, proto.InvalidArgument); err != nil {
			return "", err
		}
	}
	for _, what := range []string{"fs/tar", "fs/stat"} {
		a, err := t.ask(ctx, "GET", b.at(what), b.query(dir), nil)
		if err != nil || a.status != 200 || a.cut {
			return "", Breached("%s: %d, cut off: %v, %v", what, a.status, a.cut, err)
		}
	}
	// JSON cannot hold names that are not UTF-8; they may be left out.
	if m, err := t.Manifest(ctx, b.id, "names"); err != nil || len(m.Files) < len(hostileNames)-4 {
		return "", Breached("the manifest has %d of %d files: %v", len(m.Files), len(hostileNames), err)
	}
	for _, name := range hostileNames {
		a, err := t.ask(ctx, "DELETE", b.at("fs/content"), b.query(dir+"/"+name), nil)
		if err != nil || a.status != 200 {
			return "", Breached("%q cannot be removed: %d %v", name, a.status, err)
		}
	}
	return fmt.Sprintf("%d names were kept apart, two were refused", len(hostileNames)), nil
}

// downloadNames creates files whose names contain headers, and downloads them.
func downloadNames(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	// The shell creates them, since a command may choose any name for its outputs.
	res, err := t.Bash(ctx, con.ID,
		`cd $OUTPUT_DIR; for n in $'a\r\nX-Injected: yes\r\n\r\nbody' $'b"; filename="other' $'c\x1b[2J' $'d\x7f\xc2\x85' $'e\xff' $'\xe2\x80\xaegnp.exe' 'f;g=h' $'i\nj' "$(printf 'é%.0s' {1..127})"; do echo x >"$n"; done`)
	if err != nil {
		return "", err
	}
	defer t.closeFiles(ctx, res)
	if res.Result.Result == nil || len(res.Result.Result.Content) < 6 {
		return "", fmt.Errorf("the outputs were not stored: %s %q", describe(res), res.Notes)
	}
	for _, f := range res.Result.Result.Content {
		if err := t.harmlessDownload(ctx, f.FileID); err != nil {
			return "", err
		}
	}
	// The same through an upload: the name is in a header of the form's part.
	for _, name := range []string{"a\r\nX-Injected: yes", "a\nb", "..", "a/../b\x00", "\x1b[2J", "bad\xff",
		strings.Repeat("n", 300), `a"; filename="b`, "a%0d%0aX-Injected: yes", "\u202Egnp.exe"} {
		a, err := t.upload(ctx, form{part("file", name, "text/plain", "x")})
		if err != nil {
			return "", err
		}
		if err := a.refusedOrDone(fmt.Sprintf("an upload named %q", name)); err != nil {
			return "", err
		}
		if a.status != 200 {
			continue
		}
		id := idOf(a)
		err = t.harmlessDownload(ctx, id)
		_ = t.DeleteFile(ctx, id)
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d outputs and the uploads that were taken have harmless headers",
		len(res.Result.Result.Content)), nil
}

// idOf returns the ID in an answer.
func idOf(a answer) string {
	var f struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(a.body, &f)
	return f.ID
}

// harmlessDownload returns a Breach if the headers of a stored file's content do not give a browser exactly one file
// name.
func (t *Target) harmlessDownload(ctx context.Context, id string) error {
	a, err := t.ask(ctx, "GET", "/v1/files/"+id+"/content", nil, nil)
	if err != nil {
		return err
	}
	all := a.header.Values("Content-Disposition")
	if a.status != http.StatusOK || a.header.Get("X-Injected") != "" || len(all) != 1 {
		return Breached("a download was answered %d with %q", a.status, a.header)
	}
	kind, params, err := mime.ParseMediaType(all[0])
	// The mime package reads the header as a browser would.
	if err != nil || kind != "attachment" || params["filename"] == "" ||
		strings.ContainsAny(params["filename"], "\r\n\x00\x1b/\\") {
		return Breached("a download has Content-Disposition %q", all[0])
	}
	// Without it, a browser may display an uploaded text as a page and run its scripts with the daemon's origin.
	if a.header.Get("X-Content-Type-Options") != "nosniff" {
		return Breached("a browser may guess what a download is")
	}
	return nil
}

// jobNames tries names as the job of a command and as part of a path.
func jobNames(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	neighbour, err := t.Neighbour(ctx)
	if err != nil {
		return "", err
	}
	other, err := neighbour.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	if _, err := neighbour.Do(ctx, other.ID, proto.Cmd{Command: "echo secret >f", JobID: "theirs",
		TimeoutSeconds: 60}); err != nil {
		return "", err
	}
	// "inputs" is a directory of the workspace itself; 65 letters are one more than allowed. "theirs" exists in
	// another tenant's container.
	for _, job := range []string{"..", ".", "../../etc", "a/b", "/etc", "inputs", "-x", "_x", "a b", "a\nb", "a\x00",
		"ä", strings.Repeat("j", 65), strings.Repeat("j", 10<<10), "%2e%2e", "theirs"} {
		if job != "theirs" {
			_, err := t.Launch(ctx, con.ID, proto.Cmd{Command: "true", JobID: job})
			if _, err := Refused(err, proto.InvalidArgument); err != nil {
				return "", fmt.Errorf("a command in job %.40q: %w", job, err)
			}
		}
		_, err := t.Manifest(ctx, con.ID, job)
		if _, err := Refused(err, proto.NotFound, proto.InvalidArgument); err != nil {
			return "", fmt.Errorf("the manifest of job %.40q: %w", job, err)
		}
	}
	for _, job := range []string{"Twin", "twin"} {
		if _, err := t.Do(ctx, con.ID, proto.Cmd{Command: "echo " + job + " >f", JobID: job,
			TimeoutSeconds: 60}); err != nil {
			return "", err
		}
	}
	// Names must be case-sensitive, unlike on some file systems.
	if got, err := t.Output(ctx, con.ID, "", "cat /workspace/Twin/f /workspace/twin/f"); err != nil ||
		got != "Twin\ntwin" {
		return "", Breached("jobs that differ in case share files: %q %v", got, err)
	}
	return t.jobReused(ctx, con.ID)
}

// jobReused deletes a container and looks for its job in the next one. If a manifest outlived its container, a job
// with the same name would find it.
func (t *Target) jobReused(ctx context.Context, container string) (string, error) {
	if _, err := t.Delete(ctx, container, false); err != nil {
		return "", err
	}
	if _, err := t.Manifest(ctx, container, "twin"); proto.CodeOf(err) != proto.NotFound &&
		proto.CodeOf(err) != proto.Expired {
		return "", Breached("the job of a removed container: %v", err)
	}
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	got, err := t.Do(ctx, con.ID, proto.Cmd{Command: "ls -A", JobID: "twin", TimeoutSeconds: 60})
	if err != nil {
		return "", err
	}
	m, err := t.Manifest(ctx, con.ID, "twin")
	if r := got.Result.Result; err != nil || r == nil || bytes.ContainsRune([]byte(r.Stdout), 'f') ||
		len(m.Files) != 0 || len(m.Execs) != 1 {
		return "", Breached("a job has files or commands of one of that name before: %+v %v", m, err)
	}
	return "refused as invalid or not found; twins are two; nothing outlives its container", nil
}

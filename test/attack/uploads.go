package attack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"berth/proto"
)

// Group 8: forms. Group 11: uploads that do not end normally. Uploads are large and slow, and clients often abort
// them. A partial file under the final name is worse than none.
var _ = register(
	// Form parsers often cause outages: CVE-2022-41725 and CVE-2023-24536 were Go's own, with too many parts and
	// headers.
	Case{
		Group: 8, Name: "uploads/forms",
		Tries: "send forms without or with a huge boundary, with 10,000 parts, fields twice, paths as names, " +
			"headers without end, and no end at all",
		Wants: "a typed error or one file with a plain name, and nothing is stored otherwise",
		Run:   forms,
	},
	// A client believes that it has sent what it announced.
	Case{
		Group: 8, Name: "uploads/lengths",
		Tries: "announce more or fewer bytes than come, on the Files API and on a container's files",
		Wants: "only whole files are stored",
		Run:   lengths,
	},
	// A rename replaces the old file by the new one atomically; nothing may be visible before it.
	Case{
		Group: 11, Name: "uploads/interrupted",
		Tries: "break an upload off at each sixteenth of it, to the Files API and to a container, over a file that is there",
		Wants: "nothing is stored, the old file stays as it was, and no temporary file is left",
		Run:   interrupted,
	},
	// Of two concurrent writes one must win; neither client wrote a mixture.
	Case{
		Group: 11, Name: "uploads/twins",
		Tries: "write one file from eight uploads at once, and store one name eight times",
		Wants: "the file is one of them, whole; the stored ones are eight files",
		Run:   twins,
	},
)

// boundary is the boundary of our forms.
const boundary = "berth-attack-boundary"

// A form is a list of the parts of a multipart body, each with its headers.
type form []string

// part returns a part with a file name, which may be anything: it is not escaped.
func part(field, filename, contentType, body string) string {
	h := `Content-Disposition: form-data; name="` + field + `"`
	if filename != "" {
		h += `; filename="` + filename + `"`
	}
	if contentType != "" {
		h += "\r\nContent-Type: " + contentType
	}
	return h + "\r\n\r\n" + body
}

// String returns the body with its last boundary.
func (f form) String() string {
	var b strings.Builder
	for _, p := range f {
		b.WriteString("--" + boundary + "\r\n" + p + "\r\n")
	}
	return b.String() + "--" + boundary + "--\r\n"
}

// upload sends a form to the Files API.
func (t *Target) upload(ctx context.Context, f form) (answer, error) {
	return t.uploadRaw(ctx, "multipart/form-data; boundary="+boundary, f.String())
}

// uploadRaw sends any body with any content type.
func (t *Target) uploadRaw(ctx context.Context, contentType, body string) (answer, error) {
	return t.ask(ctx, "POST", "/v1/files", nil, strings.NewReader(body), "Content-Type", contentType)
}

// storedFiles counts the stored files with a name.
func (t *Target) storedFiles(ctx context.Context, name string) (n int, err error) {
	all, err := t.Files(ctx)
	for _, f := range all {
		if strings.Contains(f.Filename, name) {
			n++
		}
	}
	return n, err
}

// formMark is part of the name of every file of a case, so that files of other cases are not counted.
const formMark = "hostile-form"

// forms first sends forms that must be refused, and then names that must be sanitized.
func forms(ctx context.Context, t *Target) (string, error) {
	file := part("file", formMark, "text/plain", "x")
	good, many := form{file}.String(), form{}
	// Go's parser counts parts since 2023. Where it reads a whole form, its default limit is 1000.
	for i := range 10_000 {
		many = append(many, part(fmt.Sprint("field", i), "", "", "v"))
	}
	kind := "multipart/form-data; boundary="
	for what, f := range map[string][2]string{
		"no boundary":       {"multipart/form-data", good},
		"an empty boundary": {kind, good},
		"a huge boundary": {kind + strings.Repeat("b", 60_000), "--" + strings.Repeat("b", 60_000) + "\r\n" +
			file + "\r\n"},
		"a body like a boundary": {kind + boundary, "--" + boundary + "\r\n" + part("file", formMark, "text/plain",
			strings.Repeat("\r\n--"+boundary[:20], 10_000))},
		"not a form":   {"application/json", "{}"},
		"nothing":      {kind + boundary, ""},
		"no end":       {kind + boundary, strings.TrimSuffix(good, "--\r\n")},
		"10,000 parts": {kind + boundary, append(many, file).String()},
		"two files":    {kind + boundary, form{file, file}.String()},
		"two expiries": {kind + boundary, form{part("expires_in_seconds", "", "", "7200"),
			part("expires_in_seconds", "", "", "7201"), file}.String()},
		"a huge expiry": {kind + boundary, form{part("expires_in_seconds", "", "", strings.Repeat("9", 1<<20)),
			file}.String()},
		"no disposition": {kind + boundary, form{"Content-Type: text/plain\r\n\r\nx"}.String()},
		"a header of 1 MiB": {kind + boundary, form{"X-Long: " + strings.Repeat("x", 11<<20) + "\r\n" +
			file}.String()},
		"a quote without end": {kind + boundary, form{"Content-Disposition: form-data; name=\"file; " +
			"filename=x\r\n\r\nx"}.String()},
		"a forged type": {kind + boundary, form{part("file", formMark, "text/html\x01; a=\"\n",
			"x")}.String()},
	} {
		a, err := t.uploadRaw(ctx, f[0], f[1])
		if err != nil {
			return "", fmt.Errorf("%s: %w", what, err)
		}
		if a.status < 400 || a.status >= 500 || a.code() == "" {
			return "", Breached("a form with %s was answered %d %.200s", what, a.status, a.body)
		}
	}
	if n, err := t.storedFiles(ctx, formMark); err != nil || n != 0 {
		return "", Breached("%d files were stored from bad forms; %v", n, err)
	}
	// RFC 7578 (4.2) warns of names with directories.
	for _, name := range []string{"/etc/" + formMark, "../../" + formMark, "a/b/" + formMark} {
		a, err := t.upload(ctx, form{part("file", name, "text/plain", "x")})
		if err != nil || a.status != 200 || !bytes.Contains(a.body, []byte(`"filename":"`+formMark+`"`)) {
			return "", Breached("the name %q became %.300s %v", name, a.body, err)
		}
		if err := t.DeleteFile(ctx, idOf(a)); err != nil {
			return "", err
		}
	}
	return "all bad forms were refused, paths became plain names", nil
}

// send writes bytes to the daemon unchanged, closes that direction, and returns the answer. With a half-closed
// connection, a client says that no more data follows and can still read.
func (t *Target) send(ctx context.Context, head string, body []byte) (string, error) {
	conn, err := t.Dial(ctx, 30*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// The daemon need not read everything.
	_, _ = io.WriteString(conn, head)
	_, _ = conn.Write(body)
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	got, _ := io.ReadAll(io.LimitReader(conn, 64<<10))
	return string(got), nil
}

// head returns the head of a handwritten request.
func (t *Target) head(method, path, contentType string, length int64) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nanthropic-version: "+
		"2023-06-01\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", method, path, t.Key,
		contentType, length)
}

// lengths announces false lengths: too small and too large.
func lengths(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	const name = "lying-length"
	body := form{part("file", name, "text/plain", strings.Repeat("x", 1000))}.String()
	path := b.at("fs/content") + "?path=/workspace/" + name
	for _, announced := range []int{len(body) + 1, len(body) + 1<<40, len(body) - 1, 0, -1} {
		got, err := t.send(ctx, t.head("POST", "/v1/files", "multipart/form-data; boundary="+boundary,
			int64(announced)), []byte(body))
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(got, "HTTP/1.1 5") {
			return "", Breached("%d bytes announced as %d were answered %.200q", len(body), announced, got)
		}
	}
	stored, err := t.Files(ctx)
	if err != nil {
		return "", err
	}
	for _, f := range stored { // a form is complete with its last boundary, regardless of the announced length
		if f.Filename == name && f.SizeBytes != 1000 {
			return "", Breached("a file of 1000 bytes was stored with %d", f.SizeBytes)
		}
	}
	if got, err := t.send(ctx, t.head("PUT", path, "application/octet-stream", 1<<40), []byte(body)); err != nil ||
		strings.HasPrefix(got, "HTTP/1.1 200") {
		return "", Breached("a file of fewer bytes than announced: %.200q %v", got, err)
	}
	if a, err := t.ask(ctx, "GET", b.at("fs/stat"), b.query("/workspace/"+name), nil); err != nil ||
		a.status != http.StatusNotFound {
		return "", Breached("the file is there: %.200s %v", a.body, err)
	}
	return "nothing but whole files was stored", t.dropStored(ctx, name)
}

// dropStored removes the stored files with a name.
func (t *Target) dropStored(ctx context.Context, name string) error {
	all, err := t.Files(ctx)
	for _, f := range all {
		if err == nil && strings.Contains(f.Filename, name) {
			err = t.DeleteFile(ctx, f.ID)
		}
	}
	return err
}

// interrupted aborts uploads after each sixteenth, beginning with zero bytes.
func interrupted(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	const name = "interrupted-upload"
	if _, err := t.Output(ctx, b.id, "", "echo old >/workspace/"+name); err != nil {
		return "", err
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	body := []byte(form{part("file", name, "text/plain", string(data))}.String())
	for i := range 16 {
		if _, err := t.send(ctx, t.head("POST", "/v1/files", "multipart/form-data; boundary="+boundary,
			int64(len(body))), body[:i*len(body)/16]); err != nil {
			return "", err
		}
		if _, err := t.send(ctx, t.head("PUT", b.at("fs/content")+"?path=/workspace/"+name, "application/octet-stream",
			int64(len(data))), data[:i*len(data)/16]); err != nil {
			return "", err
		}
	}
	if n, err := t.storedFiles(ctx, name); err != nil || n != 0 {
		return "", Breached("%d files were stored; %v", n, err)
	}
	// The daemon cleans up after a disconnected client with a short delay.
	gone := "for i in $(seq 100); do find . -name '.berth?*' | grep -q . || break; sleep 0.05; done"
	if got, err := t.Output(ctx, b.id, "", "cd /workspace; cat "+name+"; "+gone+
		"; find . -name '.berth?*'"); err != nil || got != "old" {
		return "", Breached("a file that was written over holds %.100q, or something is left; %v", got, err)
	}
	return "32 uploads that broke off left nothing", nil
}

// twins uploads files that consist of one letter each, so that a mixture is visible.
func twins(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	const n, name = 8, "twin-upload"
	errs := make([]error, 2*n)
	var wg sync.WaitGroup
	for i := range n {
		text := strings.Repeat(string(rune('a'+i)), 1<<20)
		wg.Go(func() {
			_, errs[i] = t.FS(b.id, proto.UserDefault).Write(ctx, "/workspace/"+name, 0, strings.NewReader(text), 1<<20)
		})
		wg.Go(func() {
			a, err := t.upload(ctx, form{part("file", name, "text/plain", text)})
			if err == nil && a.status != http.StatusOK {
				err = Breached("storing one of the same name: %d %.200s", a.status, a.body)
			}
			errs[n+i] = err
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return "", err
		}
	}
	// One size, one letter, and no temporary file.
	got, err := t.Output(ctx, b.id, "", "cd /workspace; stat -c %s "+name+"; fold -w1 "+name+
		" | sort -u | wc -l; find . -name '.berth?*'")
	if err != nil || got != "1048576\n1" {
		return "", Breached("the file is no one upload: %q %v", got, err)
	}
	if stored, err := t.storedFiles(ctx, name); err != nil || stored != n {
		return "", Breached("%d of %d are stored: %v", stored, n, err)
	}
	return "one whole file in the container, eight stored", t.dropStored(ctx, name)
}

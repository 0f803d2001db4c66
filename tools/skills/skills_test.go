package skills_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
	"berth/tools/skills"
)

const owner = sessiontest.Owner

// A bench is a core whose sessions can have skills.
type bench struct {
	*sessiontest.Stack
	skills *skills.Store
	dir    string // directory of the store
	shelf  string // directory of provided skills
}

// late lets sessions be opened before the store, because the stack creates the store's ledger.
type late struct{ *bench }

func (l late) Tar(ctx context.Context, owner, key string) (io.ReadCloser, error) {
	return l.skills.Tar(ctx, owner, key)
}

func newBench(t *testing.T, change func(*skills.Config)) *bench {
	t.Helper()
	b := &bench{dir: filepath.Join(t.TempDir(), "skills"), shelf: t.TempDir()}
	b.Stack = sessiontest.New(t, session.Config{Mounts: late{b}})
	b.openSkills(t, change)
	return b
}

func (b *bench) openSkills(t *testing.T, change func(*skills.Config)) {
	t.Helper()
	cfg := skills.Config{Dir: b.dir, Ledger: b.Ledger, Provided: b.shelf}
	if change != nil {
		change(&cfg)
	}
	var err error
	if b.skills, err = skills.Open(cfg); err != nil {
		t.Fatal(err)
	}
}

// front returns a SKILL.md.
func front(name, description string) string {
	return "---\nname: " + name + "\ndescription: " + description + "\n---\n\n# How\n"
}

// draft adds files, given as alternating path and text.
func (b *bench) draft(t *testing.T, files ...string) (skills.Upload, error) {
	t.Helper()
	d, err := b.skills.NewDraft(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	for i := 0; i < len(files); i += 2 {
		if err := d.Add(files[i], false, strings.NewReader(files[i+1])); err != nil {
			return d, err
		}
	}
	return d, nil
}

func (b *bench) create(t *testing.T, files ...string) skills.Skill {
	t.Helper()
	d, err := b.draft(t, files...)
	if err != nil {
		t.Fatal(err)
	}
	k, err := d.Create("")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (b *bench) release(t *testing.T, id string, files ...string) skills.Version {
	t.Helper()
	d, err := b.draft(t, files...)
	if err != nil {
		t.Fatal(err)
	}
	v, err := d.Release(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (b *bench) mount(t *testing.T, s *session.Session, refs ...proto.SkillRef) []proto.SkillRef {
	t.Helper()
	got, err := b.skills.Mount(t.Context(), s, owner, refs)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// says runs a command and compares its output.
func says(t *testing.T, s *session.Session, command, want string) {
	t.Helper()
	if got := sessiontest.Bash(t, s, "{ "+command+"\n} 2>&1"); got.Stdout != want {
		t.Errorf("%s:\n got %q\nwant %q", command, got.Stdout, want)
	}
}

func TestMount(t *testing.T) {
	b := newBench(t, nil)
	text := front("pdf-forms", "Fills forms.")
	k := b.create(t, "pdf-forms/SKILL.md", text, "pdf-forms/scripts/fill.sh", "#!/bin/sh\necho filled\n",
		"pdf-forms/a/b/c.txt", "deep")
	s := b.Create(t, proto.CreateContainer{})
	ref := proto.SkillRef{Type: skills.Custom, SkillID: k.ID}
	got := b.mount(t, s, ref)
	want := []proto.SkillRef{{Type: skills.Custom, SkillID: k.ID, Version: k.Latest.ID}}
	if !slices.Equal(got, want) {
		t.Errorf("mounted %v, want %v", got, want)
	}
	says(t, s, "cat /skills/pdf-forms/SKILL.md", text)
	says(t, s, "/skills/pdf-forms/scripts/fill.sh", "filled\n")
	says(t, s, "cat /skills/pdf-forms/a/b/c.txt", "deep")
	says(t, s, "ls -A /skills; stat -c '%U %a' /skills /skills/pdf-forms /skills/pdf-forms/a/b "+
		"/skills/pdf-forms/SKILL.md /skills/pdf-forms/scripts/fill.sh",
		"pdf-forms\nroot 755\nroot 755\nroot 755\nroot 644\nroot 755\n")
	says(t, s, "echo x >> /skills/pdf-forms/SKILL.md; touch /skills/x; mv /skills/pdf-forms /skills/y; rm -r "+
		"/skills/pdf-forms/a; ls /skills/pdf-forms | wc -l; id -u",
		"bash: line 1: /skills/pdf-forms/SKILL.md: Permission denied\ntouch: cannot touch '/skills/x': Permission denied\n"+
			"mv: cannot move '/skills/pdf-forms' to '/skills/y': Permission denied\nrm: cannot remove "+
			"'/skills/pdf-forms/a/b/c.txt': Permission denied\n3\n1000\n")
}

func TestMountAgain(t *testing.T) {
	b := newBench(t, nil)
	k := b.create(t, "notes/SKILL.md", front("notes", "One."), "notes/old.txt", "old")
	other := b.create(t, "tables/SKILL.md", front("tables", "Tables."))
	s := b.Create(t, proto.CreateContainer{})
	ref := proto.SkillRef{Type: skills.Custom, SkillID: k.ID}
	b.mount(t, s, ref)
	inode := sessiontest.Bash(t, s, "stat -c %i /skills/notes").Stdout
	b.mount(t, s, ref, proto.SkillRef{Type: skills.Custom, SkillID: other.ID, Version: "latest"})
	says(t, s, "stat -c %i /skills/notes", inode) // not mounted again

	v2 := b.release(t, k.ID, "notes/SKILL.md", front("notes", "Two."), "notes/new.txt", "new")
	if got := b.mount(t, s, ref); got[0].Version != v2.ID {
		t.Errorf("latest is %v, want %s", got, v2.ID)
	}
	says(t, s, "ls /skills /skills/notes", "/skills:\nnotes\ntables\n\n/skills/notes:\nSKILL.md\nnew.txt\n")
	b.mount(t, s, proto.SkillRef{Type: skills.Custom, SkillID: k.ID, Version: k.Latest.ID})
	says(t, s, "cat /skills/notes/*.txt", "old")

	// What root has removed is mounted again.
	if _, err := s.Run(t.Context(), proto.Cmd{Command: "rm -r /skills", User: proto.UserRoot}); err != nil {
		t.Fatal(err)
	}
	b.mount(t, s, proto.SkillRef{Type: skills.Custom, SkillID: k.ID, Version: k.Latest.ID})
	says(t, s, "ls /skills/notes", "SKILL.md\nold.txt\n")
}

func TestMountOutlivesStopAndDaemon(t *testing.T) {
	b := newBench(t, nil)
	k := b.create(t, "notes/SKILL.md", front("notes", "One."))
	gone := b.create(t, "gone/SKILL.md", front("gone", "Gone."))
	s := b.Create(t, proto.CreateContainer{})
	b.mount(t, s, proto.SkillRef{Type: skills.Custom, SkillID: k.ID}, proto.SkillRef{Type: skills.Custom,
		SkillID: gone.ID})
	if err := b.skills.Delete(t.Context(), owner, gone.ID, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	says(t, s, "ls /skills; cat /skills/notes/SKILL.md", "notes\n"+front("notes", "One."))

	b.Reopen(t)
	b.openSkills(t, nil)
	s, err := b.Sessions.Get(owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	says(t, s, "ls /skills", "notes\n")
	b.mount(t, s, proto.SkillRef{Type: skills.Custom, SkillID: k.ID})
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	says(t, s, "ls /skills", "notes\n")
}

func TestMountRefuses(t *testing.T) {
	b := newBench(t, func(c *skills.Config) { c.MaxRefs = 2 })
	k := b.create(t, "notes/SKILL.md", front("notes", "One."))
	twin := b.create(t, "other/SKILL.md", front("notes", "Another of the name."))
	s := b.Create(t, proto.CreateContainer{})
	one := proto.SkillRef{Type: skills.Custom, SkillID: k.ID}
	for name, tt := range map[string]struct {
		refs []proto.SkillRef
		code proto.Code
		says string
	}{
		"too many": {[]proto.SkillRef{one, one, one}, proto.InvalidArgument, "may have at most 2 skills"},
		"same name": {[]proto.SkillRef{one, {Type: skills.Custom, SkillID: twin.ID}}, proto.InvalidArgument,
			`the same name, "notes"`},
		"unknown": {[]proto.SkillRef{{Type: skills.Custom, SkillID: "skill_0000000000000000000000"}}, proto.NotFound,
			"skill_0000"},
		"no ID":      {[]proto.SkillRef{{Type: skills.Custom, SkillID: "../../etc"}}, proto.NotFound, "../../etc"},
		"no such":    {[]proto.SkillRef{{Type: skills.Provided, SkillID: "xlsx"}}, proto.NotFound, "xlsx"},
		"wrong type": {[]proto.SkillRef{{Type: skills.Provided, SkillID: k.ID}}, proto.NotFound, k.ID},
		"no type":    {[]proto.SkillRef{{SkillID: k.ID}}, proto.InvalidArgument, "type"},
		"wrong version": {[]proto.SkillRef{{Type: skills.Custom, SkillID: k.ID, Version: "17"}}, proto.NotFound,
			`version "17"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := b.skills.Mount(t.Context(), s, owner, tt.refs)
			if proto.CodeOf(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := b.skills.Mount(t.Context(), s, "somebody-else", []proto.SkillRef{one}); proto.CodeOf(
		err) != proto.NotFound {
		t.Errorf("somebody else's skill: %v", err)
	}
	says(t, s, "ls /skills", "ls: cannot access '/skills': No such file or directory\n")
}

func TestDraftRefuses(t *testing.T) {
	b := newBench(t, func(c *skills.Config) { c.MaxFiles, c.MaxBytes = 3, 2000 })
	good := front("notes", "Takes notes.")
	for name, tt := range map[string]struct {
		files []string
		says  string
	}{
		"nothing":        {nil, "no files"},
		"no manifest":    {[]string{"notes/readme.md", "x"}, "no notes/SKILL.md"},
		"manifest below": {[]string{"notes/a/SKILL.md", good}, "no notes/SKILL.md"},
		"no directory":   {[]string{"SKILL.md", good}, `"SKILL.md" is in no directory`},
		"two directories": {[]string{"notes/SKILL.md", good, "other/x", "x"},
			`"other/x" is not in the directory "notes"`},
		"climbing":          {[]string{"notes/../../etc/passwd", "x"}, "must be left out"},
		"absolute":          {[]string{"/notes/SKILL.md", good}, "must be left out"},
		"backslash":         {[]string{`notes\SKILL.md`, good}, "backslash"},
		"twice":             {[]string{"notes/SKILL.md", good, "notes/SKILL.md", good}, "is sent twice"},
		"file as directory": {[]string{"notes/SKILL.md", good, "notes/SKILL.md/x", "x"}, "is below another file"},
		"directory as file": {[]string{"notes/a/b", "x", "notes/a", "x"}, "is sent twice, or is also a directory"},
		"too many": {[]string{"notes/1", "", "notes/2", "", "notes/3", "", "notes/4", ""},
			`may have at most 3 files; "notes/4"`},
		"too large": {[]string{"notes/SKILL.md", good, "notes/big", strings.Repeat("x", 2000)},
			`2000 bytes together; with "notes/big"`},
		"no front matter": {[]string{"notes/SKILL.md", "# Notes\n"}, "notes/SKILL.md must begin with front matter"},
		"endless":         {[]string{"notes/SKILL.md", "---\nname: notes\n"}, "without an end"},
		"no YAML":         {[]string{"notes/SKILL.md", "---\nname: [\n---\n"}, "is not YAML"},
		"no description":  {[]string{"notes/SKILL.md", "---\nname: notes\n---\n"}, "description is missing"},
		"upper case":      {[]string{"notes/SKILL.md", front("Notes", "x")}, `"Notes" is not valid`},
		"long name":       {[]string{"notes/SKILL.md", front(strings.Repeat("n", 65), "x")}, "has 65 characters"},
		"long description": {[]string{"notes/SKILL.md", front("notes", strings.Repeat("ü", 900)+strings.Repeat(
			"x", 125))}, "has 1025 characters"},
		"tag":                 {[]string{"notes/SKILL.md", front("notes", "Take <b>notes</b>.")}, `the tag "<b>"`},
		"directory is no one": {[]string{"My Notes/SKILL.md", "---\ndescription: x\n---\n"}, `"My Notes" is not valid`},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := b.draft(t, tt.files...)
			if err == nil {
				_, err = d.Create("")
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %q", err, tt.says)
			}
			d.Close()
		})
	}
	if entries, err := os.ReadDir(b.dir); err != nil || len(entries) > 0 {
		t.Errorf("refused drafts left %v, %v", entries, err)
	}
}

func TestVersions(t *testing.T) {
	b := newBench(t, nil)
	ctx := t.Context()
	k := b.create(t, "notes/SKILL.md", "\uFEFF---\r\ndescription: >\r\n  One\r\n  line.\r\n---\r\n")
	if k.DisplayName != "notes" || k.Latest.Name != "notes" || k.Latest.Description != "One line." {
		t.Errorf("created %+v", k)
	}
	v2 := b.release(t, k.ID, "anything/SKILL.md", front("notes", "Two."))
	d, _ := b.draft(t, "notes/SKILL.md", front("tables", "Renamed."))
	if _, err := d.Release(ctx, k.ID); proto.CodeOf(err) != proto.InvalidArgument ||
		!strings.Contains(err.Error(), `keeps its name, "notes"`) {
		t.Errorf("a version of another name: %v", err)
	}
	list, err := b.skills.Versions(ctx, owner, k.ID)
	if err != nil || len(list) != 2 || list[0].ID != v2.ID || list[1].ID != k.Latest.ID ||
		list[0].Number <= list[1].Number {
		t.Fatalf("versions %+v, %v", list, err)
	}
	if _, err := b.skills.DeleteVersion(ctx, owner, k.ID, v2.ID, false); err != nil {
		t.Fatal(err)
	}
	if _, err := b.skills.DeleteVersion(ctx, owner, k.ID, "latest", false); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("deleting \"latest\": %v", err)
	}
	if _, err := b.skills.DeleteVersion(ctx, owner, k.ID, k.Latest.ID, false); proto.CodeOf(
		err) != proto.InvalidArgument {
		t.Errorf("deleting the last version: %v", err)
	}
	if err := b.skills.Delete(ctx, owner, k.ID, false); err != nil {
		t.Fatal(err)
	}
	if _, err := b.skills.Get(ctx, owner, k.ID); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("a deleted skill: %v", err)
	}
	if entries, _ := os.ReadDir(b.dir); len(entries) > 0 {
		t.Errorf("what was deleted left %v", entries)
	}
}

func TestQuota(t *testing.T) {
	b := newBench(t, func(c *skills.Config) { c.Quota = 600 })
	k := b.create(t, "notes/SKILL.md", front("notes", "One."))
	for _, another := range []bool{true, false} {
		d, err := b.draft(t, "notes/SKILL.md", front("notes", "Two."), "notes/noise", noise(2000))
		if err != nil {
			t.Fatal(err)
		}
		if another {
			_, err = d.Create("")
		} else {
			_, err = d.Release(t.Context(), k.ID)
		}
		if proto.CodeOf(err) != proto.QuotaExceeded {
			t.Errorf("another skill %v: %v", another, err)
		}
	}
	if entries, _ := os.ReadDir(b.dir); len(entries) != 1 {
		t.Errorf("what did not fit left %v", entries)
	}
}

// noise returns text that compresses badly.
func noise(n int) string {
	b, x := make([]byte, n), uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return string(b)
}

// zipped returns an archive; a name that ends in "/" is a directory, one that ends in "@" is a link.
func zipped(t *testing.T, files ...string) io.Reader {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for i := 0; i < len(files); i += 2 {
		h := &zip.FileHeader{Name: strings.TrimSuffix(files[i], "@"), Method: zip.Deflate}
		h.SetMode(0o644)
		if strings.HasSuffix(files[i], "@") {
			h.SetMode(os.ModeSymlink | 0o777)
		}
		if strings.HasSuffix(files[i], ".run") {
			h.SetMode(0o755)
		}
		out, err := w.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(out, files[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &buf
}

// An archive with more entries than a skill can have is not unpacked, for any way of upload.
func TestZipOfManyEntries(t *testing.T) {
	b := newBench(t, func(c *skills.Config) { c.MaxFiles = 10 })
	add := func(directories int) error {
		files := []string{"notes/SKILL.md", front("notes", "One.")}
		for i := range directories {
			files = append(files, fmt.Sprintf("notes/%d/", i), "")
		}
		d, err := b.draft(t)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		return d.AddZip("notes.zip", iotest.OneByteReader(zipped(t, files...)))
	}
	if err := add(79); err != nil {
		t.Error(err)
	}
	if err := add(80); proto.CodeOf(err) != proto.TooLarge || !strings.Contains(err.Error(), "80 entries") {
		t.Errorf("81 entries: %v", err)
	}
}

func TestZip(t *testing.T) {
	b := newBench(t, func(c *skills.Config) { c.MaxBytes = 100_000 })
	add := func(r io.Reader) (skills.Upload, error) {
		d, err := b.draft(t)
		if err != nil {
			t.Fatal(err)
		}
		return d, d.AddZip("notes.zip", r)
	}
	d, err := add(zipped(t, "notes/", "", "notes/SKILL.md", front("notes", "One."), "notes/go.run", "echo ran",
		"__MACOSX/notes/._SKILL.md", "junk", "notes/.DS_Store", "junk"))
	if err != nil {
		t.Fatal(err)
	}
	k, err := d.Create("Notes of mine")
	if err != nil || k.DisplayName != "Notes of mine" {
		t.Fatalf("%+v, %v", k, err)
	}
	s := b.Create(t, proto.CreateContainer{})
	b.mount(t, s, proto.SkillRef{Type: skills.Custom, SkillID: k.ID})
	says(t, s, "ls -A /skills/notes; stat -c %a /skills/notes/go.run", "SKILL.md\ngo.run\n755\n")

	for name, r := range map[string]io.Reader{
		"a link": zipped(t, "notes/SKILL.md", front("notes", "One."), "notes/passwd@", "/etc/passwd"),
		"a bomb": zipped(t, "notes/SKILL.md", front("notes", "One."), "notes/zeros",
			strings.Repeat("\x00", 10<<20)),
		"a climb":          zipped(t, "notes/SKILL.md", front("notes", "One."), "notes/../../x", "x"),
		"no archive":       strings.NewReader("PK but not really"),
		"too much archive": strings.NewReader(noise(200_000)),
	} {
		d, err := add(r)
		var e *proto.Error
		if !errors.As(err, &e) || e.Code != proto.InvalidArgument && e.Code != proto.TooLarge {
			t.Errorf("%s: %v", name, err)
		}
		d.Close()
	}

	var out bytes.Buffer
	if err := b.skills.WriteZip(t.Context(), owner, k.ID, "latest", func(skills.Version) {}, &out); err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	text, err := z.Open("notes/SKILL.md")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(text); err != nil || string(got) != front("notes", "One.") || len(z.File) != 2 {
		t.Errorf("downloaded %d files, %q, %v", len(z.File), got, err)
	}
}

func TestUploadsUnderWayAreBounded(t *testing.T) {
	b := newBench(t, nil)
	var open []skills.Upload
	for {
		d, err := b.skills.NewDraft(t.Context(), owner)
		if err != nil {
			if proto.CodeOf(err) != proto.TooMany || len(open) != 16 {
				t.Errorf("after %d: %v", len(open), err)
			}
			break
		}
		open = append(open, d)
	}
	for _, d := range open {
		d.Close()
		d.Close() // a second Close must free only one slot
	}
	for range 20 { // each frees its slot in any case
		b.create(t, "notes/SKILL.md", front("notes", "One."))
	}
}

func TestCrashLeavesNothing(t *testing.T) {
	b := newBench(t, nil)
	k := b.create(t, "notes/SKILL.md", front("notes", "One."))
	if _, err := b.draft(t, "notes/SKILL.md", front("notes", "Half.")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "skver_0000000000000000000000.zip"), []byte("stray"),
		0o600); err != nil {
		t.Fatal(err)
	}
	b.openSkills(t, nil)
	entries, err := os.ReadDir(b.dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != k.Latest.ID+".zip" {
		t.Errorf("there is %v, %v", entries, err)
	}
}

// put writes a file of a provided skill.
func (b *bench) put(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(b.shelf, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestProvided(t *testing.T) {
	b := newBench(t, nil)
	ctx := t.Context()
	b.put(t, "xlsx/SKILL.md", front("xlsx", "Sheets."))
	b.put(t, "xlsx/lib/sum.py", "print(1)")
	b.put(t, "no-skill/readme.md", "x")
	b.put(t, "broken/SKILL.md", "no front matter")
	b.put(t, "misnamed/SKILL.md", front("named", "x"))
	b.put(t, "leading-out/SKILL.md", front("leading-out", "x"))
	if err := os.Symlink("/etc/passwd", filepath.Join(b.shelf, "leading-out", "passwd")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("xlsx", filepath.Join(b.shelf, "linked")); err != nil {
		t.Fatal(err)
	}
	list, err := b.skills.List(ctx, owner, "")
	if err != nil || len(list) != 1 || list[0].ID != "xlsx" || list[0].Source != skills.Provided ||
		list[0].Latest.Description != "Sheets." {
		t.Fatalf("listed %+v, %v", list, err)
	}
	for id, part := range map[string]string{"broken": "front matter", "misnamed": `has the name "named"`,
		"leading-out": `"passwd" of the provided skill "leading-out" is a link`, "linked": "not found",
		"no-skill": "not found", "..": "not found"} {
		if _, err := b.skills.Get(ctx, owner, id); err == nil || !strings.Contains(err.Error(), part) ||
			strings.Contains(err.Error(), b.shelf) {
			t.Errorf("%s: %v", id, err)
		}
	}
	s := b.Create(t, proto.CreateContainer{})
	ref := proto.SkillRef{Type: skills.Provided, SkillID: "xlsx", Version: "latest"}
	first := b.mount(t, s, ref)
	says(t, s, "cat /skills/xlsx/lib/sum.py", "print(1)")

	b.put(t, "xlsx/lib/sum.py", "print(22)") // visible without a restart
	second := b.mount(t, s, ref)
	if first[0].Version == second[0].Version {
		t.Errorf("a change has no version of its own: %v", second)
	}
	says(t, s, "cat /skills/xlsx/lib/sum.py", "print(22)")
	if _, err := b.skills.Mount(ctx, s, owner, first); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("a version that is gone: %v", err)
	}
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	says(t, s, "cat /skills/xlsx/lib/sum.py", "print(22)")

	d, err := b.draft(t, "xlsx/SKILL.md", front("xlsx", "Mine."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Release(ctx, "xlsx"); proto.CodeOf(err) != proto.PermissionDenied {
		t.Errorf("changing a provided skill: %v", err)
	}
	if err := b.skills.Delete(ctx, owner, "xlsx", false); proto.CodeOf(err) != proto.PermissionDenied {
		t.Errorf("deleting a provided skill: %v", err)
	}
}

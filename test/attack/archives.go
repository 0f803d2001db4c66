package attack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"berth/proto"
)

// Group 9: archives. The API accepts and returns tar only; images are OCI archives. "Zip slip" (2018) was found in
// thousands of programs, and archive/tar leaves the check of names to its caller. Container engines had the same
// flaw: CVE-2018-15664 of docker cp.
var _ = register(
	// "Outside" is still inside the container. But no archive member may lead the daemon's side of an unpacking
	// elsewhere, for any user.
	Case{
		Group: 9, Name: "archives/slip", Inside: true,
		Tries: "unpack archives whose members are absolute, climb with \"..\", are links that lead out or lie " +
			"behind such a link, or are devices",
		Wants: "each is refused by the member's name, and nothing appears outside the directory",
		Run:   archiveSlip,
	},
	// An unpacking that stops half way leaves an undefined state. If a size is trusted before the bytes come, memory
	// or disk is wasted.
	Case{
		Group: 9, Name: "archives/damaged",
		Tries: "unpack archives that are cut off, announce 4 GiB and hold a byte, or hold a member of more than the disk",
		Wants: "a typed error, no half file, and the container still works",
		Run:   archiveDamaged,
	},
	// A gzip stream may be a thousand times smaller than its content, so a limit on the bytes sent is no limit on the
	// content.
	Case{
		Group: 9, Name: "archives/image-bombs",
		Tries: "import archives as images that are gzip bombs, hold no image, or climb out of their place",
		Wants: "a typed error, no image, and the daemon's memory stays where it was",
		Run:   imageBombs,
	},
)

// A slip is an archive that must not be unpacked as it is.
type slip struct {
	name    string
	members []tar.Header
}

// slips have members that lead to /workspace/outside. They are unpacked in another directory of /workspace. That
// directory has a symbolic link to /workspace/outside.
var slips = []slip{
	{"absolute name", []tar.Header{{Name: "/workspace/outside/x"}}},
	{"climbing", []tar.Header{{Name: "../outside/x"}}},
	{"climbing late", []tar.Header{{Name: "a/b/../../../outside/x"}}},
	// A backslash is no separator on Linux. A daemon that handles names as Windows does would leave the directory.
	{"backslashes", []tar.Header{{Name: `..\outside\x`}}},
	// A check of each name alone finds nothing wrong: the second member goes through the link of the first one.
	{"link out", []tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../outside"}, {Name: "l/x"}}},
	{"absolute link", []tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/workspace/outside"},
		{Name: "l/x"}}},
	// "here" leads to the directory itself, so a check of the text takes a path below it for another place.
	{"link by a link", []tar.Header{{Name: "here", Typeflag: tar.TypeSymlink, Linkname: "."},
		{Name: "here/l", Typeflag: tar.TypeSymlink, Linkname: "../outside"}, {Name: "l/x"}}},
	{"link through a link", []tar.Header{{Name: "here", Typeflag: tar.TypeSymlink, Linkname: "."},
		{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "here/../outside"}, {Name: "l/x"}}},
	// The link existed before the archive was sent, so a check of the archive alone cannot find it.
	{"planted link", []tar.Header{{Name: "planted/x"}}},
	{"directory through a planted link", []tar.Header{{Name: "planted/x/", Typeflag: tar.TypeDir}}},
	// The body is empty: following the link would change the mode of its target.
	{"mode through a planted link", []tar.Header{{Name: "planted/", Typeflag: tar.TypeDir, Mode: 0o777}}},
	// A hard link shares the inode, so a later write to it changes the file outside.
	{"hard link out", []tar.Header{{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outside/kept"}, {Name: "h"}}},
	{"hard link through a planted link", []tar.Header{{Name: "h", Typeflag: tar.TypeLink, Linkname: "planted/kept"}}},
	// 8:0 is the first disk of most hosts, and 1:1 is /dev/mem. With such a node an attacker needs no kernel bug.
	{"device", []tar.Header{{Name: "dev", Typeflag: tar.TypeBlock, Devmajor: 8}}},
	{"memory device", []tar.Header{{Name: "dev", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1}}},
	{"FIFO", []tar.Header{{Name: "fifo", Typeflag: tar.TypeFifo}}},
}

// archiveSlip unpacks each archive as both users and compares the files outside before and after.
func archiveSlip(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	// The count of hard links (%h) is part of the state: it is the only thing that a hard link to a file changes.
	const state = "cd /workspace; ls -A outside; cat outside/kept; stat -c '%a %h' outside outside/kept; rm -rf in; " +
		"mkdir in; ln -s ../outside in/planted"
	before, err := t.Output(ctx, b.id, "", "mkdir -p /workspace/outside && chmod 750 /workspace/outside && echo "+
		"kept >/workspace/outside/kept;"+state)
	if err != nil {
		return "", err
	}
	for _, s := range slips {
		// The container's root may do all this by hand. Through the API it must not happen, since operators' tools
		// unpack with root's rights.
		for _, as := range []box{b, b.root()} {
			a, err := t.ask(ctx, "PUT", b.at("fs/tar"), as.query("/workspace/in"), bytes.NewReader(
				archive(s.members...)))
			if err != nil {
				return "", err
			}
			if s.name != "backslashes" { // a backslash is an ordinary character here
				if err := a.refused(s.name, proto.InvalidArgument); err != nil {
					return "", err
				}
			}
		}
		// Unpacking as root has made root the owner of the directory; the next round's ordinary user must be able to
		// write.
		after, err := t.Output(ctx, b.id, proto.UserRoot, state+"; chown -hR user in")
		if err != nil || after != before {
			return "", Breached("%s changed what is outside: %q became %q %v", s.name, before, after, err)
		}
	}
	return fmt.Sprintf("%d archives were refused, nothing appeared outside", len(slips)), nil
}

// archive returns a tar archive of the members. Files contain a few bytes. A member without a type is a file with a
// body, so that a successful unpacking is visible.
func archive(members ...tar.Header) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range members {
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if h.Typeflag == 0 {
			h.Size = int64(len(note))
		}
		if err := w.WriteHeader(&h); err != nil {
			panic(err) // an error in this package
		}
		if h.Size > 0 {
			_, _ = io.WriteString(w, note)
		}
	}
	_ = w.Close()
	return buf.Bytes()
}

// archiveDamaged sends archives with false sizes to a container with a disk of 32 MiB.
func archiveDamaged(ctx context.Context, t *Target) (string, error) {
	b, err := t.box(ctx, proto.CreateContainer{Limits: proto.Limits{DiskBytes: 32 << 20}})
	if err != nil {
		return "", err
	}
	good := archive(tar.Header{Name: "first"}, tar.Header{Name: "dir/second"})
	for what, body := range map[string]io.Reader{
		// Only the header and one byte: a daemon must not allocate 4 GiB in advance.
		"a member of 4 GiB with one byte": bytes.NewReader(archiveOf(tar.Header{Name: "big", Size: 4 << 30},
			"x")[:513]),
		"an archive that is cut off": bytes.NewReader(good[:520]),
		"text":                       strings.NewReader(strings.Repeat("no archive ", 1000)),
		// The bytes are really sent, so the disk quota must end the unpacking.
		"a member larger than the disk": io.MultiReader(
			bytes.NewReader(archiveOf(tar.Header{Name: "big", Size: 64 << 20}, "")[:512]),
			io.LimitReader(zeros{}, 64<<20)),
		// The largest signed 64-bit size: adding anything to it overflows.
		"a member of 9 EiB": bytes.NewReader(archiveOf(tar.Header{Name: "big", Size: 1<<63 - 1}, "x")),
	} {
		a, err := t.ask(ctx, "PUT", b.at("fs/tar"), b.query("/workspace/in"), body)
		if err != nil {
			return "", fmt.Errorf("%s: %w", what, err)
		}
		if err := a.refused(what, proto.InvalidArgument, proto.TooLarge, proto.QuotaExceeded); err != nil {
			return "", err
		}
		left, err := t.Output(ctx, b.id, proto.UserRoot, "ls -A /workspace/in; rm -rf /workspace/in")
		if err != nil || strings.Contains(left, "berth") || strings.Contains(left, "big") {
			return "", Breached("%s left %q %v", what, left, err)
		}
	}
	return "each was refused and left no part of a file", t.alive(ctx, b.id)
}

// zeros is an endless reader of zero bytes.
type zeros struct{}

// Read fills p with zeros.
func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// bomb returns a gzip stream of n zero bytes. The stream is produced while it is read, so that this program does not
// hold it in memory.
func bomb(n int64) io.Reader {
	r, w := io.Pipe()
	go func() {
		z := gzip.NewWriter(w)
		_, err := io.CopyN(z, zeros{}, n)
		w.CloseWithError(errors.Join(err, z.Close()))
	}()
	return r
}

// imageBombs imports archives that are no images. It checks the daemon's memory, since a refusal does not help if the
// daemon has read the whole archive into memory.
func imageBombs(ctx context.Context, t *Target) (string, error) {
	size := int64(8 << 30)
	if t.Quick {
		size = 512 << 20
	}
	before, err := t.residentBytes(ctx)
	if err != nil {
		return "", err
	}
	manifest := tar.Header{Name: "manifest.json"}
	// The author of an image chooses the names in its archive; no name may become a path of the store.
	layout := archive(tar.Header{Name: "../../../../../../../../tmp/berth-slipped"},
		tar.Header{Name: "/tmp/berth-slipped"}, tar.Header{Name: "blobs/sha256/../../x"})
	for what, body := range map[string]io.Reader{
		"a gzip bomb":            bomb(size),
		"an archive without one": bytes.NewReader(archive(tar.Header{Name: "x"})),
		"a manifest that is none": bytes.NewReader(archive(manifest, tar.Header{Name: "oci-layout"},
			tar.Header{Name: "index.json"})),
		"members that climb": bytes.NewReader(layout),
		"a huge manifest": io.MultiReader(bytes.NewReader(archiveOf(tar.Header{Name: "index.json", Size: size},
			"")[:512]), io.LimitReader(zeros{}, size)),
		"nothing": strings.NewReader(""),
	} {
		_, err := t.ImportImage(ctx, "berth-attack/bomb", body, 0, nil)
		var pe *proto.Error
		// Internal would mean that the daemon did not recognize what is wrong with the archive.
		if !errors.As(err, &pe) || pe.Code == proto.Internal || pe.Code == proto.Unavailable {
			return "", Breached("%s was answered: %v", what, err)
		}
	}
	after, err := t.residentBytes(ctx)
	if err != nil {
		return "", err
	}
	if after > before+maxGrowth {
		return "", Breached("the daemon grew from %d to %d MiB", before>>20, after>>20)
	}
	return fmt.Sprintf("all were refused; the daemon has %d MiB, before %d", after>>20, before>>20), nil
}

package attack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"berth/proto"
)

// Group 34: images. Only an administrator can import one, but anyone may have built it. The importer reads untrusted
// data as root, before any container exists. Each field of an image may be false.
var _ = register(
	Case{
		// Other engines apply entrypoints, users and volumes. Here the guest is PID 1 in every container, and the
		// request determines which user runs a command.
		Group: 34, Name: "images/configuration", Inside: true,
		Tries: "run images whose configuration names a program to start, root, a directory in /proc, volumes, " +
			"ports, labels, LD_PRELOAD, a PATH of its own, NUL bytes and 1 MiB of environment",
		Wants: "only the environment is used, by commands and not by the guest; or a typed error",
		Run:   imageConfigurations,
	},
	Case{
		// Content must match its digest, or it must not be used. Only that makes the name of an image trustworthy.
		Group: 34, Name: "images/layers", Inside: true,
		Tries: "run images of 1,000 layers, of a layer that is not what its digest says, that is cut off, that " +
			"unpacks to something else, and of none",
		Wants: "a typed error, or a container that works",
		Run:   imageLayers,
	},
	Case{
		// Layers are unpacked as root on the host. Links and whiteouts have led engines outside. A whiteout removes
		// files, so it can be used to delete.
		Group: 34, Name: "images/members", Inside: true,
		Tries: "unpack layers with devices, absolute and climbing members, links and hard links that lead out, and " +
			"whiteouts of files outside and of everything",
		Wants: "each is refused, or lands inside the image; no file of the host is shown or changed, and no device " +
			"can be opened",
		Run: imageMembers,
	},
	Case{
		// Mount points are created in a root file system that the image controls. In CVE-2021-30465 that led to
		// mounts on the host.
		Group: 34, Name: "images/mount-points", Inside: true,
		Tries: "run images in which /workspace, /.berth, /proc, /dev, /sys, /etc and /tmp are links to a directory " +
			"of the host, to each other, or files",
		Wants: "nothing is mounted or made outside of the container; it works, or is refused with a typed error",
		Run:   imageMountPoints,
	},
	Case{
		// The compressed size limits nothing. Unpacked content is written to the disk pool that all containers share.
		Group: 34, Name: "images/bomb",
		Tries: "import a layer of some MiB that unpacks to 16 GiB and is not what its digest says",
		Wants: "it is refused, and containers work and can write meanwhile and afterwards",
		Run:   imageLayerBombs, Slow: true, Alone: true,
	},
	Case{
		// A tag may be moved to another image. A container must keep the image that it was created from.
		Group: 34, Name: "images/moved-tag", Inside: true,
		Tries: "give an image's name to another one while a container of the first lives, and start that container again",
		Wants: "the container stays with the image that it was made of",
		Run:   movedTag,
	},
)

// An imageView is what a command sees in its container. The probe is a static program, so it also works in an image
// without a shell or tools.
type imageView struct {
	UID     int      `json:"uid"`
	Dir     string   `json:"dir"`
	Env     []string `json:"env"`
	Mounts  string   `json:"mounts"`
	Program string   `json:"program"` // program of PID 1
}

var _ = addProbe("image-view", func([]string) (any, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	args, _ := os.ReadFile("/proc/1/cmdline")
	return imageView{os.Getuid(), dir, os.Environ(), string(mounts), string(args)}, err
})

// optioned returns a valid image with these options. Such images have a minimal root file system and differ only in
// their configuration.
func optioned(options map[string]any) image {
	return image{layers: []imageLayer{baseLayer()}, options: options}
}

// imageConfigurations uses options that an image must not control.
func imageConfigurations(ctx context.Context, t *Target) (string, error) {
	var said []string
	for what, options := range map[string]map[string]any{
		// Each of these has a meaning for other engines. A working directory in /proc is CVE-2024-21626 again.
		"programs": {"Entrypoint": []string{"/evil"}, "Cmd": []string{"-x"}, "User": "0:0",
			"WorkingDir": "/proc/self/fd/8", "StopSignal": "SIGKILL",
			"Volumes":      map[string]any{"/": struct{}{}, "/proc": struct{}{}, "/host": struct{}{}},
			"ExposedPorts": map[string]any{"1/tcp": struct{}{}},
			"Labels":       map[string]string{"berth/first-id": "0", "containerd.io/gc.root": "x"}, "Shell": []string{
				"/evil"}, "Healthcheck": map[string]any{"Test": []string{"CMD", "/evil"}}},
		// An image may set the environment of commands. The guest must not load a library or use a PATH from it.
		"environment": {"Env": []string{"LD_PRELOAD=/evil.so", "PATH=/evil", "GODEBUG=x=y", "GOTRACEBACK=crash", "=x",
			"none", "A=\x00B=C", "HOME=/proc/1", "LD_LIBRARY_PATH=/proc/self/fd"}},
		// The kernel accepts 128 KiB in one variable.
		"large": {"Env": []string{"BIG=" + strings.Repeat("A", 1<<20)}},
		"many":  {"Env": strings.Split(strings.Repeat("BIG=AAAAAAAAAAAA,", 1<<16), ",")},
	} {
		got, err := t.configured(ctx, what, options)
		if err != nil {
			return "", fmt.Errorf("%s: %w", what, err)
		}
		said = append(said, what+": "+got)
	}
	slices.Sort(said)
	return strings.Join(said, "; "), nil
}

// configured runs a container of an image with these options. It checks what a command sees, not what the API
// reports.
func (t *Target) configured(ctx context.Context, what string, options map[string]any) (string, error) {
	con, refused, err := t.ofImage(ctx, what, optioned(options))
	if refused != "" || err != nil {
		return refused, err
	}
	var view imageView
	if err := t.Probe(ctx, con.ID, "", "image-view", &view); err != nil {
		return "", err
	}
	switch {
	case view.UID == 0:
		return "", Breached("commands are root's because the image says so")
	case !strings.HasPrefix(view.Dir, "/workspace"):
		return "", Breached("commands are run in %s because the image says so", view.Dir)
	case strings.Contains(view.Mounts, " /host "):
		return "", Breached("an image's volume is mounted")
	case view.Program != "" && !strings.HasPrefix(view.Program, "/.berth/guest"):
		return "", Breached("PID 1 is %q", view.Program)
	}
	return "as any other", nil
}

// ofImage creates a container of an image. refused is the daemon's message if it refused, which is allowed. An
// internal error is a breach.
func (t *Target) ofImage(ctx context.Context, what string, i image) (con proto.Container, refused string, err error) {
	name, _, err := t.Import(ctx, what, i)
	if err == nil {
		con, err = t.Container(ctx, proto.CreateContainer{Image: name})
	}
	if err != nil {
		refused, err = Refused(err, proto.InvalidArgument, proto.TooLarge, proto.Unsupported, proto.QuotaExceeded,
			proto.NotFound)
	}
	return con, refused, err
}

// shorter returns quick in a quick run, and full otherwise.
func (t *Target) shorter(full, quick int) int {
	if t.Quick {
		return quick
	}
	return full
}

// imageLayers uses false layers. A valid image with many layers must work, or be refused with a typed error.
func imageLayers(ctx context.Context, t *Target) (string, error) {
	good, cut := baseLayer(), baseLayer()
	// Cut inside the archive, so that it ends in the middle of a member.
	cut.stored = cut.stored[:700]
	lie := layerOf(imageMember{Header: tar.Header{Name: "lie"}, body: "x"})
	lie.claims = digestOf([]byte("something else"))
	// Its digest is right, but the digest of its unpacked content (the diff ID) is not.
	other := baseLayer()
	other.plain = digestOf([]byte("something else"))
	many := func(n int) []imageLayer {
		all := []imageLayer{good}
		for i := range n {
			all = append(all, layerOf(imageMember{Header: tar.Header{Name: fmt.Sprintf("file%d", i)}, body: fmt.Sprint(
				i)}))
		}
		return all
	}
	var said []string
	for _, c := range []struct {
		what   string
		layers []imageLayer
	}{{"cut-off", []imageLayer{cut}}, {"false-digest", []imageLayer{good, lie}}, {"false-content", []imageLayer{other}},
		{"none", nil}, {"some", many(60)}, {"many", many(t.shorter(1000, 200))}} {
		con, refused, err := t.ofImage(ctx, c.what, image{layers: c.layers})
		if err != nil {
			return "", fmt.Errorf("%s: %w", c.what, err)
		}
		if refused == "" {
			// The first three are false: if one of them runs, nothing was checked.
			if c.what != "none" && len(c.layers) < 3 {
				return "", Breached("an image with a layer of a %s is run", c.what)
			}
			if err := t.Probe(ctx, con.ID, "", "image-view", nil); err != nil {
				return "", Breached("%s: the container does not work: %v", c.what, err)
			}
			refused = "runs"
		}
		said = append(said, c.what+": "+refused)
	}
	return strings.Join(said, "; "), nil
}

// hostileMembers returns layers that try to reach the canary's directory, which stands for the host. The name of each
// says what it does.
func hostileMembers(c *canary) map[string][]imageMember {
	up := strings.Repeat("../", 30) + strings.TrimPrefix(c.dir, "/")
	one := func(h tar.Header, body string) []imageMember { return []imageMember{{h, body}} }
	behind := func(link, name string) []imageMember {
		return []imageMember{{tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: link}, ""},
			{tar.Header{Name: name}, "changed"}}
	}
	wiped := tar.Header{Name: "etc/passwd", Typeflag: tar.TypeChar}
	return map[string][]imageMember{
		"absolute":    one(tar.Header{Name: c.file}, "changed"),
		"climbing":    one(tar.Header{Name: up + "/secret"}, "changed"),
		"climbing-in": one(tar.Header{Name: "etc/" + up + "/more"}, "changed"),
		"link":        behind(c.dir, "out/secret"),
		"link-up":     behind(up, "out/more"),
		"link-dot":    behind(c.dir, "./out/./secret"),
		// A hard link to a file of the host would give the container the inode itself.
		"hard-link": {{tar.Header{Name: "stolen", Typeflag: tar.TypeLink, Linkname: c.file}, ""},
			{tar.Header{Name: "stolen"}, "changed"}},
		"hard-link-up": {{tar.Header{Name: "stolen", Typeflag: tar.TypeLink, Linkname: up + "/secret"}, ""},
			{tar.Header{Name: "stolen"}, "changed"}},
		"hard-link-by-link": {{tar.Header{Name: "out", Typeflag: tar.TypeSymlink, Linkname: c.dir}, ""},
			{tar.Header{Name: "stolen", Typeflag: tar.TypeLink, Linkname: "out/secret"}, ""}},
		"whiteout":         one(tar.Header{Name: up + "/.wh.secret"}, ""),
		"whiteout-by-link": behind(c.dir, "out/.wh.secret"),
		// A whiteout named "." or ".." would remove the directory itself, or its parent.
		"whiteout-dots": one(tar.Header{Name: ".wh..."}, ""),
		"whiteout-up":   one(tar.Header{Name: "etc/.wh..."}, ""),
		// An opaque directory removes everything below it.
		"opaque":      behind(c.dir, "out/.wh..wh..opq"),
		"opaque-root": one(tar.Header{Name: ".wh..wh..opq"}, ""),
		// The form of a whiteout in overlayfs: a character device 0:0.
		"plain-whiteout": one(wiped, ""),
		"disk":           one(tar.Header{Name: "stolen", Typeflag: tar.TypeBlock, Devmajor: 8, Mode: 0o666}, ""),
		"memory": one(tar.Header{Name: "stolen", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1, Mode: 0o666},
			""),
		"loop-control": one(tar.Header{Name: "stolen", Typeflag: tar.TypeChar, Devmajor: 10, Devminor: 237,
			Mode: 0o666}, ""),
		"root-is-a-link": one(tar.Header{Name: "./", Typeflag: tar.TypeSymlink, Linkname: c.dir}, ""),
		// With this attribute, overlayfs takes a directory's content from elsewhere.
		"overlay-redirect": one(tar.Header{Name: "stolen/", Typeflag: tar.TypeDir, PAXRecords: map[string]string{
			"SCHILY.xattr.trusted.overlay.redirect": c.dir, "SCHILY.xattr.trusted.overlay.opaque": "y"}}, ""),
		// Version 2 of the attribute, with all capabilities: the program would give them to its caller.
		"capable": one(tar.Header{Name: "stolen", Mode: 0o6755, PAXRecords: map[string]string{
			"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00"}}, ""),
	}
}

// deviceImages are the hostileMembers with a device.
var deviceImages = []string{"disk", "memory", "loop-control"}

var _ = addProbe("image-device", func([]string) (any, error) {
	f, err := os.Open("/stolen")
	if err != nil {
		return false, nil
	}
	return true, f.Close()
})

// imageMembers checks the canary after each image, and then checks from inside what the image has brought.
func imageMembers(ctx context.Context, t *Target) (string, error) {
	c, err := newCanary()
	if err != nil {
		return "", err
	}
	defer c.close()
	refusals, runs := 0, 0
	for what, members := range hostileMembers(c) {
		con, refused, err := t.ofImage(ctx, what, image{layers: []imageLayer{baseLayer(), layerOf(members...)}})
		if err != nil {
			return "", fmt.Errorf("%s: %w", what, err)
		}
		// Checked first, since unpacking alone may do the harm.
		if err := c.unharmed(what); err != nil {
			return "", err
		}
		if refused != "" {
			refusals++
			continue
		}
		runs++
		if err := t.seeStolen(ctx, con.ID, what, c); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d were refused, %d stayed inside", refusals, runs), nil
}

// seeStolen checks from inside what an image may have brought, and removes the container.
func (t *Target) seeStolen(ctx context.Context, container, what string, c *canary) error {
	for _, user := range []string{proto.UserDefault, proto.UserRoot} {
		for _, path := range []string{"/stolen", "/stolen/secret", "/out/secret"} {
			if err := c.in(what, t.content(ctx, container, user, path)); err != nil {
				return err
			}
		}
		if !slices.Contains(deviceImages, what) {
			continue
		}
		var opened bool
		if err := t.Probe(ctx, container, user, "image-device", &opened); err != nil || opened {
			return errors.Join(err, Breached("%s: the device can be opened: %v", what, opened))
		}
	}
	_, err := t.Delete(ctx, container, false)
	return errors.Join(err, c.unharmed(what))
}

// content returns the content of a file in a container, or nothing. It reads through the API, which follows links as
// a command would.
func (t *Target) content(ctx context.Context, container, user, path string) []byte {
	got, err := t.FS(container, user).Read(ctx, path)
	if err != nil {
		return nil
	}
	defer got.Close()
	data, _ := io.ReadAll(io.LimitReader(got, 64<<10))
	return data
}

// imageMountPoints replaces each mount point by a link or a file: one at a time, and all together.
func imageMountPoints(ctx context.Context, t *Target) (string, error) {
	c, err := newCanary()
	if err != nil {
		return "", err
	}
	defer c.close()
	var said []string
	for _, target := range []string{c.dir, "/etc", "file"} {
		for _, path := range []string{"workspace", ".berth", "proc", "dev", "sys", "etc", "tmp", "all"} {
			paths := []string{path}
			if path == "all" {
				paths = []string{"workspace", ".berth", "proc", "dev", "sys", "tmp", "run"}
			}
			got, err := t.linked(ctx, c, paths, target)
			if err != nil {
				return "", fmt.Errorf("/%s leads to %s: %w", path, target, err)
			}
			said = append(said, got)
		}
	}
	slices.Sort(said)
	return fmt.Sprintf("%d images: %s", len(said), strings.Join(slices.Compact(said), "; ")), nil
}

// linked runs an image in which these paths are links to target, or files.
func (t *Target) linked(ctx context.Context, c *canary, paths []string, target string) (string, error) {
	members := []imageMember{}
	if !slices.Contains(paths, "etc") {
		// /etc must exist unless it is replaced itself: the guest adds the user there.
		members = append(members, imageMember{Header: tar.Header{Name: "etc/", Typeflag: tar.TypeDir}})
	}
	for _, p := range paths {
		h := tar.Header{Name: p, Typeflag: tar.TypeSymlink, Linkname: target}
		if target == "file" {
			h = tar.Header{Name: p}
		}
		members = append(members, imageMember{Header: h})
	}
	con, refused, err := t.ofImage(ctx, "mounts", image{layers: []imageLayer{layerOf(members...)}})
	if err != nil {
		return "", err
	}
	what := strings.Join(paths, " ") + " leading to " + target
	if refused != "" {
		return "refused", c.unharmed(what)
	}
	fs := t.FS(con.ID, proto.UserRoot)
	for _, dir := range []string{"/workspace", "/tmp", "/dev", "/sys"} {
		if info, err := fs.Stat(ctx, dir); err != nil || info.Type != proto.TypeDirectory {
			return "", Breached("%s: %s is %q: %v", what, dir, info.Type, err)
		}
		// writes to the canary's directory if dir leads there
		_, _ = fs.Write(ctx, dir+"/more", 0o644, strings.NewReader("x"), 1)
	}
	// Without /proc, the masks of its dangerous parts are missing, too.
	if _, err := fs.Stat(ctx, "/proc/1/status"); err != nil {
		return "", Breached("%s: /proc is not mounted: %v", what, err)
	}
	if _, err := t.Delete(ctx, con.ID, false); err != nil {
		return "", err
	}
	return "works", c.unharmed(what)
}

// bombed returns a layer of n GiB of zeros in one file, compressed by a factor of a thousand. It compresses one GiB
// and repeats the result, which is faster and unpacks to the same content.
func bombed(n int) imageLayer {
	var head, gib, all bytes.Buffer
	_ = tar.NewWriter(&head).WriteHeader(&tar.Header{Name: "bomb", Typeflag: tar.TypeReg, Mode: 0o644,
		Size: int64(n) << 30})
	for buf, plain := range map[*bytes.Buffer]io.Reader{&all: &head, &gib: io.LimitReader(zeros{}, 1<<30)} {
		z, _ := gzip.NewWriterLevel(buf, gzip.BestSpeed)
		_, _ = io.Copy(z, plain)
		_ = z.Close()
	}
	for range n { // concatenated gzip streams are one stream
		all.Write(gib.Bytes())
	}
	return imageLayer{stored: all.Bytes(), gzip: true, plain: digestOf([]byte("nobody gets that far"))}
}

// imageLayerBombs writes and syncs in a container while the bomb is unpacked, since both use the same disk pool.
func imageLayerBombs(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	done := make(chan error, 1)
	go func() {
		// Compressed it is a few MiB, so no limit on the upload refuses it.
		_, err := t.ImportImage(ctx, "berth-attack/bomb-layer", image{layers: []imageLayer{bombed(bombGiB)}}.archive(),
			0, nil)
		done <- err
	}()
	for {
		select {
		case err := <-done:
			said, err := Refused(err, proto.InvalidArgument, proto.QuotaExceeded)
			return said, errors.Join(err, t.alive(ctx, con.ID))
		case <-time.After(time.Second):
			if _, err := t.Output(ctx, con.ID, "", "echo x >file && sync file"); err != nil {
				return "", Breached("while it was unpacked, a container could not write: %v", err)
			}
		}
	}
}

// bombGiB is the unpacked size of the bomb. It need not fill the disk: the layer does not match its digest.
const bombGiB = 16

// movedTag reads a file that differs between the two images, while the container runs and after a restart.
func movedTag(ctx context.Context, t *Target) (string, error) {
	mark := func(what string) image {
		return image{layers: []imageLayer{baseLayer(),
			layerOf(imageMember{Header: tar.Header{Name: "mark", Mode: 0o644}, body: what})}}
	}
	name, first, err := t.Import(ctx, "moved", mark("first"))
	if err != nil {
		return "", err
	}
	con, err := t.Container(ctx, proto.CreateContainer{Image: name})
	if err != nil {
		return "", err
	}
	again, second, err := t.Import(ctx, "moved", mark("second"))
	if err != nil || second == first || again != name {
		return "", fmt.Errorf("importing another image under the same name: %q %q %w", again, second, err)
	}
	for _, moment := range []string{"running", "started again"} {
		got, err := t.FS(con.ID, proto.UserDefault).Read(ctx, "/mark")
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(got)
		got.Close()
		if err != nil || string(data) != "first" {
			return "", Breached("%s, the container has the %s image", moment, data)
		}
		if _, err := t.Stop(ctx, con.ID); err != nil {
			return "", err
		}
	}
	if now, err := t.Client.Container(ctx, con.ID); err != nil || now.ImageDigest != first {
		return "", Breached("the container's image was %q and is %q: %v", first, now.ImageDigest, err)
	}
	return "it has the first image, also after a new start", nil
}

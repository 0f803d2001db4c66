package sandboximage

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/proto"
	"berth/sandbox-image/buildenv"
	"berth/sandbox-image/recipe"
)

// gatherRoot puts below dir what install.sh expects there: wheels, files and setup.sh.
func (b *build) gatherRoot(ctx context.Context, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return buildenv.IOError("the build directory", err)
	}
	if err := buildenv.WriteFiles(filepath.Join(dir, recipe.FilesDir), b.def.Files); err != nil {
		return buildenv.IOError("the image's files", err)
	}
	texts := map[string]string{"install.sh": installScript, recipe.SetupFile: b.def.Setup}
	if err := buildenv.WriteTexts(dir, texts); err != nil {
		return buildenv.IOError("the build directory", err)
	}
	wheels, err := newWheelhouse(b.Env)
	if err != nil {
		return err
	}
	return wheels.put(ctx, filepath.Join(dir, "wheels"), b.def.Wheels)
}

// bootstrap installs the packages of the repository in dir, count of them, into root, and
// finishes the tree with install.sh and what is in the directory part of dir.
func (b *build) bootstrap(ctx context.Context, dir, root string, count int, epoch time.Time) error {
	options := filepath.Join(dir, "dpkg.cfg")
	if err := os.WriteFile(options, []byte(b.def.Dpkg), 0o644); err != nil {
		return buildenv.IOError("the build directory", err)
	}
	p := &installation{build: b, total: int64(count), wheels: int64(len(recipe.ForHost(b.def.Wheels)))}
	cmd := buildenv.Command{
		Path: "mmdebstrap",
		Args: []string{
			// In its own process and mount namespaces, so that all of it dies together. For root
			// this mode does not mean a user namespace.
			"--mode=unshare",
			"--variant=essential",
			"--format=directory",
			"--verbose", // the lines that progress is read from
			// Both want more programs; the repository was signed for when it was resolved, and the
			// architecture is the host's.
			"--skip=check/signed-by,check/qemu",
			"--dpkgopt=" + options,
			"--include=" + strings.Join(b.def.Packages, " "),
			`--essential-hook=chroot "$1" /bin/sh -euc "$BERTH_PREPARE"`,
			`--customize-hook=cp -R --preserve=mode "$BERTH_PART" "$1/run/berth"`,
			`--customize-hook=chroot "$1" env PYTHONDONTWRITEBYTECODE=1 /bin/sh -eu /run/berth/install.sh`,
			`--customize-hook=rm -r "$1/run/berth"`,
			"", // no suite: every package of the repository counts
			root,
			// "copy", because the files lie outside the chroot.
			"deb [trusted=yes] copy:" + filepath.Join(dir, "repo") + " ./",
		},
		// None of the host's environment, or it would reach the packages' scripts.
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"LC_ALL=C.UTF-8",
			"TZ=UTC",
			"HOME=/root",
			"SOURCE_DATE_EPOCH=" + strconv.FormatInt(epoch.Unix(), 10),
			"BERTH_PART=" + filepath.Join(dir, "part"),
			"BERTH_PREPARE=" + b.def.Prepare,
		},
		Log:     b.Log,
		Line:    p.line,
		Private: true,
	}
	if _, err := cmd.Run(ctx); ctx.Err() != nil {
		return ctx.Err()
	} else if err != nil {
		return proto.Errorf(proto.Internal, buildenv.Op, b.def.Name,
			"installing the packages failed (%v); the build log has the details", err)
	}
	return nil
}

// An installation follows dpkg's output. It installs the essential packages first, all of their
// steps, so unpacking and configuring take turns.
type installation struct {
	*build
	total                int64
	unpacked, configured int64
	wheels, installed    int64 // Python packages, and those that pip has started
}

// line counts packages: "Unpacking bash (5.2.15-2) ...", "Setting up bash (5.2.15-2) ...".
func (p *installation) line(line string) {
	item := func(prefix string) (string, bool) {
		rest, ok := strings.CutPrefix(line, prefix)
		name, _, versioned := strings.Cut(rest, " (")
		return name, ok && versioned
	}
	if name, ok := item("Unpacking "); ok {
		p.unpacked = min(p.unpacked+1, p.total)
		p.Step(buildenv.Step{Name: buildenv.StepUnpacking, Item: name, Done: p.unpacked, Total: p.total})
	} else if name, ok := item("Setting up "); ok {
		p.configured = min(p.configured+1, p.total)
		p.Step(buildenv.Step{Name: buildenv.StepConfiguring, Item: name, Done: p.configured, Total: p.total})
	} else if name, ok := strings.CutPrefix(line, "Processing ./wheels/"); ok {
		name, _, _ = strings.Cut(name, "-")
		p.installed = min(p.installed+1, p.wheels)
		p.Step(buildenv.Step{Name: buildenv.StepInstalling, Item: name, Done: p.installed, Total: p.wheels})
	} else if strings.HasPrefix(line, "I: running --customize-hook") || strings.HasPrefix(line, "berth: ") {
		p.Step(buildenv.Step{Name: buildenv.StepFinishing})
	}
}

// Package debian resolves and downloads Debian packages with the host's apt, and makes a local repository of them.
// Package sandboximage installs from that repository.
package debian

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/proto"
	"berth/sandbox-image/buildenv"
)

// Suite is the Debian release of the images: the one with Python 3.11.
const Suite = "bookworm"

// keyring holds the keys of Debian's own archive; package debian-archive-keyring.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Sources is the definition's file with Debian's public mirrors. It is the image's own list, and the fallback if the
// host's sources do not offer the suite.
const Sources = "etc/apt/sources.list.d/debian.sources"

// An apt resolves and downloads packages with the host's apt and its configuration, but with its own lists, cache and
// empty "installed" state.
type Apt struct {
	*buildenv.Env
	files    fs.FS    // the definition's files
	dir      string   // in the cache
	override []string // options that replace the host's sources; empty if those serve
	updated  bool     // the lists were fetched by this build
}

// NewApt prepares the directory.
func NewApt(e *buildenv.Env, files fs.FS) (*Apt, error) {
	a := &Apt{Env: e, files: files, dir: filepath.Join(e.Cache, "apt")}
	for _, dir := range []string{"lists/partial", "archives/partial", "sources"} {
		if err := os.MkdirAll(filepath.Join(a.dir, dir), 0o755); err != nil {
			return nil, buildenv.IOError("the package cache", err)
		}
	}
	texts := map[string]string{"status": "", "preferences": preferences(), "apt.conf": a.config()}
	if err := buildenv.WriteTexts(a.dir, texts); err != nil {
		return nil, buildenv.IOError("the package cache", err)
	}
	return a, nil
}

// preferences restricts packages to the suite, whatever else the host's sources offer.
func preferences() string {
	var s strings.Builder
	for _, name := range []string{Suite, Suite + "-updates", Suite + "-security"} {
		fmt.Fprintf(&s, "Package: *\nPin: release n=%s\nPin-Priority: 500\n\n", name)
	}
	s.WriteString("Package: *\nPin: release *\nPin-Priority: -1\n")
	return s.String()
}

// config is read after the host's configuration. It clears the hooks of the host's package tools, since nothing is
// installed on the host. It fetches only package indices.
func (a *Apt) config() string {
	return strings.ReplaceAll(`
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
#clear Acquire::IndexTargets;
Acquire::IndexTargets::deb::Packages {
	MetaKey "$(COMPONENT)/binary-$(ARCHITECTURE)/Packages";
	flatMetaKey "Packages";
	ShortDescription "Packages";
	Description "$(RELEASE)/$(COMPONENT) $(ARCHITECTURE) Packages";
	flatDescription "$(RELEASE) Packages";
	Optional "0";
};
Acquire::Languages "none";
Acquire::Retries "3";
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Keep-Downloaded-Packages "true";
Dir::State "@/";
Dir::State::lists "@/lists/";
Dir::State::status "@/status";
Dir::State::extended_states "@/extended_states";
Dir::Cache "@/";
Dir::Cache::archives "@/archives/";
Dir::Cache::pkgcache "@/pkgcache.bin";
Dir::Cache::srcpkgcache "@/srcpkgcache.bin";
Dir::Etc::preferences "@/preferences";
Dir::Etc::preferencesparts "/dev/null";
`, "@", a.dir)
}

// run runs an apt tool and returns its output. It reports progress to count, which may be nil.
func (a *Apt) run(ctx context.Context, count func(done, total int64), tool string, args ...string) (string, error) {
	all := []string{"-c", filepath.Join(a.dir, "apt.conf"), "-o", "APT::Status-Fd=3"}
	all = append(append(all, a.override...), args...)
	cmd := buildenv.Command{
		Path: tool,
		Args: all,
		// The rest is inherited: it may name a proxy.
		Env: append(os.Environ(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"),
		Log: a.Log,
		Status: func(line string) {
			if done, total, ok := parseStatus(line); ok && count != nil {
				count(done, total)
			}
		},
	}
	return cmd.Run(ctx)
}

// parseStatus reads a line of apt's status protocol: "dlstatus:N:percent:Retrieving file N of M".
func parseStatus(line string) (done, total int64, ok bool) {
	fields := strings.SplitN(line, ":", 4)
	if len(fields) < 4 || fields[0] != "dlstatus" {
		return 0, 0, false
	}
	n, err := fmt.Sscanf(fields[3], "Retrieving file %d of %d", &done, &total)
	return done, total, err == nil && n == 2
}

// Resolve fetches the package lists and decides which packages, in which versions, the wanted ones need today. It
// leaves out those that dpkg's status file lists as installed.
func (a *Apt) Resolve(ctx context.Context, status string, wanted []string) (PackageSet, error) {
	if err := os.WriteFile(filepath.Join(a.dir, "status"), []byte(status), 0o644); err != nil {
		return nil, buildenv.IOError("the package cache", err)
	}
	if err := a.update(ctx); err != nil {
		return nil, err
	}
	args := append([]string{"--yes", "--simulate", "--no-remove", "install"}, wanted...)
	out, err := a.run(ctx, nil, "apt-get", args...)
	if err != nil {
		return nil, buildenv.Unavailable(ctx, "the Debian mirrors do not have what the image needs", err)
	}
	plan := planned(out)
	if len(plan) == 0 {
		return nil, nil // everything is installed
	}
	out, err = a.run(ctx, nil, "apt-cache", append([]string{"show"}, plan...)...)
	if err != nil {
		return nil, buildenv.Unavailable(ctx, "the Debian package lists cannot be read", err)
	}
	pkgs, err := parsePackages(out)
	if err != nil {
		return nil, buildenv.Unavailable(ctx, "the Debian package lists cannot be understood", err)
	}
	return pkgs, nil
}

// update refreshes the lists from the host's sources, or from Debian's own mirrors if those do not have the suite. A
// failing source does not matter as long as the suite is there, even from an earlier update.
func (a *Apt) update(ctx context.Context) error {
	if a.updated {
		return nil
	}
	a.Step(buildenv.Step{Name: buildenv.StepUpdating})
	public, err := a.publicSources()
	if err != nil {
		return err
	}
	count := func(done, total int64) { a.Step(buildenv.Step{Name: buildenv.StepUpdating, Done: done, Total: total}) }
	for _, a.override = range [][]string{nil, public} {
		_, err = a.run(ctx, count, "apt-get", "update")
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if a.hasSuite(ctx) {
			a.updated = true
			return nil
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		return buildenv.Missing("debian-archive-keyring")
	}
	return buildenv.Unavailable(ctx, "neither this machine's apt sources nor Debian's public mirrors offer "+Suite, err)
}

// hasSuite reports whether the present lists include the suite.
func (a *Apt) hasSuite(ctx context.Context) bool {
	out, err := a.run(ctx, nil, "apt-get", "indextargets", "--format", "$(CODENAME)/$(COMPONENT)",
		"Created-By: Packages")
	return err == nil && strings.Contains("\n"+out, "\n"+Suite+"/main\n")
}

// publicSources writes Debian's own mirrors as a source list and returns the options to use it.
func (a *Apt) publicSources() ([]string, error) {
	text, err := fs.ReadFile(a.files, Sources)
	if err != nil {
		return nil, buildenv.IOError("the image definition", err)
	}
	dir := filepath.Join(a.dir, "sources")
	if err := os.WriteFile(filepath.Join(dir, "debian.sources"), text, 0o644); err != nil {
		return nil, buildenv.IOError("the package cache", err)
	}
	return []string{"-o", "Dir::Etc::sourcelist=/dev/null", "-o", "Dir::Etc::sourceparts=" + dir}, nil
}

// planned extracts the packages from the output of a simulated installation, as arguments of apt-cache. Its lines are
// "Inst name (version origin [arch])", or "Inst name [old] (version …)" for a newer version.
func planned(out string) []string {
	var names []string
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) > 3 && strings.HasPrefix(fields[2], "[") {
			fields = slices.Delete(fields, 2, 3)
		}
		if len(fields) > 2 && fields[0] == "Inst" {
			names = append(names, fields[1]+"="+strings.TrimPrefix(fields[2], "("))
		}
	}
	return names
}

// Download fetches the packages missing from the cache, and drops those that Debian no longer offers. apt checks the
// hashes.
func (a *Apt) Download(ctx context.Context, pkgs PackageSet) error {
	all, need := int64(len(pkgs)), int64(len(a.absent(pkgs)))
	have := all - need
	count := func(done, total int64) {
		// apt counts packages from the cache inconsistently; the number left is reliable
		have = max(have, min(all-(total-done), all))
		a.Step(buildenv.Step{Name: buildenv.StepDownloading, Done: have, Total: all})
	}
	count(0, need)
	if need == 0 {
		return nil
	}
	args := []string{"--yes", "--download-only", "install"}
	for _, p := range pkgs {
		args = append(args, p.name+"="+p.version)
	}
	if _, err := a.run(ctx, count, "apt-get", args...); err != nil {
		return buildenv.Unavailable(ctx, "the Debian packages cannot be downloaded", err)
	}
	if left := a.absent(pkgs); len(left) > 0 {
		return proto.Errorf(proto.Unavailable, buildenv.Op, left[0].name,
			"package %s did not arrive; run the build again; finished downloads are used again", left[0].name)
	}
	if _, err := a.run(ctx, nil, "apt-get", "autoclean"); err != nil {
		return buildenv.Unavailable(ctx, "the package cache cannot be cleaned", err)
	}
	return nil
}

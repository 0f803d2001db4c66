package sandboximage

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/proto"
)

// suite is the Debian release of the images: the one with Python 3.11.
const suite = "bookworm"

// keyring holds the keys of Debian's own archive; package debian-archive-keyring.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// sources is the definition's file with Debian's public mirrors. It is the image's own list, and the fallback if the
// host's sources do not offer the suite.
const sources = "etc/apt/sources.list.d/debian.sources"

// An apt resolves and downloads packages with the host's apt and its configuration, but with its own lists, cache and
// empty "installed" state.
type apt struct {
	*Env
	files    fs.FS    // the definition's files
	dir      string   // in the cache
	override []string // options that replace the host's sources; empty if those serve
	updated  bool     // the lists were fetched by this build
}

// newApt prepares the directory.
func newApt(e *Env, files fs.FS) (*apt, error) {
	a := &apt{Env: e, files: files, dir: filepath.Join(e.Cache, "apt")}
	for _, dir := range []string{"lists/partial", "archives/partial", "sources"} {
		if err := os.MkdirAll(filepath.Join(a.dir, dir), 0o755); err != nil {
			return nil, ioError("the package cache", err)
		}
	}
	texts := map[string]string{"status": "", "preferences": preferences(), "apt.conf": a.config()}
	if err := writeTexts(a.dir, texts); err != nil {
		return nil, ioError("the package cache", err)
	}
	return a, nil
}

// preferences restricts packages to the suite, whatever else the host's sources offer.
func preferences() string {
	var s strings.Builder
	for _, name := range []string{suite, suite + "-updates", suite + "-security"} {
		fmt.Fprintf(&s, "Package: *\nPin: release n=%s\nPin-Priority: 500\n\n", name)
	}
	s.WriteString("Package: *\nPin: release *\nPin-Priority: -1\n")
	return s.String()
}

// config is read after the host's configuration. It clears the hooks of the host's package tools, since nothing is
// installed on the host. It fetches only package indices.
func (a *apt) config() string {
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
func (a *apt) run(ctx context.Context, count func(done, total int64), tool string, args ...string) (string, error) {
	all := []string{"-c", filepath.Join(a.dir, "apt.conf"), "-o", "APT::Status-Fd=3"}
	all = append(append(all, a.override...), args...)
	cmd := command{
		path: tool,
		args: all,
		// The rest is inherited: it may name a proxy.
		env: append(os.Environ(), "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"),
		log: a.Log,
		status: func(line string) {
			if done, total, ok := parseStatus(line); ok && count != nil {
				count(done, total)
			}
		},
	}
	return cmd.run(ctx)
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

// resolve fetches the package lists and decides which packages, in which versions, the wanted ones need today. It
// leaves out those that dpkg's status file lists as installed.
func (a *apt) resolve(ctx context.Context, status string, wanted []string) (packageSet, error) {
	if err := os.WriteFile(filepath.Join(a.dir, "status"), []byte(status), 0o644); err != nil {
		return nil, ioError("the package cache", err)
	}
	if err := a.update(ctx); err != nil {
		return nil, err
	}
	args := append([]string{"--yes", "--simulate", "--no-remove", "install"}, wanted...)
	out, err := a.run(ctx, nil, "apt-get", args...)
	if err != nil {
		return nil, unavailable(ctx, "the Debian mirrors do not have what the image needs", err)
	}
	plan := planned(out)
	if len(plan) == 0 {
		return nil, nil // everything is installed
	}
	out, err = a.run(ctx, nil, "apt-cache", append([]string{"show"}, plan...)...)
	if err != nil {
		return nil, unavailable(ctx, "the Debian package lists cannot be read", err)
	}
	pkgs, err := parsePackages(out)
	if err != nil {
		return nil, unavailable(ctx, "the Debian package lists cannot be understood", err)
	}
	return pkgs, nil
}

// update refreshes the lists from the host's sources, or from Debian's own mirrors if those do not have the suite. A
// failing source does not matter as long as the suite is there, even from an earlier update.
func (a *apt) update(ctx context.Context) error {
	if a.updated {
		return nil
	}
	a.Step(Step{Name: StepUpdating})
	public, err := a.publicSources()
	if err != nil {
		return err
	}
	count := func(done, total int64) { a.Step(Step{Name: StepUpdating, Done: done, Total: total}) }
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
		return missing("debian-archive-keyring")
	}
	return unavailable(ctx, "neither this machine's apt sources nor Debian's public mirrors offer "+suite, err)
}

// hasSuite reports whether the present lists include the suite.
func (a *apt) hasSuite(ctx context.Context) bool {
	out, err := a.run(ctx, nil, "apt-get", "indextargets", "--format", "$(CODENAME)/$(COMPONENT)",
		"Created-By: Packages")
	return err == nil && strings.Contains("\n"+out, "\n"+suite+"/main\n")
}

// publicSources writes Debian's own mirrors as a source list and returns the options to use it.
func (a *apt) publicSources() ([]string, error) {
	text, err := fs.ReadFile(a.files, sources)
	if err != nil {
		return nil, ioError("the image definition", err)
	}
	dir := filepath.Join(a.dir, "sources")
	if err := os.WriteFile(filepath.Join(dir, "debian.sources"), text, 0o644); err != nil {
		return nil, ioError("the package cache", err)
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

// download fetches the packages missing from the cache, and drops those that Debian no longer offers. apt checks the
// hashes.
func (a *apt) download(ctx context.Context, pkgs packageSet) error {
	all, need := int64(len(pkgs)), int64(len(a.absent(pkgs)))
	have := all - need
	count := func(done, total int64) {
		// apt counts packages from the cache inconsistently; the number left is reliable
		have = max(have, min(all-(total-done), all))
		a.Step(Step{Name: StepDownloading, Done: have, Total: all})
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
		return unavailable(ctx, "the Debian packages cannot be downloaded", err)
	}
	if left := a.absent(pkgs); len(left) > 0 {
		return proto.Errorf(proto.Unavailable, op, left[0].name,
			"package %s did not arrive; run it again, what was downloaded is kept", left[0].name)
	}
	if _, err := a.run(ctx, nil, "apt-get", "autoclean"); err != nil {
		return unavailable(ctx, "the package cache cannot be cleaned", err)
	}
	return nil
}

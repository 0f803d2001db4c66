package packaging_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// firstCommandMost is how long it may take from a bare system to the first command's output.
const firstCommandMost = time.Minute

// containers is how many of them live through an upgrade.
const containers = 5

// TestReleaseInstall installs the debs into bare systems, runs a first command against the clock, and removes them.
func TestReleaseInstall(t *testing.T) {
	needsDist(t)
	for suite := range suites {
		t.Run(suite, func(t *testing.T) {
			r := newRoot(t, suite)
			r.put(distFile(t, "berth_*_amd64.deb"), "tmp/berth.deb")
			r.put(distFile(t, "berth-image-base_*_amd64.deb"), "tmp/image.deb")
			before := r.files()

			lap := stopwatch(t)
			r.install("/tmp/berth.deb /tmp/image.deb")
			lap("the packages are installed")
			s := r.start(t)
			lap("the daemon is ready")
			r.run("berth up")
			lap("berth up has given it the image")
			r.firstCommand(t, "berth")
			lap("the first command has run")

			r.run("berth doctor --quick")
			r.checkFiles(t)
			s.reload(t)
			r.keep(t)
			s.stop(t)
			r.remove(t, before)
		})
	}
}

// stopwatch returns a function that logs the time since now, and fails if that is too much for a first command.
func stopwatch(t *testing.T) func(what string) {
	start := time.Now()
	return func(what string) {
		t.Helper()
		took := time.Since(start)
		t.Logf("%5.1f s: %s", took.Seconds(), what)
		if took > firstCommandMost {
			t.Errorf("%s after %v, at most %v are allowed", what, took, firstCommandMost)
		}
	}
}

// firstCommand runs a command in a container.
func (r *root) firstCommand(t *testing.T, berth string) {
	t.Helper()
	if out := r.run(berth + " run -q -- python3 -c 'print(6*7)'"); !strings.HasSuffix(out, "42") {
		t.Errorf("the first command printed %q", out)
	}
}

// TestReleaseTarball unpacks the tarball in bare systems, and runs a first command against the clock.
func TestReleaseTarball(t *testing.T) {
	needsDist(t)
	for suite := range suites {
		t.Run(suite, func(t *testing.T) {
			r := newRoot(t, suite)
			r.put(distFile(t, "berth-*-linux-amd64.tar.gz"), "tmp/berth.tar.gz")
			lap := stopwatch(t)
			r.run("tar -xf /tmp/berth.tar.gz -C /opt && mv /opt/berth-* /opt/berth")
			r.install("btrfs-progs")
			lap("the tarball is unpacked, and btrfs-progs is installed")
			if out := r.run("/opt/berth/bin/berth up"); !strings.Contains(out, "claude mcp add berth") {
				t.Errorf("berth up does not say what to paste into Claude Code:\n%s", out)
			}
			lap("berth up has ended")
			r.firstCommand(t, "/opt/berth/bin/berth")
			lap("the first command has run")
			r.run("/opt/berth/bin/berth down --data /var/lib/berth")
		})
	}
}

// TestReleaseRPM installs and removes the rpms with rpm, in Debian: it has no archive of Fedora's packages.
func TestReleaseRPM(t *testing.T) {
	needsDist(t)
	r := newRoot(t, "bookworm")
	r.put(distFile(t, "berth-[0-9]*.x86_64.rpm"), "tmp/berth.rpm")
	r.put(distFile(t, "berth-image-base-*.x86_64.rpm"), "tmp/image.rpm")
	r.install("rpm btrfs-progs ca-certificates")
	before := r.files()
	for _, needs := range []string{"btrfs-progs", "ca-certificates", "shadow-utils"} {
		r.run("rpm -q --requires -p /tmp/berth.rpm | grep -qx " + needs)
	}
	r.run("rpm --checksig --nosignature /tmp/berth.rpm /tmp/image.rpm")
	r.run("rpm --install --nodeps /tmp/berth.rpm /tmp/image.rpm && rpm --verify --nodeps berth berth-image-base")
	s := r.start(t)
	r.run("berth up")
	r.firstCommand(t, "berth")
	r.keep(t)
	s.stop(t)
	r.run("rpm --erase berth berth-image-base")
	if left := r.processes(); len(left) > 0 {
		t.Errorf("after removal these processes run: %v", left)
	}
	for name := range r.files() {
		data := strings.HasPrefix(name, "/var/lib/berth") || strings.HasPrefix(name, "/var/cache/berth") ||
			strings.HasPrefix(name, "/run/berth")
		if !before[name] && strings.Contains(name, "berth") && !data {
			t.Errorf("after removal there is %s", name)
		}
	}
	r.run("test -s /var/lib/berth/ledger.db")
}

// checkFiles checks what a person looks for after an installation.
func (r *root) checkFiles(t *testing.T) {
	t.Helper()
	r.run(`getent group berth
		test "$(stat -c '%a %G' /etc/berth/berth.toml)" = '644 root'
		berth config check /etc/berth/berth.toml
		test -s /usr/share/bash-completion/completions/berth
		berth --help | grep -q Usage`)
	for _, page := range []string{"man1/berth.1", "man1/berth-serve.1", "man1/berth-image-build.1", "man5/berth.toml.5"} {
		r.run("gzip -t /usr/share/man/" + page + ".gz")
	}
	if got := r.run("stat -c '%a %G' /var/lib/berth/api-key"); got != "640 berth" && got != "600 root" {
		t.Errorf("the key file has mode and group %s", got)
	}
}

// reload sends what the unit's ExecReload sends.
func (s *service) reload(t *testing.T) {
	t.Helper()
	s.r.run("kill -HUP " + s.pid(t))
	s.wait(t, "RELOADING=1", time.Minute)
	s.wait(t, "READY=1", time.Minute)
}

// keep starts a container whose command goes on when the daemon ends.
func (r *root) keep(t *testing.T) {
	t.Helper()
	r.run("berth run -d --name kept -- sleep 86400")
	if got := r.run("pgrep -fxc 'sleep 86400' || ps -e 2>/dev/null | grep -c sleep || true"); got == "" {
		t.Error("no command runs in the background")
	}
}

// remove removes the package, which stops containers and keeps data, and purges it, which leaves nothing.
func (r *root) remove(t *testing.T, before map[string]bool) {
	t.Helper()
	r.run("apt-get remove -y -qq berth berth-image-base")
	if left := r.processes(); len(left) > 0 {
		t.Errorf("after remove these processes run: %v", left)
	}
	r.run("test -s /var/lib/berth/ledger.db && test -s /etc/berth/berth.toml && test ! -e /usr/bin/berth")
	r.run("apt-get purge -y -qq berth berth-image-base")
	for name := range r.files() {
		if !before[name] && strings.Contains(name, "berth") {
			t.Errorf("after purge there is %s", name)
		}
	}
	if out := r.run("getent group berth || echo none"); out != "none" {
		t.Errorf("after purge there is the group %s", out)
	}
	if out := run(t, "losetup", "-a"); strings.Contains(out, r.dir) {
		t.Errorf("after purge there are loop devices: %s", out)
	}
}

// install installs packages, and what they need from the distribution's archive.
func (r *root) install(packages string) {
	r.t.Helper()
	r.fetch("apt-get update -qq && apt-get install -y -qq --no-install-recommends " + packages + " 2>&1")
}

// files lists the root's own files.
func (r *root) files() map[string]bool {
	r.t.Helper()
	list := map[string]bool{}
	for name := range strings.Lines(r.run("find / -xdev; find /run")) {
		list[strings.TrimSpace(name)] = true
	}
	return list
}

// processes lists the programs of the package that run in the root's PID namespace, and what runs in containers.
func (r *root) processes() []string {
	r.t.Helper()
	script := "for p in /proc/[0-9]*; do readlink $p/exe; done | grep -E 'berth|python|/sleep$' | grep -v '^/usr/bin/sleep' || true"
	return strings.Fields(r.run(script))
}

// TestReleaseUpgrade runs the version before, with containers that work, and installs the package over it. Then it
// installs a newer package over that one. No container and no background command may be lost.
func TestReleaseUpgrade(t *testing.T) {
	needsDist(t)
	programs := os.Getenv("BERTH_BEFORE")
	if programs == "" {
		t.Fatal("BERTH_BEFORE must be the directory of the programs of the version before: make test-release")
	}
	r := newRoot(t, "bookworm")
	deb := distFile(t, "berth_*_amd64.deb")
	r.put(deb, "tmp/berth.deb")
	r.put(distFile(t, "berth-*-image-base-amd64.tar"), "tmp/base.tar")
	r.install("btrfs-progs ca-certificates libseccomp2")
	run(t, "cp", "-a", programs, filepath.Join(r.dir, "opt/before"))

	old := r.startCommand(t, "/opt/before/berth serve")
	r.run("/opt/before/berth image import /tmp/base.tar")
	for i := range containers {
		r.run(fmt.Sprintf("/opt/before/berth create --name c%d && /opt/before/berth exec -d c%d sh -c "+
			"'echo %d >/dev/shm/n; while :; do date +%%s%%N >/workspace/beat; sleep 0.1; done'", i, i, i))
	}
	old.stop(t)
	r.install("/tmp/berth.deb")
	s := r.start(t)
	r.checkAlive(t)

	// A package with the same programs and a higher version.
	run(t, "sh", "-ec", `dpkg-deb -R "$0" "$1/next"; sed -i 's/^Version: .*/&+next/' "$1/next/DEBIAN/control"
		dpkg-deb -b -Znone "$1/next" "$1/next.deb"; rm -r "$1/next"`, deb, filepath.Join(r.dir, "tmp"))
	r.run("echo 'idle-timeout = \"7m\"' >>/etc/berth/berth.toml; berth config check /etc/berth/berth.toml")
	r.install("/tmp/next.deb")
	r.run("grep -q 7m /etc/berth/berth.toml")
	s.stop(t)
	s = r.start(t)
	r.checkAlive(t)
	s.stop(t)
}

// checkAlive checks that all containers run the sandbox and the command that they ran before.
func (r *root) checkAlive(t *testing.T) {
	t.Helper()
	if got := r.run("berth ls -q --state running | wc -l"); got != fmt.Sprint(containers) {
		t.Errorf("%s of %d containers run", got, containers)
	}
	for i := range containers {
		name := fmt.Sprintf("c%d", i)
		if got := r.run("berth exec -q " + name + " cat /dev/shm/n"); got != fmt.Sprint(i) {
			t.Errorf("%s has %q in its memory, want %d", name, got, i)
		}
		if got := r.run("berth ps -q --running " + name + " | wc -l"); got != "1" {
			t.Errorf("%s runs %s commands, want 1", name, got)
		}
		beat := "a=$(cat /workspace/*/beat /workspace/beat 2>/dev/null); for i in $(seq 100); do " +
			"b=$(cat /workspace/*/beat /workspace/beat 2>/dev/null); [ \"$a\" = \"$b\" ] || exit 0; sleep 0.1; done; exit 1"
		r.run("berth exec -q " + name + " sh -c '" + beat + "'")
	}
}

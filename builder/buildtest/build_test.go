package buildtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"berth/client"
	"berth/proto"
	"berth/test/daemontest"
)

// project uses most of what a Dockerfile has. Its first line names a frontend, which the builder ignores.
const project = `# syntax=docker/dockerfile:1
ARG BASE
FROM ${BASE} AS tools
USER root
RUN --mount=type=cache,target=/root/.cache/tool echo filled >> /root/.cache/tool/mark && wc -l < /root/.cache/tool/mark
RUN <<EOF
set -eu
mkdir -p /out/bin
printf '#!/bin/sh\necho tool\n' > /out/bin/tool
chmod 4755 /out/bin/tool
chown 33:44 /out/bin
rm -rf /usr/share/doc && mkdir /usr/share/doc
EOF

FROM ${BASE}
ARG WHO=nobody
ENV WHO=$WHO GREETING="hello $WHO"
LABEL org.example.kind=test
COPY --from=tools /out /opt/tool
COPY --chown=1000:1000 src/ /srv/src/
COPY <<EOF /etc/motd.d/x
made for $WHO
EOF
USER root
WORKDIR /made/by/workdir
RUN --mount=type=bind,from=tools,source=/out,target=/mnt/deep/er --mount=type=tmpfs,target=/scratch \
    ls /mnt/deep/er/bin && touch /scratch/x /tmp/kept && id -u > id && ! touch /mnt/deep/er/bin/x
RUN id www-data > /www
USER www-data:44
RUN id -u > /tmp/uid && id -g >> /tmp/uid && echo "$HOME $PWD" >> /tmp/uid
USER 1000:1000
WORKDIR /workspace
ENTRYPOINT ["/bin/sh", "-c"]
CMD ["echo $GREETING"]
`

func options(name string) proto.BuildOptions {
	return proto.BuildOptions{Name: name, Args: map[string]string{"BASE": registryHost + "/berth/base:1", "WHO": "you"}}
}

func projectFiles() map[string]string {
	return map[string]string{"Dockerfile": project, ".dockerignore": "**/*.secret\nsrc/skip\n", "src/a.py": "print('a')\n",
		"src/b.secret": "x", "src/skip/c": "x", "src/deep/er/d": "d", "src/link -> ../a.py": ""}
}

// TestBuildProject builds a project over an image of a registry, uses the image in a container, and builds it again
// from the cache.
func TestBuildProject(t *testing.T) {
	c := connect(t, daemon)
	o := options("project")
	o.Labels = map[string]string{"org.example.build": "7"}
	img, first, err := build(t.Context(), c, o, contextOf(t, projectFiles()), nil)
	if err != nil {
		t.Fatal(err, first.logs)
	}
	if img.Name != "project" || first.cached != 0 || first.ran < 7 || !strings.Contains(first.logs, "1\n") {
		t.Errorf("%+v, %+v", img, first)
	}
	const look = `cd /; ls -d mnt/deep mnt scratch root/.cache/tool 2>/dev/null
stat -c '%a %u %g %n' opt/tool/bin opt/tool/bin/tool srv/src/a.py srv/src/deep made/by/workdir
cat etc/motd.d/x made/by/workdir/id; readlink srv/src/link; ls srv/src; echo "$GREETING"; opt/tool/bin/tool; cut -c1-12 www`
	const want = `mnt
755 33 44 opt/tool/bin
4755 0 0 opt/tool/bin/tool
644 1000 1000 srv/src/a.py
755 1000 1000 srv/src/deep
755 0 0 made/by/workdir
made for you
0
../a.py
a.py
deep
link
hello you
tool
uid=33(www-d
`
	if got := runIn(t, c, img.Name, look); got != want {
		t.Errorf("in a container: %s\nnot %s", got, want)
	}
	again, second, err := build(t.Context(), c, o, contextOf(t, projectFiles()), nil)
	if err != nil || again.Digest != img.Digest || second.ran != 0 || second.cached < 7 || second.logs != "" {
		t.Errorf("from the cache: %+v, %+v, %v", again, second, err)
	}
	files := projectFiles()
	files["src/a.py"] = "print('b')\n"
	changed, third, err := build(t.Context(), c, o, contextOf(t, files), nil)
	if err != nil || changed.Digest == img.Digest || third.ran == 0 || third.cached == 0 {
		t.Errorf("after a change: %+v, %+v, %v", changed, third, err)
	}
	list, err := c.Builds(t.Context())
	if err != nil || len(list.Builds) != 0 || list.Cache.Entries == 0 || list.Cache.Entries != third.last.Entries {
		t.Errorf("%+v, %v", list, err)
	}
	const layers = "runtime/ctr/io.containerd.snapshotter.v1.overlayfs/snapshots/*/fs/.berth"
	if left, _ := filepath.Glob(filepath.Join(daemon.Dir, layers)); len(left) > 0 {
		t.Errorf("layers have mount points of sandboxes: %v", left)
	}
	o.Target, o.NoCache = "tools", true
	_, fourth, err := build(t.Context(), c, o, contextOf(t, projectFiles()), nil)
	if err != nil || fourth.cached != 0 || fourth.ran != 2 || !strings.Contains(fourth.logs, "1\n") {
		t.Errorf("a stage without cache: %+v, %v", fourth, err)
	}
	files["Dockerfile"] = strings.Replace(project, "wc -l <", "wc -l  <", 1)
	o.NoCache = false
	_, fifth, err := build(t.Context(), c, o, contextOf(t, files), nil)
	if err != nil || fifth.ran != 2 || !strings.Contains(fifth.logs, "2\n") {
		t.Errorf("another step with the same cache mount: %+v, %v", fifth, err)
	}
}

// runIn runs a script in a new container.
func runIn(t *testing.T, c *client.Client, image, script string) string {
	t.Helper()
	made, err := c.Create(t.Context(), proto.CreateContainer{Image: image})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = c.Delete(context.WithoutCancel(t.Context()), made.ID, false) }()
	res, err := c.Run(t.Context(), made.ID, proto.Cmd{Command: script})
	if err != nil {
		t.Fatal(err)
	}
	if res.Result.Result == nil {
		t.Fatalf("no result: %+v", res)
	}
	return res.Result.Result.Stdout
}

// TestBuildFailures checks what builds are refused or fail with.
func TestBuildFailures(t *testing.T) {
	c := connect(t, daemon)
	for _, test := range []struct {
		name, dockerfile string
		change           func(*proto.BuildOptions)
		code             proto.Code
		says             string
	}{
		{"no Dockerfile", "", nil, proto.InvalidArgument, "Dockerfile"},
		{"syntax", "FROM base\nNONSENSE x\n", nil, proto.InvalidArgument, "NONSENSE"},
		{"exit code", "FROM base\nRUN exit 7\n", nil, proto.InvalidArgument, "exit code 7"},
		{"unknown user", "FROM base\nUSER nosuch\nRUN true\n", nil, proto.InvalidArgument, "exit code 126"},
		{"no base image", "FROM " + registryHost + "/no/such:1\n", nil, proto.NotFound, "no image"},
		{"host network", "FROM base\nRUN --network=host true\n", nil, proto.InvalidArgument, "network.host"},
		{"insecure", "FROM base\nRUN --security=insecure true\n", nil, proto.InvalidArgument, "security.insecure"},
		{"git", "FROM base\nADD https://github.com/o/r.git /r\n", nil, proto.Unsupported, "git repository"},
		{"ADD without network", "FROM base\nADD http://127.0.0.1:9/x /x\n", nil, proto.PermissionDenied, "no network"},
		{"not in the list", "FROM base\nADD http://127.0.0.1:9/x /x\n", func(o *proto.BuildOptions) {
			o.Network.Allow = []string{"example.com"}
		}, proto.InvalidArgument, "403"},
		{"a file that is not there", "FROM base\nCOPY nosuch /x\n", nil, proto.InvalidArgument, ".dockerignore"},
		{"a stage that is not there", "FROM base\nCOPY --from=" + registryHost + "/nosuch:1 /x /x\n", nil,
			proto.NotFound, "nosuch"},
		{"a target that is not there", "FROM base\n", func(o *proto.BuildOptions) { o.Target = "nosuch" },
			proto.InvalidArgument, "nosuch"},
		{"a base without name", "ARG BASE\nFROM ${BASE}\n", nil, proto.InvalidArgument, "BASE"},
		{"another platform", "FROM --platform=linux/s390x base\nRUN true\n", nil, proto.Unsupported, "s390x"},
		{"an unknown flag", "FROM base\nCOPY --nosuch a /b\n", nil, proto.InvalidArgument, "nosuch"},
		{"stages in a circle", "FROM base AS a\nCOPY --from=b /x /x\nFROM base AS b\nCOPY --from=a /x /x\n", nil,
			proto.InvalidArgument, "circular"},
		{"an empty Dockerfile", "# nothing\n", nil, proto.InvalidArgument, "no instructions"},
		{"a secret", "FROM base\nRUN --mount=type=secret,id=token,required=true true\n", nil, proto.InvalidArgument, "token"},
		{"an agent's socket", "FROM base\nRUN --mount=type=ssh,required=true true\n", nil, proto.InvalidArgument,
			"no SSH agent"},
		{"a device", "FROM base\nRUN --device=vendor.com/x=y,required true\n", nil, proto.InvalidArgument,
			"device"},
		{"another sum", "FROM base\nADD --checksum=sha256:" + sumOf("x") + " " + filesURL + "/file.txt /x\n",
			func(o *proto.BuildOptions) { o.Network.Mode = proto.NetworkOpen }, proto.InvalidArgument, "digest"},
		{"no such address", "FROM base\nADD " + filesURL + "/nosuch /x\n",
			func(o *proto.BuildOptions) { o.Network.Mode = proto.NetworkOpen }, proto.InvalidArgument, "404"},
		{"a link out of the context", "FROM base\nCOPY out /x\n", nil, proto.InvalidArgument, "not there"},
		{"memory", "FROM base\nRUN python3 -c 'x = bytearray(1 << 30)'\n", nil, proto.QuotaExceeded, "memory"},
		{"disk", "FROM base\nUSER root\nRUN head -c 2G /dev/zero > /big; sleep 60\n", nil, proto.QuotaExceeded, "disk_bytes"},
		{"time", "FROM base\nRUN sleep 60\n", func(o *proto.BuildOptions) { o.TimeoutSeconds = 3 }, proto.TimedOut, "3s"},
		{"more than the daemon gives", "FROM base\n", func(o *proto.BuildOptions) { o.Limits.MemoryBytes = 1 << 40 },
			proto.InvalidArgument, "memory_bytes"},
		{"a path out of the context", "FROM base\n", func(o *proto.BuildOptions) { o.Dockerfile = "../x" },
			proto.InvalidArgument, "dockerfile"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := proto.BuildOptions{Name: "fails"}
			if test.change != nil {
				test.change(&o)
			}
			files := map[string]string{"other": "x", "out -> ../../etc/passwd": ""}
			if test.dockerfile != "" {
				files["Dockerfile"] = test.dockerfile
			}
			_, r, err := build(t.Context(), c, o, contextOf(t, files), nil)
			if proto.CodeOf(err) != test.code || !strings.Contains(fmt.Sprint(err), test.says) {
				t.Errorf("%v, code %q; logs %q", err, proto.CodeOf(err), r.logs)
			}
		})
	}
	nothingLeft(t, daemon)
}

// attack tries in a RUN what a container may not do either. Each line prints a word only if it succeeds.
const attack = `FROM base
USER root
RUN <<'EOF'
mount -t tmpfs none /mnt && echo broke-mount
mknod /tmp/disk b 8 0 && echo broke-device
unshare -U true && echo broke-namespace
unshare -n true && echo broke-network-namespace
cat /proc/kcore && echo broke-kcore
echo 1 > /proc/sys/kernel/panic && echo broke-sysctl
echo c > /proc/sysrq-trigger && echo broke-sysrq
mkdir -p /tmp/c && mount -t cgroup2 none /tmp/c && echo broke-cgroup
python3 - <<'PY'
import os, socket
def attempt(word, act):
    try:
        act()
    except OSError:
        return
    print("broke-" + word)
attempt("raw-socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet-socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
attempt("connection", lambda: socket.create_connection(("1.1.1.1", 80), 2))
attempt("name", lambda: socket.getaddrinfo("example.com", 80))
attempt("guest", lambda: open("/.berth/guest", "ab"))
if open("/proc/self/status").read().count("NoNewPrivs:\t1") != 1: print("broke-new-privileges")
if open("/proc/self/uid_map").read().split()[1] == "0": print("broke-user-namespace")
if int(open("/proc/self/status").read().split("CapEff:\t")[1].split()[0], 16) & (1 << 21): print("broke-sys-admin")
if os.listdir("/sys/class/net") != ["lo"]: print("broke-interfaces")
PY
ln -s /etc /tmp/link
echo done
EOF
COPY x /tmp/link/berth-build-was-here
`

// TestStepIsNoMoreThanAContainer checks that a RUN cannot do what a container cannot, and that links of an image do not
// lead the builder to the host.
func TestStepIsNoMoreThanAContainer(t *testing.T) {
	c := connect(t, daemon)
	_, r, err := build(t.Context(), c, proto.BuildOptions{Name: "attack"},
		contextOf(t, map[string]string{"Dockerfile": attack, "x": "x"}), nil)
	if err != nil || !strings.Contains(r.logs, "done") || strings.Contains(r.logs, "broke-") {
		t.Errorf("%v, %s", err, r.logs)
	}
	if _, err := os.Stat("/etc/berth-build-was-here"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a link of the image leads to the host: %v", err)
	}
}

// endless runs until it is ended, and says that it runs.
const endless = "FROM base\nRUN echo it-runs; sleep 1000\n"

// untilRuns returns a function that closes the channel once the endless command runs.
func untilRuns() (each func(proto.BuildEvent), runs chan string) {
	runs = make(chan string, 1)
	var id string
	return func(ev proto.BuildEvent) {
		if ev.Build != nil {
			id = ev.Build.ID
		}
		if ev.Log != nil && strings.Contains(ev.Log.Data, "it-runs") {
			runs <- id
		}
	}, runs
}

// TestCancel cancels a build that runs, by its ID and by leaving.
func TestCancel(t *testing.T) {
	c := connect(t, daemon)
	each, runs := untilRuns()
	go func() {
		id := <-runs
		if list, err := c.Builds(t.Context()); err != nil || len(list.Builds) != 1 || list.Builds[0].ID != id ||
			list.Builds[0].State != "running" {
			t.Errorf("%+v, %v", list, err)
		}
		if err := c.CancelBuild(t.Context(), id); err != nil {
			t.Error(err)
		}
	}()
	files := map[string]string{"Dockerfile": endless}
	_, _, err := build(t.Context(), c, proto.BuildOptions{Name: "endless"}, contextOf(t, files), each)
	if proto.CodeOf(err) != proto.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	nothingLeft(t, daemon)

	ctx, leave := context.WithCancel(t.Context())
	each, runs = untilRuns()
	go func() { <-runs; leave() }()
	if _, _, err := build(ctx, c, proto.BuildOptions{Name: "endless"}, contextOf(t, files), each); err == nil {
		t.Error("a build succeeded whose client left")
	}
	// The next build of the owner begins when the last one has ended.
	if _, _, err := build(t.Context(), c, proto.BuildOptions{Name: "next"},
		contextOf(t, map[string]string{"Dockerfile": "FROM base\nENV X=1\n"}), nil); err != nil {
		t.Error(err)
	}
	nothingLeft(t, daemon)
	if err := c.CancelBuild(t.Context(), "build_0000000000000000000000"); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("cancelling what is not there: %v", err)
	}
}

// TestKill kills the daemon in the middle of a step. The next one finds nothing of the build, and builds. After a
// reboot the image and the cache are still there.
func TestKill(t *testing.T) {
	d, err := daemontest.New("--warm-max", "0")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	c := connect(t, d)
	before := cgroupsOf(proto.BuildPrefix)
	each, runs := untilRuns()
	go func() { <-runs; d.Stop(syscall.SIGKILL) }()
	files := map[string]string{"Dockerfile": "FROM base\nRUN echo first > /tmp/first\nRUN echo it-runs; sleep 1000\n"}
	if _, _, err := build(t.Context(), c, proto.BuildOptions{Name: "killed"}, contextOf(t, files), each); err == nil {
		t.Fatal("a build outlived its daemon")
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, d)
	if left := cgroupsOf(proto.BuildPrefix); !slices.Equal(left, before) {
		t.Errorf("cgroups: %v, before the build %v", left, before)
	}
	files["Dockerfile"] = "FROM base\nRUN echo first > /tmp/first\nRUN echo second\n"
	_, r, err := build(t.Context(), connect(t, d), proto.BuildOptions{Name: "killed"}, contextOf(t, files), nil)
	if err != nil || !strings.Contains(r.logs, "second") {
		t.Errorf("after a restart: %+v, %v", r, err)
	}

	if err := errors.Join(d.LoseHost(), d.Start()); err != nil {
		t.Fatal(err)
	}
	c = connect(t, d)
	made, err := c.Create(t.Context(), proto.CreateContainer{Image: "killed"})
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Run(t.Context(), made.ID, proto.Cmd{Command: "cat /tmp/first"})
	if err != nil || res.Result.Result == nil || res.Result.Result.Stdout != "first\n" {
		t.Errorf("a container of the image after a reboot: %+v, %v", res, err)
	}
	if _, r, err = build(t.Context(), c, proto.BuildOptions{Name: "again"}, contextOf(t, files), nil); err != nil ||
		r.cached != 2 || r.ran != 0 {
		t.Errorf("the same build after a reboot: %+v, %v", r, err)
	}
}

// nothingLeft checks that no sandbox, process, mount or scratch file of a build is left.
func nothingLeft(t *testing.T, d *daemontest.Daemon) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(d.Dir, "builds", "running", "*")); len(left) > 0 {
		t.Errorf("contexts are left: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(d.Dir, "runtime", "pool", "layer", "*")); len(left) > 0 {
		t.Errorf("layers are left: %v", left)
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		text, _ := os.ReadFile(p)
		env, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "environ"))
		if strings.HasPrefix(string(text), "sleep\x001000\x00") ||
			strings.Contains(string(text), "berth-builder") && strings.Contains(string(env), d.Dir) {
			t.Errorf("process %s is left: %q", p, text)
		}
	}
}

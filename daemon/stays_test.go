package daemon_test

import (
	"encoding/json"
	"syscall"
	"testing"

	"berth/proto"
)

// installed puts into a container what its users expect to find again: a Python wheel that pip installs, a Debian
// package, files in home directories and /etc, and a git repository in /tmp. It needs no network.
const installed = `set -eu
mkdir /tmp/make; cd /tmp/make
python3 - <<'PY'
import zipfile
with zipfile.ZipFile("kept-1.0-py3-none-any.whl", "w") as z:
    z.writestr("kept.py", "def tell(): return 'from a wheel'\n")
    z.writestr("kept-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: kept\nVersion: 1.0\n")
    z.writestr("kept-1.0.dist-info/WHEEL",
        "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("kept-1.0.dist-info/RECORD", "kept.py,,\nkept-1.0.dist-info/METADATA,,\nkept-1.0.dist-info/RECORD,,\n")
PY
python3 -m pip install --quiet --no-index --no-deps --root-user-action=ignore --break-system-packages ./kept-1.0*.whl
mkdir -p kept/DEBIAN kept/usr/bin
printf 'Package: kept\nVersion: 2.0\nArchitecture: all\nMaintainer: t <t@t.invalid>\nDescription: t\n' \
	>kept/DEBIAN/control
printf '#!/bin/sh\necho from a package\n' >kept/usr/bin/kept-tool; chmod 755 kept/usr/bin/kept-tool
dpkg-deb --build kept >/dev/null; dpkg --install kept.deb >/dev/null
echo root >/root/.kept; echo user >/home/user/.kept; chown user: /home/user/.kept; echo 'kept = 1' >/etc/kept.conf
git init --quiet /tmp/repo; cd /tmp/repo; echo text >f; git add f
git -c user.name=t -c user.email=t@t.invalid commit --quiet -m kept; echo more >>f`

// foundAgain shows what installed has made.
const foundAgain = `cd /; python3 -c 'import kept; print(kept.tell())'; python3 -m pip show kept 2>/dev/null | head -2
kept-tool; dpkg-query --show kept; cat /root/.kept /home/user/.kept /etc/kept.conf; stat -c %U /home/user/.kept
cd /tmp/repo; git log --format=%s; git status --short; git fsck`

const foundWant = "from a wheel\nName: kept\nVersion: 1.0\nfrom a package\nkept\t2.0\nroot\nuser\nkept = 1\nuser\n" +
	"kept\n M f\n"

// TestWhatStays checks that everything that was installed or written in a container stays when it stops, when its
// daemon is killed, and when the host is lost; and that a fork and a container of a snapshot have it too.
func TestWhatStays(t *testing.T) {
	s := base
	asRoot := func(id, command string) string {
		t.Helper()
		cmd, _ := json.Marshal(proto.Cmd{Command: command, User: proto.UserRoot})
		res := call[proto.ExecResult](t, s, 200, "POST", "/v1/containers/"+id+"/exec", string(cmd))
		if r := res.Result.Result; r == nil || r.ReturnCode != 0 {
			t.Fatalf("in container %s: %+v %+v", id, res.Exec.End, r)
		}
		return res.Result.Result.Stdout
	}
	made := func(path, body string) string {
		t.Helper()
		c := call[proto.Container](t, s, 201, "POST", path, body)
		t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/containers/"+c.ID, nil) })
		return c.ID
	}
	forked := func(id string) string {
		t.Helper()
		list := call[struct{ Data []proto.Container }](t, s, 201, "POST", "/v1/containers/"+id+"/fork", "{}").Data
		if len(list) != 1 {
			t.Fatalf("forks: %+v", list)
		}
		t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/containers/"+list[0].ID, nil) })
		return list[0].ID
	}
	ids := []string{made("/v1/containers",
		`{"runtime_class":"runc","limits":{"memory_bytes":536870912,"disk_bytes":268435456}}`)}
	asRoot(ids[0], installed)
	call[proto.Snapshot](t, s, 201, "POST", "/v1/containers/"+ids[0]+"/snapshots", `{"name":"stays"}`)
	t.Cleanup(func() { _, _, _ = s.Do("DELETE", "/v1/snapshots/stays", nil) })
	ids = append(ids, forked(ids[0]), made("/v1/containers", `{"snapshot":"stays"}`))
	check := func(after string, ids ...string) {
		t.Helper()
		for _, id := range ids {
			if got := asRoot(id, foundAgain); got != foundWant {
				t.Errorf("after %s, container %s has\n%s\nwant\n%s", after, id, got, foundWant)
			}
		}
	}
	check("the installation", ids...)

	call[proto.Container](t, s, 200, "PATCH", "/v1/containers/"+ids[0], `{"idle_timeout_seconds":1}`)
	becomes(t, s, ids[0], proto.StateStopped)
	call[proto.Container](t, s, 200, "PATCH", "/v1/containers/"+ids[0], `{"idle_timeout_seconds":3600}`)
	check("an idle stop", ids[0])

	s.restart(t, syscall.SIGKILL)
	check("a killed daemon", ids[:2]...)

	if err := s.LoseHost(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	more := made("/v1/containers", `{"snapshot":"stays"}`)
	check("a lost host", append(ids, more, forked(more))...)
}

package daemon_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"berth/proto"
)

// changes writes to the workspace and elsewhere in every way that a layer has to tell: new, changed and removed files,
// a directory removed and made again, links, owners, modes, a FIFO.
const changes = `set -e
cd /workspace; echo ws >a; mkdir d; ln -s a l; echo 'a b' >"$(printf 'odd\nname')"; chown user:user a
echo home >/home/user/b; chown user:user /home/user/b
rm -r /usr/share/doc; mkdir /usr/share/doc; echo new >/usr/share/doc/new
rm /etc/issue; echo changed >>/etc/profile; rm -r /var/cache
echo set >/opt/o; chown 1000:44 /opt/o; chmod 4755 /opt/o; ln /opt/o /opt/hard; mkfifo /opt/p; ln -s /opt/o /opt/s`

// seenOf shows what changes has done, without times.
const seenOf = `cd /; find workspace/a workspace/d workspace/l workspace/odd* home/user/b usr/share/doc etc/issue \
	etc/profile var/cache opt -type d -printf 'd %m %U:%G %p\n' -o -printf '%y %m %U:%G %n %s %l %p\n' 2>&1 | sort
cat workspace/a home/user/b usr/share/doc/new opt/hard; tail -n 1 etc/profile`

// TestSnapshotIsAnImage checks that a snapshot leaves as an archive, comes back as an image, and becomes an image in
// place: containers of each have the very files that a container of the snapshot itself has.
func TestSnapshotIsAnImage(t *testing.T) {
	c := create(t, base)
	root, _ := json.Marshal(proto.Cmd{Command: changes, User: proto.UserRoot})
	done := call[proto.ExecResult](t, base, 200, "POST", "/v1/containers/"+c.ID+"/exec", string(root))
	if r := done.Result.Result; r == nil || r.ReturnCode != 0 {
		t.Fatalf("%+v", done.Result)
	}
	want := bash(t, base, c.ID, seenOf).Result.Result.Stdout
	if !strings.Contains(want, "opt/hard") || !strings.Contains(want, "f 4755 1000:44 2 4  opt/o") ||
		strings.Contains(want, "doc/libc") {
		t.Fatalf("the container has %s", want)
	}
	snap := call[proto.Snapshot](t, base, 201, "POST", "/v1/containers/"+c.ID+"/snapshots", `{"name":"changed"}`)

	archive := base.raw(t, "GET", "/v1/snapshots/changed/archive", nil)
	base.raw(t, "POST", "/v1/images/import?name=exported", archive)
	base.raw(t, "POST", "/v1/snapshots/"+snap.ID+"/image", []byte(`{"name":"committed"}`))
	for _, create := range []string{`{"snapshot":"changed"}`, `{"image":"` + snap.ID + `"}`, `{"image":"exported"}`,
		`{"image":"committed"}`, `{"image":"committed","runtime_class":"gvisor"}`} {
		made := call[proto.Container](t, base, 201, "POST", "/v1/containers", create)
		if got := bash(t, base, made.ID, seenOf).Result.Result.Stdout; got != want {
			t.Errorf("a container made with %s has\n%s, want\n%s", create, got, want)
		}
		bash(t, base, made.ID, "touch /workspace/mine /home/user/mine")
		call[struct{}](t, base, 200, "DELETE", "/v1/containers/"+made.ID, "")
	}
	call[struct{}](t, base, 200, "DELETE", "/v1/snapshots/changed", "")
	base.raw(t, "DELETE", "/v1/images?ref=exported", nil)
	base.raw(t, "DELETE", "/v1/images?ref=committed", nil)
}

// raw sends bytes and returns the body of an answer with the status 200.
func (s *server) raw(t *testing.T, method, path string, body []byte) []byte {
	t.Helper()
	status, answer, err := s.Do(method, path, bytes.NewReader(body))
	if err != nil || status != 200 || bytes.Contains(answer[:min(len(answer), 4096)], []byte(`"error"`)) {
		t.Fatalf("%s %s: %d %.500s %v", method, path, status, answer, err)
	}
	return answer
}

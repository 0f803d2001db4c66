package containerd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"berth/proto"
	"berth/runtime/layer"
	"berth/session"
)

// hostnames returns the host name inside a sandbox, and the names that its /etc/hosts has for loopback addresses.
func hostnames(t *testing.T, r *Runtime, id string) (name string, names []string) {
	t.Helper()
	text := ask(t, r, id, guestRequest{Op: "read", Path: "/etc/hosts"})
	if text.Err != "" {
		t.Fatal(text.Err)
	}
	for line := range strings.Lines(text.Text) {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) > 1 && f[0] == "127.0.0.1" {
			names = append(names, f[1])
		}
	}
	return ask(t, r, id, guestRequest{Op: "hostname"}).Text, names
}

// wantHostname checks that a sandbox has the host name, and that it resolves inside, beside localhost.
func wantHostname(t *testing.T, r *Runtime, id, want string) {
	t.Helper()
	if name, names := hostnames(t, r, id); name != want || strings.Join(names, " ") != "localhost "+want {
		t.Errorf("it is called %q, and %v resolve, not %s", name, names, want)
	}
}

// TestHostname checks that a sandbox of each class has the host name of its spec, or the default, and that a running
// one gets another, unless its class cannot.
func TestHostname(t *testing.T) {
	r := openTest(t)
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		id, _ := startTest(t, r, class)
		wantHostname(t, r, id, session.DefaultHostname)
		spec := session.Spec{Image: testImage(t, r), Class: class, Workspace: newID(proto.WorkspacePrefix),
			Layer: newID(proto.LayerPrefix), Limits: testLimits, Hostname: "web"}
		id = newID(proto.ContainerPrefix)
		if err := r.Start(t.Context(), id, spec); err != nil {
			t.Fatal(err)
		}
		wantHostname(t, r, id, "web")
		err := r.SetHostname(t.Context(), id, "shop")
		if class == proto.ClassGVisor {
			if proto.CodeOf(err) != proto.Unsupported {
				t.Errorf("of class %s: %v", class, err)
			}
			wantHostname(t, r, id, "web")
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		wantHostname(t, r, id, "shop")
	}
	if err := r.SetHostname(t.Context(), newID(proto.ContainerPrefix), "none"); err != nil {
		t.Errorf("without a sandbox: %v", err)
	}
}

// TestHostnameFromThePool checks that a pooled sandbox gets the name of its session, and that the daemon keeps its own.
func TestHostnameFromThePool(t *testing.T) {
	before := hostnameOfTest(t)
	r := openWarm(t)
	id := newID(proto.ContainerPrefix)
	spec := session.Spec{Image: testImage(t, r), Class: proto.ClassRunc, Workspace: newID(proto.WorkspacePrefix),
		Layer: newID(proto.LayerPrefix), Limits: testLimits, Hostname: "web"}
	if err := r.Start(t.Context(), id, spec); err != nil {
		t.Fatal(err)
	}
	if n := r.WarmCounts(); n.Hits != 1 {
		t.Fatalf("not out of the pool: %+v", n)
	}
	wantHostname(t, r, id, "web")
	if after := hostnameOfTest(t); after != before {
		t.Errorf("the test is called %q, not %q", after, before)
	}
}

// TestHostnameOfHostile checks that a sandbox that has replaced its file of host names leads the daemon nowhere.
func TestHostnameOfHostile(t *testing.T) {
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("host"), 0o600); err != nil {
		t.Fatal(err)
	}
	for how, replace := range map[string]func(path string) error{
		"symlink": func(path string) error { return os.Symlink(target, path) },
		"fifo":    func(path string) error { return unix.Mkfifo(path, 0o600) },
		"socket":  func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"dir":     func(path string) error { return os.Mkdir(path, 0o700) },
		"nothing": func(string) error { return nil },
	} {
		run := t.TempDir()
		if err := replace(filepath.Join(run, layer.Hosts)); err != nil {
			t.Fatal(err)
		}
		if err := changeHosts(run, "web"); err != nil {
			t.Errorf("%s: %v", how, err)
		}
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "host" {
		t.Errorf("a file of the host has %q: %v", text, err)
	}
}

// TestHostnameKeepsLines checks that a change replaces the sandbox's own line alone.
func TestHostnameKeepsLines(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, layer.Run)
	if err := errors.Join(os.Mkdir(run, 0o700), makeHosts(dir, uint32(os.Getuid()), "a-rather-long-name")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(run, layer.Hosts)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("10.0.0.1\tdb\n")
	if err = errors.Join(err, f.Close(), changeHosts(run, "b")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if want := hostsRest + "10.0.0.1\tdb\n" + "127.0.0.1\tb # this container\n"; err != nil || string(text) != want {
		t.Errorf("it has\n%s%v", text, err)
	}
}

func hostnameOfTest(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

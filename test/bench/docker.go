package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// liveDocker is a docker whose containers survive the end of its daemon.
const liveDocker = "docker with live-restore"

func (b *bench) startLiveDocker(ctx context.Context) (*comparator, error) {
	return b.dockerWith(ctx, "--live-restore")
}

func (b *bench) startDocker(ctx context.Context) (*comparator, error) { return b.dockerWith(ctx) }

// dockerWith starts a private dockerd with its own data and socket and without a network, as ours has none. dockerd
// finds Debian's containerd and runc by itself.
func (b *bench) dockerWith(ctx context.Context, flags ...string) (*comparator, error) {
	dockerd, err := exec.LookPath("dockerd")
	if err != nil {
		return nil, errors.New("there is no dockerd; `make setup-bench` installs Debian's docker.io")
	}
	// Use the command of the same package, not a newer one that may come first in PATH.
	docker := filepath.Join(filepath.Dir(dockerd), "docker")
	if _, err := os.Stat(docker); err != nil {
		docker = "/usr/bin/docker"
	}
	root, err := b.root(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.tmp, "docker-")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "daemon.json") // otherwise dockerd would read the machine's configuration
	if err := os.WriteFile(config, []byte("{}"), 0o600); err != nil {
		return nil, err
	}
	socket, env := filepath.Join(dir, "s"), environment(dir)
	daemon := append([]string{dockerd, "--config-file", config, "--host", "unix://" + socket, "--data-root",
		filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--pidfile", filepath.Join(dir, "pid"), "--bridge", "none", "--iptables=false", "--ip6tables=false"}, flags...)
	s, err := serve(ctx, socket, env, daemon...)
	if err != nil {
		return nil, err
	}
	line := func(args ...string) []string { return append([]string{docker, "--host", "unix://" + socket}, args...) }
	c := &comparator{
		name: "docker", env: env, do: plainly(env, lineMost),
		create: func(id string, more ...string) []string {
			return line(slices.Concat([]string{"run", "-d", "--network", "none", "--name", id}, more,
				[]string{image, "sleep", "infinity"})...)
		},
		down:   func() { s.end() },
		up:     func(ctx context.Context) (err error) { s, err = serve(ctx, socket, env, daemon...); return err },
		exec:   func(id string, argv ...string) []string { return line(append([]string{"exec", id}, argv...)...) },
		remove: func(id string) [][]string { return [][]string{line("rm", "-f", id)} },
		once: func(id string) []string {
			return line("run", "--rm", "--network", "none", "--name", id, image,
				"true")
		},
		attached: func(id string, argv ...string) []string {
			return line(append([]string{"run", "--network", "none", "--name", id, image}, argv...)...)
		},
		send:  func(id, from, to string) []string { return line("cp", from, id+":"+to) },
		fetch: func(id, from, to string) []string { return line("cp", id+":"+from, to) },
	}
	c.stop = func() {
		c.clear()
		if s != nil { // nil if it did not start again
			s.end()
		}
		// they keep running without the daemon, after live-restore or a kill
		endShims(filepath.Join(dir, "exec/containerd/containerd.sock"))
		unmountBelow(dir)
	}
	// Import one layer without history: docker of this version does not read OCI archives.
	load := fmt.Sprintf("tar -C %q -c . | %q --host %q import - %s", root, docker, "unix://"+socket, image)
	if err := plainly(env, unpackMost)(ctx, []string{"/bin/sh", "-c", load}); err != nil {
		c.stop()
		return nil, err
	}
	b.part(ctx, "docker", dockerd)
	b.part(ctx, "docker's runc", "/usr/sbin/runc")
	return c, nil
}

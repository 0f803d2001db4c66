package attack

import (
	"context"
	"fmt"

	"berth/proto"
)

// Group 33: a request can name no mount, no device and no other part of the host. Other systems were escaped by a
// request: an API that can mount a path of the host gives root on that host. Unknown names must be refused and not
// ignored. Otherwise a client could believe that a request with "privileged": false was understood.
var _ = register(Case{
	Group: 33, Name: "requests/host-fields",
	Tries: "ask for a container with mounts, binds, volumes, devices, capabilities, host namespaces, privileges, " +
		"hooks and annotations, under the names that other systems give them",
	Wants: "each is refused by name",
	Run: func(ctx context.Context, t *Target) (string, error) {
		// The names that Docker, Kubernetes, OCI and our own records use.
		fields := map[string]any{
			"mounts": []any{map[string]string{"type": "bind", "source": "/", "target": "/host"}}, "Mounts": []any{
				map[string]string{"Source": "/", "Target": "/host"}},
			"binds": []string{"/:/host"}, "Binds": []string{"/var/run/docker.sock:/s"}, "volumes": []string{"/:/host"},
			"volume_mounts": []any{}, "host_path": "/",
			"privileged": true, "Privileged": true, "HostConfig": map[string]any{"Privileged": true},
			"cap_add": []string{"SYS_ADMIN"}, "capabilities": []string{"ALL"},
			"devices": []string{"/dev/sda"}, "network": "host", "network_mode": "host", "pid": "host", "ipc": "host",
			"userns": "host", "cgroup_parent": "/",
			"security_opt": []string{"seccomp=unconfined"}, "seccomp": "unconfined", "apparmor": "unconfined",
			"no_new_privileges": false, "hooks": map[string]any{},
			"annotations": map[string]string{"io.containerd.runc.v2.group": "x"}, "runtime": "/bin/sh",
			"sysctls": map[string]string{"kernel.core_pattern": "|/x"},
			"owner":   "default", "id": "container_0", "rootfs": "/", "spec": map[string]any{}, "entrypoint": []string{
				"/bin/sh"}, "user": "root", "cgroup": "/",
		}
		for name, value := range fields {
			got, err := t.askJSON(ctx, "POST", "/v1/containers", map[string]any{name: value})
			if err != nil {
				return "", err
			}
			if err := got.refused("a container with "+name, proto.InvalidArgument); err != nil {
				return "", err
			}
		}
		// Known fields with values that look like a path, a flag or a number of another system.
		for _, body := range []map[string]any{
			{"runtime_class": "runc\x00"}, {"runtime_class": "../../bin/sh"}, {"runtime_class": "kata"},
			{"workspace_id": "/etc"}, {"workspace_id": "workspace_../../etc"},
			{"limits": map[string]any{"memory_bytes": -1}}, {"limits": map[string]any{"cpus": 1e9}},
			{"limits": map[string]any{"pids": 1 << 40}}, {"limits": map[string]any{"devices": 1}},
			{"image": "/etc/passwd"}, {"image": "../../../etc"}, {"env": map[string]string{"A\x00B": "x"}},
			{"env": map[string]string{"A=B": "x"}},
		} {
			got, err := t.askJSON(ctx, "POST", "/v1/containers", body)
			if err != nil {
				return "", err
			}
			if err := got.refused(fmt.Sprint("a container with ", body), proto.InvalidArgument, proto.NotFound,
				proto.Unsupported); err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("%d fields and 13 values were refused", len(fields)), nil
	},
})

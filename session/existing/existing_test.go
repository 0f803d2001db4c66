package existing

import (
	"slices"
	"strings"
	"testing"

	"berth/egress"
	"berth/proto"
)

func there() Container {
	return Container{
		Container: proto.Container{Image: "base", ImageDigest: "sha256:1", RuntimeClass: proto.ClassRunc,
			Labels: map[string]string{"team": "a"}, Limits: proto.Limits{CPUs: 1},
			Network: proto.Network{Mode: proto.NetworkNone}, IdleTimeoutSeconds: 300},
		Env: map[string]string{"A": "1"}, Secrets: map[string]string{"TOKEN": "hush-hush"},
		NetworkSecrets: map[string]egress.Secret{"KEY": {Value: "value", Hosts: []string{"a.example"}}},
	}
}

// TestNothingDiffers checks that a request whose fields the container has, or that leaves them out, has no
// differences.
func TestNothingDiffers(t *testing.T) {
	for _, req := range []proto.CreateContainer{{Name: "web", Existing: true}, {
		Image: "base:latest", RuntimeClass: proto.ClassRunc, Labels: map[string]string{"team": "a"},
		Limits: proto.Limits{CPUs: 1}, Env: map[string]string{"A": "1"}, IdleTimeoutSeconds: 300,
		Secrets:        map[string]string{"TOKEN": "hush-hush"},
		NetworkSecrets: map[string]proto.NetworkSecret{"KEY": {Value: "value", Hosts: []string{"a.example"}}},
	}} {
		if d := Differences(there(), "sha256:1", req); len(d) > 0 {
			t.Errorf("%+v differs in %+v", req, d)
		}
	}
}

// TestDifferences checks that each field that differs is named once, and that no value of an environment or a secret
// is told.
func TestDifferences(t *testing.T) {
	req := proto.CreateContainer{
		Image: "other", RuntimeClass: proto.ClassGVisor, Labels: map[string]string{"team": "b", "x": "y"},
		Limits: proto.Limits{CPUs: 2, MemoryBytes: 1 << 30}, Env: map[string]string{"A": "private", "B": "private"},
		Secrets: map[string]string{"TOKEN": "private"}, IdleTimeoutSeconds: 60, MaxLifetimeSeconds: 9,
		Network: proto.Network{Mode: proto.NetworkAllowlist, Allow: []string{"b.example"}}, Files: []string{"file_1"},
		NetworkSecrets: map[string]proto.NetworkSecret{"KEY": {Value: "private"}, "NEW": {Value: "private"}},
		CodeTools:      proto.CodeTools{Allow: []proto.AllowedTool{{Name: "add"}}},
	}
	var fields []string
	for _, d := range Differences(there(), "", req) {
		fields = append(fields, d.Field)
		for _, text := range []string{d.Have, d.Asked} {
			if text == "" || strings.Contains(text, "private") || strings.Contains(text, "hush") {
				t.Errorf("%s: has %q, asked for %q", d.Field, d.Have, d.Asked)
			}
		}
	}
	want := []string{"image", "runtime_class", "limits.cpus", "limits.memory_bytes", "idle_timeout_seconds",
		"max_lifetime_seconds", "labels.team", "labels.x", "env.A", "env.B", "secrets.TOKEN", "network.mode",
		"network.allow", "network_secrets.KEY", "network_secrets.NEW", "code_tools.allow", "files"}
	if !slices.Equal(fields, want) {
		t.Errorf("these differ: %v\nand not: %v", fields, want)
	}
}

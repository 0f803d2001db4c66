// Package existing compares a container that is there with a request for one, so that a client that gets an existing
// container learns what it did not get.
//
// In scope: which fields differ, and how that is said. Out of scope: finding the container, which package session, the
// only caller, does.
package existing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/egress"
	"berth/proto"
)

// A Container is what a request is compared with.
type Container struct {
	proto.Container
	Env, Secrets   map[string]string
	NetworkSecrets map[string]egress.Secret
}

// Differences lists what the request asks for and the container has otherwise. digest is that of the requested image;
// "" if there is no such image. Fields that the request leaves out count as equal. Values of environments and secrets
// are compared and never told.
func Differences(c Container, digest string, req proto.CreateContainer) []proto.Difference {
	var d differences
	if req.Image != "" && digest != c.ImageDigest {
		d.add("image", c.Image+" ("+c.ImageDigest+")", req.Image)
	}
	compare(&d, "runtime_class", c.RuntimeClass, req.RuntimeClass)
	compare(&d, "sudo", c.Sudo, req.Sudo)
	compare(&d, "workspace_id", c.WorkspaceID, req.WorkspaceID)
	compare(&d, "limits.cpus", c.Limits.CPUs, req.Limits.CPUs)
	compare(&d, "limits.memory_bytes", c.Limits.MemoryBytes, req.Limits.MemoryBytes)
	compare(&d, "limits.pids", c.Limits.PIDs, req.Limits.PIDs)
	compare(&d, "limits.disk_bytes", c.Limits.DiskBytes, req.Limits.DiskBytes)
	compare(&d, "limits.open_files", c.Limits.OpenFiles, req.Limits.OpenFiles)
	compare(&d, "idle_timeout_seconds", c.IdleTimeoutSeconds, req.IdleTimeoutSeconds)
	compare(&d, "max_lifetime_seconds", c.MaxLifetimeSeconds, req.MaxLifetimeSeconds)
	compare(&d, "lease.mode", c.Lease.Mode, req.Lease.Mode)
	compare(&d, "lease.at_end", c.Lease.AtEnd, req.Lease.AtEnd)
	for _, k := range slices.Sorted(maps.Keys(req.Labels)) {
		if have, ok := c.Labels[k]; !ok || have != req.Labels[k] {
			d.add("labels."+k, cmp.Or(have, "none"), req.Labels[k])
		}
	}
	d.values("env", c.Env, req.Env)
	d.values("secrets", c.Secrets, req.Secrets)
	d.network(c, req)
	if asked := req.PublicPorts.Normal(); !asked.IsZero() {
		compare(&d, "public_ports", c.PublicPorts.String(), asked.String())
	}
	if asked := toolNames(req.CodeTools); asked != "" {
		have := ""
		if c.CodeTools != nil {
			have = toolNames(*c.CodeTools)
		}
		compare(&d, "code_tools.allow", cmp.Or(have, "none"), asked)
	}
	if len(req.Files) > 0 {
		d.add("files", "the files that were put into it before", strings.Join(req.Files, ", "))
	}
	return d
}

type differences []proto.Difference

func (d *differences) add(field, have, asked string) {
	*d = append(*d, proto.Difference{Field: field, Have: have, Asked: asked})
}

// compare adds a difference unless both are equal or the request leaves the field out.
func compare[T comparable](d *differences, field string, have, asked T) {
	var none T
	if asked != none && asked != have {
		d.add(field, fmt.Sprint(have), fmt.Sprint(asked))
	}
}

// values compares environments by name.
func (d *differences) values(field string, have, asked map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(asked)) {
		switch v, ok := have[k]; {
		case !ok:
			d.add(field+"."+k, "none", "a value")
		case v != asked[k]:
			d.add(field+"."+k, "another value", "a value")
		}
	}
}

func (d *differences) network(c Container, req proto.CreateContainer) {
	compare(d, "network.mode", c.Network.Mode, req.Network.Mode)
	if asked := req.Network.Allow; len(asked) > 0 && !slices.Equal(asked, c.Network.Allow) {
		d.add("network.allow", cmp.Or(strings.Join(c.Network.Allow, ", "), "none"), strings.Join(asked, ", "))
	}
	if asked := req.Network.Deny; len(asked) > 0 && !slices.Equal(asked, c.Network.Deny) {
		d.add("network.deny", cmp.Or(strings.Join(c.Network.Deny, ", "), "none"), strings.Join(asked, ", "))
	}
	compare(d, "network.ask", c.Network.Ask, req.Network.Ask)
	for _, k := range slices.Sorted(maps.Keys(req.NetworkSecrets)) {
		switch have, ok := c.NetworkSecrets[k]; {
		case !ok:
			d.add("network_secrets."+k, "none", "a value")
		case have.Value != req.NetworkSecrets[k].Value || !slices.Equal(have.Hosts, req.NetworkSecrets[k].Hosts):
			d.add("network_secrets."+k, "another value or other hosts", "a value")
		}
	}
}

// toolNames returns the names of the granted tools as one text.
func toolNames(t proto.CodeTools) string {
	var list []string
	for _, a := range t.Allow {
		list = append(list, a.Name)
	}
	return strings.Join(list, ", ")
}

package containerd

import (
	"fmt"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // has the kernel keep the rules for devices
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// allowedDevices are what runc allows besides the configuration: those that a sandbox has, terminals, and to make a node of any, which takes a
// capability that it has not.
var allowedDevices = []*devices.Rule{
	device(devices.CharDevice, devices.Wildcard, devices.Wildcard, "m"),
	device(devices.BlockDevice, devices.Wildcard, devices.Wildcard, "m"),
	device(devices.CharDevice, 1, 3, "rwm"),                  // null
	device(devices.CharDevice, 1, 8, "rwm"),                  // random
	device(devices.CharDevice, 1, 7, "rwm"),                  // full
	device(devices.CharDevice, 5, 0, "rwm"),                  // tty
	device(devices.CharDevice, 1, 5, "rwm"),                  // zero
	device(devices.CharDevice, 1, 9, "rwm"),                  // urandom
	device(devices.CharDevice, 136, devices.Wildcard, "rwm"), // what is in /dev/pts
	device(devices.CharDevice, 5, 2, "rwm"),                  // ptmx
	device(devices.CharDevice, 10, 200, "rwm"),               // tun, which no sandbox has a node of
}

func device(kind devices.Type, major, minor int64, may devices.Permissions) *devices.Rule {
	return &devices.Rule{Type: kind, Major: major, Minor: minor, Permissions: may, Allow: true}
}

// makeCgroups makes the cgroups of a sandbox with its limits, and returns their directories: v1's and, where it is mounted, v2's. The package that does it is
// runc's. It keeps files open that it has found in the mount namespace where it was first called.
func makeCgroups(spec *specs.Spec) (v1 []string, v2 string, err error) {
	r := spec.Linux.Resources
	resources := &cgroups.Resources{
		CpuShares: *r.CPU.Shares, CpuWeight: cgroups.ConvertCPUSharesToCgroupV2Value(*r.CPU.Shares),
		CpuQuota: *r.CPU.Quota, CpuPeriod: *r.CPU.Period,
		Memory: *r.Memory.Limit, MemorySwap: *r.Memory.Swap,
		PidsLimit: r.Pids.Limit,
		Devices:   append([]*devices.Rule{{Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm"}}, allowedDevices...),
	}
	groups, err := manager.New(&cgroups.Cgroup{Path: spec.Linux.CgroupsPath, Resources: resources})
	if err != nil {
		return nil, "", err
	}
	const nobody = -1
	if err := groups.Apply(nobody); err != nil {
		return nil, "", fmt.Errorf("making cgroups: %w", err)
	}
	if err := groups.Set(resources); err != nil {
		return nil, "", fmt.Errorf("setting limits: %w", err)
	}
	for _, dir := range groups.GetPaths() {
		if exists(dir + "/tasks") {
			v1 = append(v1, dir)
		} else {
			v2 = dir
		}
	}
	return v1, v2, nil
}

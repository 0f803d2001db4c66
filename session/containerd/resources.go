package containerd

import (
	"fmt"
	"path/filepath"
	"sync"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // has the kernel keep the rules for devices
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A node is a device of the host's that a sandbox has in its /dev.
type node struct {
	name         string
	major, minor uint32
}

var nodes = []node{{"null", 1, 3}, {"random", 1, 8}, {"full", 1, 7}, {"tty", 5, 0}, {"zero", 1, 5}, {"urandom", 1, 9}}

// allowedDevices are what runc allows besides the configuration: nodes, terminals, tun, and to make a node of any. A sandbox has no node of tun, and not the capability
// to make one.
func allowedDevices() []*devices.Rule {
	rules := []*devices.Rule{
		{Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm"}, // none but these
		device(devices.CharDevice, devices.Wildcard, devices.Wildcard, "m"),
		device(devices.BlockDevice, devices.Wildcard, devices.Wildcard, "m"),
		device(devices.CharDevice, 136, devices.Wildcard, "rwm"), // what is in /dev/pts
		device(devices.CharDevice, 5, 2, "rwm"),                  // ptmx
		device(devices.CharDevice, 10, 200, "rwm"),               // tun
	}
	for _, n := range nodes {
		rules = append(rules, device(devices.CharDevice, int64(n.major), int64(n.minor), "rwm"))
	}
	return rules
}

func device(kind devices.Type, major, minor int64, may devices.Permissions) *devices.Rule {
	return &devices.Rule{Type: kind, Major: major, Minor: minor, Permissions: may, Allow: true}
}

// sandboxCgroups are the cgroups of a sandbox. The package that makes them is runc's; it keeps files open that it has found in the mount namespace where it was
// first called, so it is called in the daemon's alone.
type sandboxCgroups struct {
	manager cgroups.Manager
	limits  *cgroups.Resources
	v1      []string // directories
	v2      string   // where it is mounted, beside v1 or alone
}

// makeCgroups makes cgroups that limit nothing yet.
func makeCgroups(spec *specs.Spec) (*sandboxCgroups, error) {
	r := spec.Linux.Resources
	g := &sandboxCgroups{limits: &cgroups.Resources{
		CpuShares: *r.CPU.Shares, CpuWeight: cgroups.ConvertCPUSharesToCgroupV2Value(*r.CPU.Shares),
		CpuQuota: *r.CPU.Quota, // of cpuPeriod: to set that has v1 look at all groups there are
		Memory:   *r.Memory.Limit, MemorySwap: *r.Memory.Swap,
		PidsLimit: r.Pids.Limit,
		Devices:   allowedDevices(),
	}}
	var err error
	if g.manager, err = manager.New(&cgroups.Cgroup{Path: spec.Linux.CgroupsPath, Resources: g.limits}); err != nil {
		return nil, err
	}
	const nobody = -1
	if err := g.manager.Apply(nobody); err != nil {
		return nil, fmt.Errorf("making cgroups: %w", err)
	}
	for _, dir := range g.manager.GetPaths() {
		if exists(filepath.Join(dir, "tasks")) {
			g.v1 = append(g.v1, dir)
		} else {
			g.v2 = dir
		}
	}
	return g, nil
}

// limit gives the cgroups their limits.
func (g *sandboxCgroups) limit() error {
	// With v2 the package has the daemon lock as much memory as it likes, for kernels older than those that we need.
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
		return err
	}
	before.Max = min(before.Max, lockedMemory)
	before.Cur = min(before.Cur, before.Max)
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before) }() // lower is always allowed
	var err error
	first := false
	firstLimits.Do(func() { first, err = true, g.manager.Set(g.limits) })
	if !first {
		err = g.manager.Set(g.limits)
	}
	if err != nil {
		return fmt.Errorf("setting limits: %w", err)
	}
	return nil
}

// firstLimits are set while no others are: the package finds out then what the kernel calls a file, and notes that for all.
var firstLimits sync.Once

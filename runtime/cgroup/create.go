package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // has the kernel keep the rules for devices
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A node is a device of the host's that a sandbox has in its /dev.
type node struct {
	Name         string
	Major, Minor uint32
}

var Nodes = []node{{"null", 1, 3}, {"random", 1, 8}, {"full", 1, 7}, {"tty", 5, 0}, {"zero", 1, 5}, {"urandom", 1, 9}}

// allowedDevices are what runc allows besides the configuration: nodes, terminals, tun, and to make a node of any. A
// sandbox has no node of tun, and not the capability to make one.
func allowedDevices() []*devices.Rule {
	rules := []*devices.Rule{
		// none but these
		{Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm"},
		device(devices.CharDevice, devices.Wildcard, devices.Wildcard, "m"),
		device(devices.BlockDevice, devices.Wildcard, devices.Wildcard, "m"),
		device(devices.CharDevice, 136, devices.Wildcard, "rwm"), // what is in /dev/pts
		device(devices.CharDevice, 5, 2, "rwm"),                  // ptmx
		device(devices.CharDevice, 10, 200, "rwm"),               // tun
	}
	for _, n := range Nodes {
		rules = append(rules, device(devices.CharDevice, int64(n.Major), int64(n.Minor), "rwm"))
	}
	return rules
}

func device(kind devices.Type, major, minor int64, may devices.Permissions) *devices.Rule {
	return &devices.Rule{Type: kind, Major: major, Minor: minor, Permissions: may, Allow: true}
}

// Groups are the cgroups of a sandbox. The package that makes them is runc's; it keeps files open that it has
// found in the mount namespace where it was first called, so it is called in the daemon's alone.
type Groups struct {
	manager cgroups.Manager
	limits  *cgroups.Resources
	V1      []string // directories
	V2      string   // where it is mounted, beside v1 or alone
}

// Make makes cgroups that limit nothing yet.
func Make(spec *specs.Spec) (*Groups, error) {
	r := spec.Linux.Resources
	g := &Groups{limits: &cgroups.Resources{
		CpuShares: *r.CPU.Shares, CpuWeight: cgroups.ConvertCPUSharesToCgroupV2Value(*r.CPU.Shares),
		CpuQuota: *r.CPU.Quota, // of cpuPeriod: to set that has v1 look at all groups there are
		Memory:   *r.Memory.Limit, MemorySwap: *r.Memory.Swap,
		PidsLimit: r.Pids.Limit,
		Devices:   allowedDevices(),
	}}
	cg := &cgroups.Cgroup{Path: spec.Linux.CgroupsPath, Resources: g.limits}
	id := filepath.Base(cg.Path)
	var err error
	if known := cgroupPlaces.Load(); known != nil {
		g.manager, err = manager.NewWithPaths(cg, known.of(id))
		if err == nil && known.make(id) {
			g.V1, g.V2 = known.dirs(id)
			return g, nil
		}
	}
	if g.manager, err = manager.New(cg); err != nil {
		return nil, err
	}
	const nobody = -1
	if err := g.manager.Apply(nobody); err != nil {
		return nil, fmt.Errorf("making cgroups: %w", err)
	}
	found := &places{parents: map[string]string{}}
	for controller, dir := range g.manager.GetPaths() {
		found.parents[controller] = filepath.Dir(dir)
		if isFile(filepath.Join(dir, "tasks")) {
			found.v1 = append(found.v1, filepath.Dir(dir))
		} else {
			found.v2 = filepath.Dir(dir)
		}
	}
	g.V1, g.V2 = found.dirs(id)
	if len(g.V1) > 0 { // v2 wants more than a directory
		cgroupPlaces.Store(found)
	}
	return g, nil
}

// places are the directories that sandboxes' cgroups are made in.
type places struct {
	parents map[string]string // by what the package calls them
	v1      []string
	v2      string
}

// cgroupPlaces is where the package made the first cgroups, which takes it a hundred looks at files. All others are
// made beside those. nil: not known, or v2 alone.
var cgroupPlaces atomic.Pointer[places]

// of is where the cgroups of a sandbox are, as the package wants it.
func (p *places) of(id string) map[string]string {
	dirs := map[string]string{}
	for controller, parent := range p.parents {
		dirs[controller] = filepath.Join(parent, id)
	}
	return dirs
}

// dirs are the cgroups of a sandbox.
func (p *places) dirs(id string) (v1 []string, v2 string) {
	for _, parent := range p.v1 {
		v1 = append(v1, filepath.Join(parent, id))
	}
	if p.v2 != "" {
		v2 = filepath.Join(p.v2, id)
	}
	return v1, v2
}

// make makes a sandbox's cgroups, and reports whether they are as the package would have made them. If not, it can go
// on from there.
func (p *places) make(id string) bool {
	for _, parent := range p.parents {
		if err := os.Mkdir(filepath.Join(parent, id), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return false // all of ours may have been removed
		}
	}
	sets, ok := p.parents["cpuset"]
	if !ok {
		return true
	}
	processors, err := os.ReadFile(filepath.Join(sets, id, "cpuset.cpus"))
	return err == nil && len(bytes.TrimSpace(processors)) > 0 // see inheritProcessors
}

// Limit gives the cgroups their limits.
func (g *Groups) Limit() error {
	// With v2 the package has the daemon lock as much memory as it likes, for kernels older than those that we need.
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
		return err
	}
	before.Max = min(before.Max, LockedMemory)
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

// firstLimits are set while no others are: the package finds out then what the kernel calls a file, and notes that
// for all.
var firstLimits sync.Once

func isFile(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.Mode().IsRegular()
}

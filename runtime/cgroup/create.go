package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/cgroups"
	_ "github.com/opencontainers/cgroups/devices" // installs the device rules in the kernel
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A node is a device of the host in a sandbox's /dev.
type node struct {
	Name         string
	Major, Minor uint32
}

var Nodes = []node{{"null", 1, 3}, {"random", 1, 8}, {"full", 1, 7}, {"tty", 5, 0}, {"zero", 1, 5}, {"urandom", 1, 9}}

// allowedDevices returns the device rules of a sandbox. They allow what runc allows in addition to the configuration:
// nodes, terminals, tun, and mknod of any device. A sandbox has no node of tun, and lacks the capability for mknod.
func allowedDevices() []*devices.Rule {
	rules := []*devices.Rule{
		// deny all other devices
		{Type: devices.WildcardDevice, Major: devices.Wildcard, Minor: devices.Wildcard, Permissions: "rwm"},
		device(devices.CharDevice, devices.Wildcard, devices.Wildcard, "m"),
		device(devices.BlockDevice, devices.Wildcard, devices.Wildcard, "m"),
		device(devices.CharDevice, 136, devices.Wildcard, "rwm"), // the terminals in /dev/pts
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

// Groups are the cgroups of a sandbox. runc's cgroups package makes them. That package keeps files open that it found
// in the mount namespace of its first call, so only the daemon calls it.
type Groups struct {
	manager cgroups.Manager
	limits  *cgroups.Resources
	V1      []string // directories
	V2      string   // its mount point, beside v1 or alone
}

// Make makes cgroups without limits.
func Make(spec *specs.Spec) (*Groups, error) {
	r := spec.Linux.Resources
	g := &Groups{limits: &cgroups.Resources{
		CpuShares: *r.CPU.Shares, CpuWeight: cgroups.ConvertCPUSharesToCgroupV2Value(*r.CPU.Shares),
		CpuQuota: *r.CPU.Quota, // over cpuPeriod, which is not set: on v1 the kernel then checks all groups
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
	if len(g.V1) > 0 { // v2 needs more than a directory
		cgroupPlaces.Store(found)
	}
	return g, nil
}

// places are the parent directories of the sandboxes' cgroups.
type places struct {
	parents map[string]string // by the package's names for them
	v1      []string
	v2      string
}

// cgroupPlaces is where runc's package made the first cgroups; to find that out takes it a hundred file look-ups. We
// make all later cgroups beside the first. nil means unknown, or v2 alone.
var cgroupPlaces atomic.Pointer[places]

// of returns the paths of a sandbox's cgroups in the form that runc's package takes.
func (p *places) of(id string) map[string]string {
	dirs := map[string]string{}
	for controller, parent := range p.parents {
		dirs[controller] = filepath.Join(parent, id)
	}
	return dirs
}

// dirs returns the cgroups of a sandbox.
func (p *places) dirs(id string) (v1 []string, v2 string) {
	for _, parent := range p.v1 {
		v1 = append(v1, filepath.Join(parent, id))
	}
	if p.v2 != "" {
		v2 = filepath.Join(p.v2, id)
	}
	return v1, v2
}

// make makes a sandbox's cgroups, and reports whether they are as runc's package would have made them. If not, that
// package can continue from there.
func (p *places) make(id string) bool {
	for _, parent := range p.parents {
		if err := os.Mkdir(filepath.Join(parent, id), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return false // all of our cgroups may have been removed
		}
	}
	sets, ok := p.parents["cpuset"]
	if !ok {
		return true
	}
	processors, err := os.ReadFile(filepath.Join(sets, id, "cpuset.cpus"))
	return err == nil && len(bytes.TrimSpace(processors)) > 0 // see InheritProcessors
}

// Limit sets the limits of the cgroups.
func (g *Groups) Limit() error {
	// With v2 the package raises the daemon's limit of locked memory to infinity, for kernels older than we support.
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
		return err
	}
	before.Max = min(before.Max, LockedMemory)
	before.Cur = min(before.Cur, before.Max)
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before) }() // lowering is always allowed
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

// firstLimits makes the first call run alone: the package then looks up the name of a kernel file, and caches it in a
// global variable.
var firstLimits sync.Once

// Enter moves a process into the cgroups.
func (g *Groups) Enter(pid int) error {
	dirs := g.V1
	if g.V2 != "" {
		dirs = append(slices.Clone(dirs), g.V2)
	}
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("entering a cgroup: %w", err)
		}
	}
	return nil
}

func isFile(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.Mode().IsRegular()
}

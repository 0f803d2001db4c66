package flags

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/cli/app"
	"berth/cli/term"
	"berth/proto"
)

// A Confinement says how a new container is isolated and what it may use. Sizes stay as typed until Request, which
// names the flag in its errors.
type Confinement struct {
	class        string
	cpus         float64
	memory, disk string
	pids, open   int64
	typed        *pflag.FlagSet // the flags that were given
}

// Register adds the flags to a command. They have docker's names where docker has the same option.
func (f *Confinement) Register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.class, "class", "", "runtime class: runc or gvisor")
	app.CompleteFlag(cmd, "class", "runc", "gvisor")
	f.RegisterLimits(cmd)
}

// RegisterLimits adds the flags for limits alone.
func (f *Confinement) RegisterLimits(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.typed = fs
	fs.Float64Var(&f.cpus, "cpus", 0, "CPUs, such as 0.5")
	fs.StringVarP(&f.memory, "memory", "m", "", "memory, such as 512m")
	fs.Int64Var(&f.pids, "pids", 0, "processes and threads")
	fs.Int64Var(&f.open, "open-files", 0, "open files of one process")
	fs.StringVar(&f.disk, "disk", "", "disk, such as 2g")
}

// Request returns the confinement of a request. It refuses an explicit 0. The daemon would use its default for it,
// which is neither zero nor unlimited.
func (f *Confinement) Request() (c proto.Confinement, err error) {
	c = proto.Confinement{RuntimeClass: proto.RuntimeClass(f.class), Limits: proto.Limits{CPUs: f.cpus, PIDs: f.pids,
		OpenFiles: f.open}}
	if err := NoZeros(f.typed, map[string]bool{"cpus": f.cpus == 0, "pids": f.pids == 0,
		"open-files": f.open == 0}); err != nil {
		return c, err
	}
	if c.Limits.MemoryBytes, err = term.ParseSize("memory", f.memory); err != nil {
		return c, err
	}
	c.Limits.DiskBytes, err = term.ParseSize("disk", f.disk)
	return c, err
}

// NoZeros refuses flags that were given and are zero.
func NoZeros(typed *pflag.FlagSet, zeros map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(zeros)) {
		if zeros[name] && typed.Changed(name) {
			return proto.Errorf(proto.InvalidArgument, "", name, "--%s 0 is no limit that a container can have; "+
				"leave it out for the daemon's default", name)
		}
	}
	return nil
}

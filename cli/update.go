package cli

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth/cli/app"
	"berth/cli/flags"
	"berth/cli/term"
	"berth/client"
	"berth/proto"
)

// updateCommand returns `berth update`, which has docker's name for it.
func updateCommand(a *app.App) *cobra.Command {
	var limits flags.Confinement
	var lease flags.Lease
	var labels, gone []string
	var network networkChange
	var idle time.Duration
	cmd := &cobra.Command{
		Use: "update [flags] CONTAINER", Short: "Change labels, limits, network and lease of a container",
		Args: app.ArgCount(1, 1), ValidArgsFunction: a.CompleteContainers(1),
		Long: `Change labels, limits, network and lease of a container, also while it runs.

Limits of CPU, memory, disk and processes hold at once. A limit below the present use is refused. Open files, and
processes under gvisor, change with the next start.

--allow and --remove-allow change the list of hosts that it may reach, at once. Connections to hosts that are not
allowed any more end. With --ask, connections to other hosts wait for a decision: see 'berth approvals'. --deny and
--remove-deny change the list of those that are refused without asking.

The lease says when the container ends and what happens then. --ends may be earlier than before, and --ends 0s ends the
lease now.`,
		Example: "  berth update --memory 1g --cpus 0.5 --label stage=done CONTAINER\n" +
			"  berth update --allow pypi.org --allow files.pythonhosted.org CONTAINER\n" +
			"  berth update --lease absolute --ends 2h --at-end pause CONTAINER",
		RunE: a.WithContainer(func(ctx context.Context, c *client.Client, id string, _ []string) error {
			confined, err := limits.Request()
			if err != nil {
				return err
			}
			req := proto.ChangeContainer{Limits: confined.Limits}
			if req.IdleTimeoutSeconds, err = term.ParseSeconds("idle", idle); err != nil {
				return err
			}
			if req.Lease, err = lease.Request(); err != nil {
				return err
			}
			if len(labels)+len(gone) > 0 {
				if req.Labels, err = newLabels(ctx, c, id, labels, gone); err != nil {
					return err
				}
			}
			if req.Network, err = network.request(ctx, c, id); err != nil {
				return err
			}
			con, err := c.Change(ctx, id, req)
			return a.PrintResult(con, con.ID, err)
		}),
	}
	limits.RegisterLimits(cmd)
	lease.Register(cmd)
	network.register(cmd)
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "label to set, key=value (may be repeated)")
	cmd.Flags().StringArrayVar(&gone, "remove-label", nil, "key of a label to remove (may be repeated)")
	cmd.Flags().DurationVar(&idle, "idle", 0, "idle time after which a rolling lease ends, such as 30m")
	return a.AddFormatFlags(cmd)
}

// newLabels returns the container's labels with some set and others removed.
func newLabels(ctx context.Context, c *client.Client, id string, set, gone []string) (map[string]string, error) {
	con, err := c.Container(ctx, id)
	if err != nil {
		return nil, err
	}
	labels, err := flags.Labels(set)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	maps.Copy(all, con.Labels)
	maps.Copy(all, labels)
	for _, key := range gone {
		delete(all, key)
	}
	return all, nil
}

// A networkChange is what the flags say of a container's network.
type networkChange struct {
	mode         string
	allow, limit []string // of the hosts that it may reach
	deny, forget []string // of those that it is refused
	ask          bool
	typed        *pflag.FlagSet // the flags that were given
}

func (n *networkChange) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&n.mode, "network", "", "network mode from now on: none, allowlist or open (any public host)")
	fs.StringArrayVar(&n.allow, "allow", nil, "host to add to those that the container may reach, such as "+
		"api.github.com, *.example.com or db.example.com:5432 (may be repeated)")
	fs.StringArrayVar(&n.limit, "remove-allow", nil, "host to take from them, as in the list (may be repeated)")
	fs.BoolVar(&n.ask, "ask", false, "let connections to hosts that are not listed wait for a person's decision "+
		"(--ask=false: not any more)")
	fs.StringArrayVar(&n.deny, "deny", nil, "host to add to those that are refused without asking (may be repeated)")
	fs.StringArrayVar(&n.forget, "remove-deny", nil, "host to take from them, as in the list (may be repeated)")
	n.typed = fs
	app.CompleteFlag(cmd, "network", "none", "allowlist", "open")
}

// request returns the network from now on; zero leaves it as it is.
func (n *networkChange) request(ctx context.Context, c *client.Client, id string) (proto.Network, error) {
	asked := n.typed.Changed("ask")
	if len(n.allow)+len(n.limit)+len(n.deny)+len(n.forget) == 0 && !asked {
		return proto.Network{Mode: proto.NetworkMode(n.mode)}, nil
	}
	con, err := c.Container(ctx, id)
	if err != nil {
		return proto.Network{}, err
	}
	if n.mode == "" && con.Network.Mode == proto.NetworkOpen {
		return proto.Network{}, proto.Errorf(proto.Conflict, "", "allow", "container %s may reach any public host; "+
			"give it a list with --network allowlist", con.ID)
	}
	now := con.Network
	if asked {
		now.Ask = n.ask
	}
	if now.Allow, err = changedList(now.Allow, n.allow, n.limit); err != nil {
		return proto.Network{}, err
	}
	if now.Deny, err = changedList(now.Deny, n.deny, n.forget); err != nil {
		return proto.Network{}, err
	}
	if len(n.allow) > 0 || n.ask { // what is for a list asks for one
		now.Mode = proto.NetworkAllowlist
	}
	now.Mode = cmp.Or(proto.NetworkMode(n.mode), now.Mode)
	return now, nil
}

// changedList returns a list of hosts with some added and others removed.
func changedList(had, add, remove []string) ([]string, error) {
	list := slices.Concat(had, add)
	for _, host := range remove {
		if !slices.Contains(list, host) {
			return nil, proto.Errorf(proto.NotFound, "", host, "%s is not on the container's list, which has %s", host,
				cmp.Or(strings.Join(had, ", "), "nothing"))
		}
		list = slices.DeleteFunc(list, func(h string) bool { return h == host })
	}
	return list, nil
}

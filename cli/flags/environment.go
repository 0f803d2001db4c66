package flags

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"berth/cli/app"
	"berth/proto"
)

// A Network says what a container may connect to.
type Network struct {
	mode        string
	allow, deny []string
	ask         bool
}

// Register adds the flags to a command.
func (f *Network) Register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.mode, "network", "", "network mode: none, allowlist (with --allow) or open (any public host); "+
		"default none")
	fs.StringArrayVar(&f.allow, "allow", nil, "host that the container may reach, such as api.github.com, "+
		"*.example.com or db.example.com:5432 (may be repeated)")
	fs.BoolVar(&f.ask, "ask", false, "let connections to other hosts wait for a person's decision; see 'berth "+
		"approvals'")
	fs.StringArrayVar(&f.deny, "deny", nil, "host that is refused without asking, written as for --allow (may be "+
		"repeated)")
	app.CompleteFlag(cmd, "network", "none", "allowlist", "open")
}

// Request returns the network of a request.
func (f *Network) Request() proto.Network {
	return proto.Network{Mode: proto.NetworkMode(f.mode), Allow: f.allow, Ask: f.ask, Deny: f.deny}
}

// Labels parses key=value.
func Labels(list []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, l := range list {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, proto.Errorf(proto.InvalidArgument, "", "label", "--label %q is not key=value", l)
		}
		labels[k] = v
	}
	return labels, nil
}

// Env parses NAME=value, and NAME alone for a variable of the local environment. As in docker, an unset NAME is
// left out and is no error.
func Env(list []string) (map[string]string, error) {
	env := map[string]string{}
	for _, e := range list {
		k, v, ok := strings.Cut(e, "=")
		if k == "" {
			return nil, proto.Errorf(proto.InvalidArgument, "", "env", "--env %q is not NAME=value", e)
		}
		if !ok {
			if v, ok = os.LookupEnv(k); !ok {
				continue
			}
		}
		env[k] = v
	}
	return env, nil
}

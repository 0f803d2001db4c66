// Command berth is both the daemon (`berth serve`) and its command-line client.
//
// This package only connects the parts: package cli has the client commands, package daemon the daemon.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"berth/cli"
	"berth/cli/app"
	"berth/client"
	"berth/daemon"
	"berth/proto"
)

// version is set by the linker.
var version = "dev"

func main() {
	root := cli.New(app.Config{
		Version: proto.FullVersion(version), Host: app.DefaultHost, DataDir: app.DefaultDir, Doctor: examineHost,
		Rotate: rotateIn, Places: app.DaemonFiles,
	})
	for _, cmd := range []*cobra.Command{upCommand(), downCommand(), serveCommand(), configCommand(),
		upstreamScriptCommand(), manualCommand()} {
		cmd.GroupID = cli.GroupOther
		root.AddCommand(cmd)
	}
	os.Exit(cli.Run(root))
}

// rotateIn implements `berth vault --data`.
func rotateIn(dir string, forget bool) (client.Rotation, error) {
	done, err := daemon.RotateIn(dir, forget)
	return client.Rotation(done), err
}

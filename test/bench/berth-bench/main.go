// Command berth-bench measures a daemon beside the bare machine, containerd, docker and others. `berth bench` starts
// it with its own arguments.
package main

import (
	"os"

	"berth/cli"
	"berth/cli/app"
	"berth/proto"
	"berth/test/bench"
)

// version is set by the linker.
var version = "dev"

func main() {
	os.Exit(cli.Run(cli.New(app.Config{Version: proto.FullVersion(version), Host: app.DefaultHost,
		DataDir: app.DefaultDir, Places: app.DaemonFiles, Bench: bench.Command})))
}

package sandboximage

import (
	"os"
	"os/exec"
	"slices"

	"berth/proto"
	"berth/sandbox-image/buildenv"
	"berth/sandbox-image/recipe"
)

// A tool is a program that a build runs, with its Debian package.
type tool struct{ program, pkg string }

// tools are what every build runs.
var tools = []tool{
	{"mmdebstrap", "mmdebstrap"},
	{"apt-get", "apt"},
	{"dpkg", "dpkg"},
}

// Programs that fetch wheels and npm modules.
var (
	pip = tool{"pip3", "python3-pip"}
	npm = tool{"npm", "npm"}
)

// toolsOf returns the programs that a build of the definition runs.
func toolsOf(d recipe.Definition) []tool {
	list := slices.Clone(tools)
	if slices.ContainsFunc(d.Additions, func(a recipe.Layer) bool { return len(a.Wheels) > 0 }) {
		list = append(list, pip)
	}
	if slices.ContainsFunc(d.Additions, func(a recipe.Layer) bool { return a.NPM }) {
		list = append(list, npm)
	}
	return list
}

// checkHost reports missing requirements of a build before minutes of work.
func checkHost(d recipe.Definition) error {
	if os.Geteuid() != 0 {
		return proto.Errorf(proto.PermissionDenied, buildenv.Op, "",
			"building an image creates files of many owners and needs root; run it again with sudo")
	}
	for _, t := range toolsOf(d) {
		if _, err := exec.LookPath(t.program); err != nil {
			return buildenv.Missing(t.pkg)
		}
	}
	return nil
}

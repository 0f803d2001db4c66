package sandboximage

import (
	"os"
	"os/exec"
	"slices"

	"berth/proto"
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
func toolsOf(d definition) []tool {
	list := slices.Clone(tools)
	if slices.ContainsFunc(d.additions, func(a addition) bool { return len(a.wheels) > 0 }) {
		list = append(list, pip)
	}
	if slices.ContainsFunc(d.additions, func(a addition) bool { return a.npm }) {
		list = append(list, npm)
	}
	return list
}

// checkHost reports missing requirements of a build before minutes of work.
func checkHost(d definition) error {
	if os.Geteuid() != 0 {
		return proto.Errorf(proto.PermissionDenied, op, "",
			"building an image creates files of many owners and needs root; run it again with sudo")
	}
	for _, t := range toolsOf(d) {
		if _, err := exec.LookPath(t.program); err != nil {
			return missing(t.pkg)
		}
	}
	return nil
}

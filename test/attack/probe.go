package attack

import (
	"encoding/json"
	"fmt"
	"io"
)

// A probe runs inside a container and returns what it found, which is printed as JSON. It is Go and not a script,
// because it makes calls that no tool makes, in images that have no tools.
type probe func(args []string) (found any, err error)

// probes has all probes by name; each file of this package adds its own with addProbe.
var probes = map[string]probe{}

// addProbe adds a probe. It panics if a name is used twice, which any test would find.
func addProbe(name string, p probe) struct{} {
	if probes[name] != nil {
		panic("two probes are called " + name)
	}
	probes[name] = p
	return struct{}{}
}

// RunProbe is `berth attack-probe NAME ARGS…`, inside a container. It prints only JSON, so that output of attempts
// cannot be mistaken for it.
func RunProbe(w io.Writer, args []string) error {
	if len(args) == 0 || probes[args[0]] == nil {
		return fmt.Errorf("there is no such probe: %q", args)
	}
	found, err := probes[args[0]](args[1:])
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(found)
}

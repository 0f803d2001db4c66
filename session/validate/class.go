package validate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/proto"
)

// Classes says which runtime classes requests may ask for. With the zero value they may ask for each.
type Classes struct {
	Allowed []proto.RuntimeClass // nil: all
	Default proto.RuntimeClass   // for requests that ask for none; "": the first that is allowed
}

// All returns the classes that a request may ask for.
func (c Classes) All() []proto.RuntimeClass {
	if len(c.Allowed) == 0 {
		return proto.RuntimeClasses
	}
	return c.Allowed
}

// Usual returns the class for requests that ask for none.
func (c Classes) Usual() proto.RuntimeClass { return cmp.Or(c.Default, c.All()[0]) }

// Check checks whether a request may ask for a class. "" is the usual one. A class that exists but is not allowed is
// PermissionDenied.
func (c Classes) Check(asked proto.RuntimeClass) error {
	if asked == "" || slices.Contains(c.All(), asked) {
		return nil
	}
	var names []string
	for _, one := range c.All() {
		names = append(names, strconv.Quote(string(one)))
	}
	use := strings.Join(names, " or ")
	if !slices.Contains(proto.RuntimeClasses, asked) {
		return Error("runtime_class", "runtime_class %.32q is not known; use %s", string(asked), use)
	}
	return proto.Errorf(proto.PermissionDenied, "", "runtime_class", "runtime_class %q is not among those of this "+
		"daemon; use %s, or have its operator allow it with --runtime-classes", asked, use)
}

// Sudo checks whether a request may ask for sudo in a container of a class. forbidden says that the operator allows
// none.
func Sudo(asked, forbidden bool, class proto.RuntimeClass) error {
	switch {
	case !asked:
		return nil
	case forbidden:
		return proto.Errorf(proto.PermissionDenied, "", "sudo", "this daemon allows no container sudo; leave it out "+
			"and run commands as user root, or have its operator start it without --allow-sudo=false")
	case class != proto.ClassRunc:
		return Error("sudo", "sudo is for runtime_class %q; in class %q run commands as user root", proto.ClassRunc,
			class)
	}
	return nil
}

// CheckFlags refuses classes that do not exist, and a default that no request may ask for. The error names the daemon's
// flags.
func (c Classes) CheckFlags() error {
	for _, one := range c.Allowed {
		if !slices.Contains(proto.RuntimeClasses, one) {
			return fmt.Errorf("--runtime-classes: there is no runtime class %q; use runc, gvisor or both", one)
		}
	}
	switch {
	case c.Default == "" || slices.Contains(c.All(), c.Default):
		return nil
	case !slices.Contains(proto.RuntimeClasses, c.Default):
		return fmt.Errorf("--runtime-class: there is no runtime class %q; use runc or gvisor", c.Default)
	}
	return fmt.Errorf("--runtime-class %s is not among --runtime-classes; name it there, too", c.Default)
}

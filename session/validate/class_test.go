package validate

import (
	"testing"

	"berth/proto"
)

func TestSudo(t *testing.T) {
	for name, c := range map[string]struct {
		asked, forbidden bool
		class            proto.RuntimeClass
		want             proto.Code
	}{
		"not asked":  {false, true, proto.ClassGVisor, ""},
		"allowed":    {true, false, proto.ClassRunc, ""},
		"forbidden":  {true, true, proto.ClassRunc, proto.PermissionDenied},
		"with class": {true, false, proto.ClassGVisor, proto.InvalidArgument},
	} {
		if err := Sudo(c.asked, c.forbidden, c.class); proto.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

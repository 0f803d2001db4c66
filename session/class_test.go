package session_test

import (
	"strings"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/session/validate"
	"berth/test/sessiontest"
)

// A container has the class that its request names, or the daemon's default, and never another. A class that is not
// allowed is refused by an error that names those that are.
func TestRuntimeClasses(t *testing.T) {
	both := []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor}
	for _, c := range []struct {
		class   proto.RuntimeClass
		allowed []proto.RuntimeClass
		asked   proto.RuntimeClass
		want    proto.RuntimeClass // "": refused
	}{
		{"", nil, "", proto.ClassRunc},
		{"", nil, proto.ClassGVisor, proto.ClassGVisor},
		{proto.ClassGVisor, nil, "", proto.ClassGVisor},
		{proto.ClassGVisor, both, proto.ClassRunc, proto.ClassRunc},
		{"", both[1:], "", proto.ClassGVisor},
		{"", both[1:], proto.ClassGVisor, proto.ClassGVisor},
		{"", both[1:], proto.ClassRunc, ""},
		{"", both[:1], proto.ClassGVisor, ""},
	} {
		s := sessiontest.New(t, session.Config{Classes: validate.Classes{Default: c.class,
			Allowed: c.allowed}})
		made, err := s.Sessions.Create(t.Context(), sessiontest.Owner, proto.CreateContainer{RuntimeClass: c.asked})
		switch {
		case c.want == "":
			if e := proto.AsError(err); proto.CodeOf(err) != proto.PermissionDenied || e.Item != "runtime_class" ||
				!strings.Contains(e.Message, `use "`+string(c.allowed[0])+`",`) {
				t.Errorf("%+v: %v", c, err)
			}
		case err != nil:
			t.Errorf("%+v: %v", c, err)
		case made.Info().RuntimeClass != c.want || s.LastStarted(t).RuntimeClass != c.want:
			t.Errorf("%+v: %s, started as %s", c, made.Info().RuntimeClass, s.LastStarted(t).RuntimeClass)
		}
	}
	s := sessiontest.New(t, session.Config{Classes: validate.Classes{Allowed: both[1:]}})
	if _, err := s.Sessions.Create(t.Context(), sessiontest.Owner, proto.CreateContainer{
		RuntimeClass: "kata"}); proto.CodeOf(err) != proto.InvalidArgument || !strings.HasSuffix(err.Error(),
		`use "gvisor"`) {
		t.Errorf("an unknown class: %v", err)
	}
}

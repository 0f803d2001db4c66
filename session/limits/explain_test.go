package limits

import (
	"testing"

	"berth/guest/wire"
	"berth/proto"
)

// TestKillForMemory checks that a SIGKILL counts as a lack of memory if the host killed for memory meanwhile, and only
// in gVisor, where the guest cannot know.
func TestKillForMemory(t *testing.T) {
	grown, same := Reading{OOMKills: 1, PIDRefusals: -1}, Reading{OOMKills: 0, PIDRefusals: -1}
	for name, tt := range map[string]struct {
		class  proto.RuntimeClass
		exit   wire.Exit
		before *Reading
		after  Reading
		want   proto.EndReason
	}{
		"killed":                        {proto.ClassGVisor, wire.Exit{Code: 137, Signal: 9}, &same, grown, proto.EndOutOfMemory},
		"a child was killed":            {proto.ClassGVisor, wire.Exit{Code: 137}, &same, grown, proto.EndOutOfMemory},
		"killed with memory to spare":   {proto.ClassGVisor, wire.Exit{Code: 137, Signal: 9}, &same, same, proto.EndSignal},
		"failed by itself":              {proto.ClassGVisor, wire.Exit{Code: 1}, &same, grown, proto.EndExit},
		"nothing known":                 {proto.ClassGVisor, wire.Exit{Code: 137, Signal: 9}, &Unknown, grown, proto.EndSignal},
		"nothing read":                  {proto.ClassGVisor, wire.Exit{Code: 137, Signal: 9}, nil, grown, proto.EndSignal},
		"runc, whose guest says so":     {proto.ClassRunc, wire.Exit{Code: 137, OutOfMemory: true}, &same, grown, proto.EndOutOfMemory},
		"runc, whose guest says no":     {proto.ClassRunc, wire.Exit{Code: 137, Signal: 9}, &same, grown, proto.EndSignal},
		"gVisor, killed and well ended": {proto.ClassGVisor, wire.Exit{}, &same, grown, proto.EndExit},
	} {
		o := Observation{Exit: tt.exit, Before: tt.before, After: tt.after, Class: tt.class,
			Tail: func(proto.Stream, int) string { return "" }}
		if end := o.Explain(EndOf(tt.exit, nil)); end.Reason != tt.want {
			t.Errorf("%s: %+v, want %s", name, end, tt.want)
		}
	}
}

package containerd

import (
	"testing"

	"berth/proto"
	"berth/session"
)

// BenchmarkStart measures making and dialling one sandbox, without its removal.
func BenchmarkStart(b *testing.B) {
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		b.Run(string(class), func(b *testing.B) { benchmarkStart(b, class) })
	}
}

func benchmarkStart(b *testing.B, class proto.RuntimeClass) {
	r := openTest(b)
	spec := session.Spec{Image: testImage(b, r), Class: class, Workspace: newID(proto.WorkspacePrefix),
		Layer: newID(proto.LayerPrefix), Limits: testLimits}
	for b.Loop() {
		id := newID(proto.ContainerPrefix)
		if err := r.Start(b.Context(), id, spec); err != nil {
			b.Fatal(err)
		}
		if conn, err := r.Dial(b.Context(), id); err != nil {
			b.Fatal(err)
		} else {
			conn.Close()
		}
		b.StopTimer()
		if err := r.Stop(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

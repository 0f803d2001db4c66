package containerd

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"berth/proto"
	"berth/session/sessiontest"
)

// TestConformance runs the suite that every Runtime passes, on both classes, with the real guest and
// the base image.
func TestConformance(t *testing.T) {
	bin, archive := os.Getenv("BERTH_BIN"), os.Getenv("BERTH_BASE_IMAGE")
	if bin == "" || archive == "" {
		t.Fatal("BERTH_BIN and BERTH_BASE_IMAGE are not set; run these tests with `make test`")
	}
	dir := t.TempDir()
	rt, err := Open(context.Background(), Config{Dir: dir, BinDir: bin, Guest: filepath.Join(bin, "berth-guest"), PoolBytes: 4 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := rt.Images().Import(context.Background(), "base", f, nil); err != nil {
		t.Fatal(err)
	}
	for _, class := range []proto.RuntimeClass{proto.ClassRunc, proto.ClassGVisor} {
		t.Run(string(class), func(t *testing.T) { sessiontest.Conform(t, rt, rt.Images(), class) })
	}
}

package containerd

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// openReal opens a Runtime with the real guest, the base image and a warm pool, as the daemon does.
func openReal(t *testing.T) *Runtime {
	t.Helper()
	bin, archive := os.Getenv("BERTH_BIN"), os.Getenv("BERTH_BASE_IMAGE")
	if bin == "" || archive == "" {
		t.Fatal("BERTH_BIN and BERTH_BASE_IMAGE are not set; run these tests with `make test`")
	}
	cfg := testConfig(t.TempDir())
	cfg.BinDir, cfg.Guest, cfg.PoolBytes, cfg.Handshake = bin, filepath.Join(bin, "berth-guest"), 4<<30,
		session.Handshake
	cfg.Warm = Warm{Min: 2, Max: 8, Image: "base", Limits: session.DefaultLimits}
	rt := openWith(t, cfg)
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := rt.Images().Import(context.Background(), "base", f, nil); err != nil {
		t.Fatal(err)
	}
	rt.KeepWarm()
	return rt
}

// TestConformance runs the suite that every Runtime must pass, on both classes.
func TestConformance(t *testing.T) {
	rt := openReal(t)
	classes(t, func(t *testing.T, class proto.RuntimeClass) { sessiontest.Conform(t, rt, rt.Images(), class) })
}

package doctor

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"berth/proto"
	"berth/runtime/containerd"
	"berth/test/needs"
)

func TestTry(t *testing.T) {
	needs.Containers(t)
	cfg := containerd.Config{BinDir: os.Getenv("BERTH_BIN")}
	if cfg.BinDir == "" {
		t.Fatal("BERTH_BIN is not set; run these tests with `make test`")
	}
	called := 0
	cfg.Handshake = func(_ context.Context, c net.Conn) (net.Conn, error) {
		if called++; called == 2 {
			return nil, errors.Join(errors.New("no"), c.Close())
		}
		return c, nil
	}
	done, err := Try(context.Background(), cfg, proto.ClassRunc, proto.ClassGVisor)
	if err != nil || len(done) != 2 || done[0].Err != nil || done[1].Err == nil {
		t.Fatalf("%+v %v", done, err)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "berth-trial-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

package diskpool

import (
	"fmt"
	"os"
	"testing"

	"berth/runtime/mountns"
	"berth/test/needs"
)

// The tests use the real btrfs, loop devices and kernel. They need root and btrfs-progs, and fail without them.
func TestMain(m *testing.M) {
	needs.Main("mount file systems")
	if err := mountns.Private(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

package diskpool

import (
	"fmt"
	"os"
	"testing"

	"berth/runtime/mountns"
)

// The tests use the real btrfs, loop devices and kernel. They need root and btrfs-progs, and fail where that is missing.
func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests mount file systems and need root")
		os.Exit(1)
	}
	if err := mountns.Private(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

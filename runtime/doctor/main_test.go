package doctor

import (
	"fmt"
	"os"
	"testing"

	"berth/runtime/mountns"
)

// The tests examine this machine and start containers. They need root and BERTH_BIN.
func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests start containers and need root")
		os.Exit(1)
	}
	if err := mountns.Private(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

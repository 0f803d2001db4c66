package mountns

import (
	"fmt"
	"os"
	"testing"

	"berth/test/needs"
)

// The tests make mount namespaces. They need root.
func TestMain(m *testing.M) {
	needs.Main("mount file systems")
	if err := Private(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

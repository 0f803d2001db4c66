package mountns

import (
	"fmt"
	"os"
	"testing"
)

// The tests make mount namespaces. They need root.
func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests mount file systems and need root")
		os.Exit(1)
	}
	if err := Private(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

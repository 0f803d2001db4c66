package lease

import (
	"os"
	"strings"
)

// HostBoot returns the boot ID of the host, or "" if the kernel does not tell.
func HostBoot() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

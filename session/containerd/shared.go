package containerd

import (
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
)

// sharedCounts bound what the host's root and all sandboxes together may have: a sandbox's user namespace is made by
// root, and what is counted in it is counted against root too. One sandbox could take all there is, the daemon's and
// the host's part with it.
var sharedCounts = []string{"/proc/sys/fs/inotify/max_user_instances", "/proc/sys/fs/inotify/max_user_watches"}

// raiseShared lifts these bounds to where nobody meets them. What a sandbox takes is memory that its own limit counts, which
// bounds it better. They are never lowered again; without the right to raise them, the operator is told.
func raiseShared(log *slog.Logger) {
	most := strconv.Itoa(math.MaxInt32)
	for _, path := range sharedCounts {
		now, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(now)) == most {
			continue
		}
		if err := os.WriteFile(path, []byte(most), 0); err != nil {
			log.Warn("one container can use up what the kernel counts for all of them; raise it", "file", path, "err", err)
		}
	}
}

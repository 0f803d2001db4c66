package attack

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
)

// maxGrowth is by how many bytes an attack may make the daemon grow. Honest work of the same kind leaves less
// garbage.
const maxGrowth = 256 << 20

// residentBytes returns the daemon's resident memory from its metrics. The host's kernel counts it, so it includes
// memory that Go keeps for later use.
func (t *Target) residentBytes(ctx context.Context) (int64, error) {
	a, err := t.ask(ctx, "GET", "/metrics", nil, nil)
	if err != nil {
		return 0, err
	}
	// The metrics are text, one value per line.
	for lines := bufio.NewScanner(bytes.NewReader(a.body)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "process_resident_memory_bytes "); ok {
			n, err := strconv.ParseFloat(value, 64)
			return int64(n), err
		}
	}
	return 0, errors.New("the daemon's metrics do not tell its memory")
}

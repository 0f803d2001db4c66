package attack

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
)

// maxGrowth is by how much an attack may make the daemon grow, in bytes: what its garbage collector leaves for a while
// after honest work of the same kind is less.
const maxGrowth = 256 << 20

// residentBytes is the daemon's resident memory, as its metrics tell.
// The resident memory is what the host's kernel counts, so that memory which Go holds back for later
// counts as well.
func (t *Target) residentBytes(ctx context.Context) (int64, error) {
	a, err := t.ask(ctx, "GET", "/metrics", nil, nil)
	if err != nil {
		return 0, err
	}
	// The metrics are text, one value in a line.
	for lines := bufio.NewScanner(bytes.NewReader(a.body)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "process_resident_memory_bytes "); ok {
			n, err := strconv.ParseFloat(value, 64)
			return int64(n), err
		}
	}
	return 0, errors.New("the daemon's metrics do not tell its memory")
}

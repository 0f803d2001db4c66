package clients

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
)

// Report makes a subtest of each line of a program's output, "PASS name" or "FAIL name why". There must be at least that
// many.
func Report(t *testing.T, out []byte, least int) {
	t.Helper()
	count := 0
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); count++ {
		verdict, rest, _ := strings.Cut(sc.Text(), " ")
		what, why, _ := strings.Cut(rest, " ")
		t.Run(what, func(t *testing.T) {
			if verdict != "PASS" {
				t.Errorf("%s: %s", verdict, why)
			}
		})
	}
	if count < least {
		t.Errorf("it reported on %d things", count)
	}
}

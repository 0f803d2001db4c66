package proto

import (
	"regexp"
	"strings"
	"testing"
)

// The spelling of an ID for host names is a label of DNS, and gives the ID back whatever case it comes in.
func TestHostID(t *testing.T) {
	label := regexp.MustCompile(`^[a-z0-9]{27}$`)
	ids := []string{ContainerPrefix + strings.Repeat("0", idDigits), ContainerPrefix + strings.Repeat("z", idDigits)}
	for range 1000 {
		ids = append(ids, NewID(ContainerPrefix))
	}
	seen := map[string]bool{}
	for _, id := range ids {
		host := HostID(id)
		if !label.MatchString(host) || seen[host] {
			t.Errorf("%s is spelled %q", id, host)
		}
		seen[host] = true
		if back, upper := IDOfHost(host), IDOfHost(strings.ToUpper(host)); back != id || upper != id {
			t.Errorf("%s, spelled %s, comes back as %s and %s", id, host, back, upper)
		}
	}
	for _, id := range []string{"", "exec_" + ids[2][len(ContainerPrefix):], ids[2] + "0"} {
		if host := HostID(id); host != "" {
			t.Errorf("%q is spelled %q", id, host)
		}
	}
	good := HostID(ids[2])
	for _, host := range []string{"", "i", good[1:], good + "0", "j" + good[1:], "i-" + good[2:],
		"i" + strings.Repeat("z", hostDigits)} {
		if id := IDOfHost(host); id != "" {
			t.Errorf("%q is the ID %q", host, id)
		}
	}
}

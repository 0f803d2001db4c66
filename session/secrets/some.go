package secrets

import "strconv"

// SomeOf returns as many of the paths as fit into n bytes of JSON, followed by the number of paths left out. It is
// never nil.
func SomeOf(paths []string, n int) []string {
	some := []string{}
	for i, p := range paths {
		if n -= len(p) + len(`"",`); n < 0 {
			return append(some, "… and "+strconv.Itoa(len(paths)-i)+" more")
		}
		some = append(some, p)
	}
	return some
}

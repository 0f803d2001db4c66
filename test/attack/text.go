package attack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// counts returns how often each thing was seen, the most frequent first. Equal counts are in alphabetical order, so
// that two reports of the same outcome have the same text.
func counts(seen map[string]int) string {
	keys := slices.SortedFunc(maps.Keys(seen), func(a, b string) int {
		if seen[a] != seen[b] {
			return seen[b] - seen[a]
		}
		return strings.Compare(a, b)
	})
	var words []string
	for _, k := range keys {
		words = append(words, fmt.Sprintf("%s (%d)", k, seen[k]))
	}
	return strings.Join(words, ", ")
}

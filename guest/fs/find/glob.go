package find

import (
	"path"
	"strings"
)

// globs are patterns of paths of which one must match.
type globs []glob

// A glob is one pattern.
type glob struct {
	parts []string // of a pattern with slashes, else one
	whole bool     // it is compared with the whole path
	fold  bool     // without regard to case; parts are in lower case
}

func newGlobs(texts []string, fold bool) (list globs) {
	for _, text := range texts {
		g := glob{whole: strings.Contains(text, "/"), fold: fold}
		if fold {
			text = strings.ToLower(text)
		}
		g.parts = strings.Split(strings.Trim(text, "/"), "/")
		list = append(list, g)
	}
	return list
}

// match reports whether one of the globs matches an entry.
func (gs globs) match(rel, name string) bool {
	for i := range gs {
		g := &gs[i]
		text := name
		if g.whole {
			text = rel
		}
		if g.fold {
			text = strings.ToLower(text)
		}
		if !g.whole {
			if g.parts[0] == "**" || matchPart(g.parts[0], text) {
				return true
			}
		} else if matchParts(g.parts, strings.Split(text, "/")) {
			return true
		}
	}
	return false
}

// matchPart compares one part. Patterns were checked before.
func matchPart(pattern, text string) bool {
	ok, err := path.Match(pattern, text)
	return ok && err == nil
}

// matchParts compares a path with a pattern part by part. ** stands for any number of parts. When a part does not
// match, only the latest ** takes one part more, as * does in a name; so the work grows with the product of the
// lengths and no faster.
func matchParts(pattern, parts []string) bool {
	p, t := 0, 0
	star, from := -1, 0
	for t < len(parts) {
		switch {
		case p < len(pattern) && pattern[p] == "**":
			star, from = p, t
			p++
		case p < len(pattern) && matchPart(pattern[p], parts[t]):
			p++
			t++
		case star >= 0:
			from++
			p, t = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}

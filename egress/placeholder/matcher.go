package placeholder

import "slices"

// A word is a text to hide and its replacement.
type word struct {
	find, with []byte
	secret     int    // number of the container's secret; -1 for a word of the current request alone
	next       uint16 // the next word that ends at the same place and is not longer; see node.word
}

// A matcher finds its words in a text that arrives in pieces, in time that does not depend on their number (Aho and
// Corasick, 1975). It is a tree of the words' prefixes. Words are few and long, so most nodes have one child: the
// next node, which is not stored. Each byte of a word takes eight bytes. A matcher is immutable.
type matcher struct {
	words []word
	nodes []node // the first is the root
	roots [256]int32
	forks map[fork]int32 // children that are not the next node, except the root's
	runs  []run
}

// A node is a prefix of a word.
type node struct {
	fail   int32  // the longest suffix that is a prefix as well; -1 while unknown
	word   uint16 // the longest word that ends here, counted from 1; 0 is none
	label  byte   // its last byte
	onward onward
}

// An onward says where a node's children are.
type onward uint8

const (
	toNext  onward = 1 << iota // one is the next node
	toForks                    // some are among the forks
)

type fork struct {
	from int32
	by   byte
}

// A run is a chain of nodes; each is the child of the one before.
type run struct{ first, depth int32 }

func newMatcher(words []word) *matcher {
	total := 1
	for _, w := range words {
		total += len(w.find)
	}
	f := &matcher{words: words, nodes: make([]node, 1, total), forks: map[fork]int32{}}
	for i := range words {
		f.insert(i)
	}
	f.link()
	return f
}

func (f *matcher) insert(i int) {
	at := int32(0)
	for depth, c := range f.words[i].find {
		next := f.child(at, c)
		if next == 0 {
			next = f.grow(at, int32(depth)+1, c)
		}
		at = next
	}
	last := &f.nodes[at].word
	for *last != 0 { // the same text, of another secret
		last = &f.words[*last-1].next
	}
	*last = uint16(i) + 1
}

// grow adds a child to a node.
func (f *matcher) grow(from, depth int32, c byte) int32 {
	fresh := int32(len(f.nodes))
	f.nodes = append(f.nodes, node{fail: -1, label: c})
	if from != 0 && from == fresh-1 {
		f.nodes[from].onward |= toNext
		return fresh
	}
	f.runs = append(f.runs, run{fresh, depth})
	if from == 0 {
		f.roots[c] = fresh
		return fresh
	}
	f.nodes[from].onward |= toForks
	f.forks[fork{from, c}] = fresh
	return fresh
}

// link finds each node's fail link. Shallow nodes come first, because deeper ones need them.
func (f *matcher) link() {
	at := make([]int32, len(f.words))
	for depth, more := 0, true; more; depth++ {
		more = false
		for i, w := range f.words {
			if depth >= len(w.find) {
				continue
			}
			more = true
			from := at[i]
			at[i] = f.child(from, w.find[depth])
			f.linkOne(from, &f.nodes[at[i]])
		}
	}
}

func (f *matcher) linkOne(from int32, n *node) {
	if n.fail >= 0 {
		return // another word reached it
	}
	n.fail = 0
	if from != 0 {
		n.fail = f.step(f.nodes[from].fail, n.label)
	}
	last := &n.word
	for *last != 0 {
		last = &f.words[*last-1].next
	}
	*last = f.nodes[n.fail].word
}

// child returns a node's child for a byte; 0 is none.
func (f *matcher) child(at int32, c byte) int32 {
	if at == 0 {
		return f.roots[c]
	}
	onward := f.nodes[at].onward
	if onward&toNext != 0 && f.nodes[at+1].label == c {
		return at + 1
	}
	if onward&toForks != 0 {
		return f.forks[fork{at, c}]
	}
	return 0
}

// step returns the longest prefix that the text ends with after byte c, given the prefix at which it ended before.
func (f *matcher) step(at int32, c byte) int32 {
	for {
		next := f.child(at, c)
		if next != 0 || at == 0 {
			return next
		}
		at = f.nodes[at].fail
	}
}

// open returns the longest prefix of at most so many bytes that the text ends with and that may become a word.
func (f *matcher) open(at int32, most int) int32 {
	for at != 0 && (f.nodes[at].onward == 0 || f.depth(at) > most) {
		at = f.nodes[at].fail
	}
	return at
}

// depth returns the length of a prefix.
func (f *matcher) depth(at int32) int {
	if at == 0 {
		return 0
	}
	i, exact := slices.BinarySearchFunc(f.runs, at, func(r run, at int32) int { return int(r.first - at) })
	if !exact {
		i--
	}
	return int(at - f.runs[i].first + f.runs[i].depth)
}

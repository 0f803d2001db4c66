package egress

import "slices"

// A word is a text that is hidden, and what stands in its place.
type word struct {
	find, with []byte
	secret     int    // whose it is, by its number among the container's; -1 is of the request at hand alone
	next       uint16 // the next one that ends wherever this does, and is no longer; see node.word
}

// A finder finds all its words in a text that comes piece by piece, in time that does not depend on how many there
// are (Aho and Corasick, 1975). It is a tree of the beginnings of words. Words are few and long, so most nodes have
// one child: it is the next node, and nothing is kept about it. That makes eight bytes for each of a word's. It does
// not change once it is made.
type finder struct {
	words []word
	nodes []node // the first is the root
	roots [256]int32
	forks map[fork]int32 // children that are not the next node, but for the root's
	runs  []run
}

// A node is the beginning of a word.
type node struct {
	fail   int32  // the longest end of it that is a beginning, too; -1 while that is not known
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

// A run is nodes each of which is the child of the one before.
type run struct{ first, depth int32 }

func newFinder(words []word) *finder {
	total := 1
	for _, w := range words {
		total += len(w.find)
	}
	f := &finder{words: words, nodes: make([]node, 1, total), forks: map[fork]int32{}}
	for i := range words {
		f.insert(i)
	}
	f.link()
	return f
}

func (f *finder) insert(i int) {
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
func (f *finder) grow(from, depth int32, c byte) int32 {
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

// link finds where each node fails to: the shallow ones first, which the deeper need.
func (f *finder) link() {
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

func (f *finder) linkOne(from int32, n *node) {
	if n.fail >= 0 {
		return // by another word
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

// child is a node's child by a byte; 0 is none.
func (f *finder) child(at int32, c byte) int32 {
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

// step is the longest beginning of a word that a text ends with, once a byte has come to a text that ended with
// another.
func (f *finder) step(at int32, c byte) int32 {
	for {
		next := f.child(at, c)
		if next != 0 || at == 0 {
			return next
		}
		at = f.nodes[at].fail
	}
}

// open is the longest beginning, of at most so many bytes, that a text ends with and that may be more of a word yet.
func (f *finder) open(at int32, most int) int32 {
	for at != 0 && (f.nodes[at].onward == 0 || f.depth(at) > most) {
		at = f.nodes[at].fail
	}
	return at
}

// depth is how long a beginning is.
func (f *finder) depth(at int32) int {
	if at == 0 {
		return 0
	}
	i, exact := slices.BinarySearchFunc(f.runs, at, func(r run, at int32) int { return int(r.first - at) })
	if !exact {
		i--
	}
	return int(at - f.runs[i].first + f.runs[i].depth)
}

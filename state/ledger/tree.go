package ledger

import "math/rand/v2"

// A node is a sorted map from keys to values that is never changed: put makes another one, which shares with the
// first all but the path to what was put. So a reader has a snapshot without a lock, and an update that fails is
// undone by forgetting its result. It is a treap: a search tree by key, and a heap by a random rank, which keeps it
// shallow. A nil node is an empty map.
type node struct {
	key         string
	value       []byte // JSON; nil: the key was deleted
	rank        uint32
	left, right *node
}

// put is the map with key at value.
func (n *node) put(key string, value []byte) *node {
	if n == nil {
		return &node{key: key, value: value, rank: rand.Uint32()}
	}
	c := *n
	switch {
	case key == n.key:
		c.value = value
	case key < n.key:
		l := n.left.put(key, value)
		if c.left = l; l.rank > c.rank {
			c.left, l.right = l.right, &c
			return l
		}
	default:
		r := n.right.put(key, value)
		if c.right = r; r.rank > c.rank {
			c.right, r.left = r.left, &c
			return r
		}
	}
	return &c
}

// get finds key; nil if it is not there.
func (n *node) get(key string) *node {
	for n != nil && n.key != key {
		if key < n.key {
			n = n.left
		} else {
			n = n.right
		}
	}
	return n
}

// A walk goes through a map in one direction.
type walk struct {
	back bool
	path []*node // those still to come, the next one last
}

// from begins at the first key that is not less than key, or, backwards, at the last that is less.
func (n *node) from(key string, back bool) *walk {
	w := &walk{back: back}
	for n != nil {
		if (n.key < key) == back {
			w.path = append(w.path, n)
		}
		if n.key < key {
			n = n.right
		} else {
			n = n.left
		}
	}
	return w
}

// at is where the walk is; nil at its end.
func (w *walk) at() *node {
	if len(w.path) == 0 {
		return nil
	}
	return w.path[len(w.path)-1]
}

// next goes on by one.
func (w *walk) next() {
	last := len(w.path) - 1
	n := w.path[last]
	w.path = w.path[:last]
	if w.back {
		for n = n.left; n != nil; n = n.right {
			w.path = append(w.path, n)
		}
		return
	}
	for n = n.right; n != nil; n = n.left {
		w.path = append(w.path, n)
	}
}

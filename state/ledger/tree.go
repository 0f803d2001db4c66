package ledger

import "math/rand/v2"

// A node is an immutable sorted map from keys to values. put returns a new map that shares all but the path to the
// changed key. A reader thus has a snapshot without a lock, and dropping the result undoes a failed update. It is a
// treap: a search tree by key and a heap by random rank, which keeps it shallow. A nil node is an empty map.
type node struct {
	key         string
	value       []byte // JSON; nil if the key was deleted
	rank        uint32
	left, right *node
}

// put returns the map with key set to value.
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

// get finds key. It returns nil if the key is missing.
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
	path []*node // nodes still to visit, the next one last
}

// from starts at the first key that is not less than key or, backwards, at the last key that is less.
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

// at is the current node, nil at the end.
func (w *walk) at() *node {
	if len(w.path) == 0 {
		return nil
	}
	return w.path[len(w.path)-1]
}

// next advances by one.
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

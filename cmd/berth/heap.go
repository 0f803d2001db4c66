package main

// heapFloor is how many bytes the daemon's heap seems to have beside what it has. Go collects garbage when the heap
// has doubled; a daemon with few containers has some MiB, and would collect once or twice while it makes 200 more.
// The memory is asked for and never touched, so the kernel gives none; what it costs is up to as much of garbage that
// stays until the next collection. See docs/decisions/0048.
const heapFloor = 32 << 20

// raiseHeap gives the heap its floor, for as long as what it returns is alive.
func raiseHeap() []byte { return make([]byte, heapFloor) }

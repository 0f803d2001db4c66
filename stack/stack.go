// Package stack gives goroutines the stack that they are about to need.
//
// A goroutine begins with 2 KiB. One that soon goes deep, as all that encode JSON or walk directories do, is stopped
// three times on the way down and has its stack copied to one of twice the size: a twelfth of all that the daemon
// executes for a small command.
package stack

// Reserve makes room for 8 KiB at once, which is what the end of a command takes. It is for the first line of a
// goroutine, or of each piece of work of one that lives long: the garbage collector halves a stack that is mostly
// empty.
func Reserve() { reserve(false) }

// reserve has a large frame, and it is the frame that makes the room: the array is never there, or it would have to be cleared.
//
//go:noinline
func reserve(use bool) {
	if use {
		var room [8 << 10]byte
		touch(&room)
	}
}

//go:noinline
func touch(room *[8 << 10]byte) { room[0]++ }

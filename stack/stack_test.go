package stack

import (
	"testing"
	"unsafe"
)

// deep uses some 4 KiB of stack, in steps.
//
//go:noinline
func deep(n int) int {
	var frame [256]byte
	frame[n] = byte(n)
	if n == 0 {
		return 0
	}
	return deep(n-1) + int(frame[n])
}

// moves reports whether a goroutine's stack is copied while it goes deep: what is on it is somewhere else then.
func moves(begin func()) bool {
	moved := make(chan bool)
	go func() {
		begin()
		var here byte
		before := uintptr(unsafe.Pointer(&here))
		deep(16)
		moved <- uintptr(unsafe.Pointer(&here)) != before
	}()
	return <-moved
}

func TestReserve(t *testing.T) {
	if moves(Reserve) {
		t.Error("with room from the start the stack is copied all the same")
	}
	if !moves(func() {}) {
		t.Error("the stack is not copied without it, so there is nothing to see here")
	}
}

// BenchmarkReserve is a goroutine that goes deep, with and without room for it from the start.
func BenchmarkReserve(b *testing.B) {
	for name, begin := range map[string]func(){"grown": func() {}, "reserved": Reserve} {
		b.Run(name, func(b *testing.B) {
			done := make(chan int)
			for b.Loop() {
				go func() {
					begin()
					done <- deep(16)
				}()
				<-done
			}
		})
	}
}

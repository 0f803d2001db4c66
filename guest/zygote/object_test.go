package zygote

import (
	"debug/elf"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"berth/test/guesttest"
)

// TestZygoteObject checks that no process can write to the object, and that no memory of it is both writable and
// executable.
func TestZygoteObject(t *testing.T) {
	if !Works {
		t.Skip("zygotes are for another architecture")
	}
	fd, err := newObject()
	guesttest.Must(t, err)
	file := os.NewFile(uintptr(fd), "object")
	defer file.Close()
	if _, err := unix.Pwrite(fd, []byte{1}, objectCode); err != unix.EPERM {
		t.Errorf("writing into it: %v", err)
	}
	f, err := elf.NewFile(file)
	guesttest.Must(t, err)
	if f.Type != elf.ET_DYN || len(f.Progs) != 4 {
		t.Fatalf("it is %v with %d parts", f.Type, len(f.Progs))
	}
	for _, p := range f.Progs {
		if p.Flags&(elf.PF_W|elf.PF_X) == elf.PF_W|elf.PF_X {
			t.Errorf("%v is %v", p.Type, p.Flags)
		}
	}
}

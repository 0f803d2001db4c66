package proto

import (
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// An ID is its number in base 62, as package big would write it, and says which kind it is of.
func TestID(t *testing.T) {
	numbers := [][16]byte{{}, {15: 61}, {15: 62}, {7: 1}, {8: 1}, {0: 1}}
	for range 10_000 {
		var n [16]byte
		for i := range n {
			n[i] = byte(rand.Uint32())
		}
		numbers = append(numbers, n)
	}
	var most [16]byte
	for i := range most {
		most[i] = 0xff
	}
	for _, n := range append(numbers, most) {
		id := ID(ContainerPrefix, n)
		left, digit := new(big.Int).SetBytes(n[:]), new(big.Int)
		for i := len(id) - 1; i >= len(ContainerPrefix); i-- {
			if left.DivMod(left, big.NewInt(62), digit); id[i] != base62[digit.Int64()] {
				t.Fatalf("%x became %s", n, id)
			}
		}
		if left.Sign() != 0 || !ValidID(ContainerPrefix, id) || ValidID(JobPrefix, id) {
			t.Fatalf("%x became %s", n, id)
		}
	}
}

// A new ID has the form, length and order of every ID so far, and its last 16 bits are the machine's number.
func TestNewID(t *testing.T) {
	for _, machine := range []uint16{0, 1, 0x1234, 0xffff} {
		last := ""
		for range 10_000 {
			before := time.Now().UnixMilli()
			id := newID(ExecPrefix, machine)
			if !ValidID(ExecPrefix, id) || len(id) != len(ExecPrefix)+idDigits {
				t.Fatalf("machine %d made %q", machine, id)
			}
			if id <= last {
				t.Fatalf("machine %d made %q after %q", machine, id, last)
			}
			last = id
			bits := number(id[len(ExecPrefix):])
			if got := binary.BigEndian.Uint16(bits[14:]); got != machine {
				t.Fatalf("%q names machine %d, not %d", id, got, machine)
			}
			made := int64(binary.BigEndian.Uint64(bits[:8]) >> 16)
			// more than 4 a microsecond run ahead of the clock
			if after := time.Now().UnixMilli() + 20; made < before || made > after {
				t.Fatalf("%q was made at %d, not from %d to %d", id, made, before, after)
			}
		}
	}
	for _, prefix := range []string{ContainerPrefix, WorkspacePrefix, FilePrefix, JobPrefix, ExecPrefix,
		RequestPrefix, KeyPrefix} {
		id := NewID(prefix)
		if !ValidID(prefix, id) {
			t.Errorf("NewID made %q", id)
		}
		if bits := number(id[len(prefix):]); bits[14] != 0 || bits[15] != 0 {
			t.Errorf("%q does not name machine 0", id)
		}
	}
}

// number reads base62 digits.
func number(digits string) (bits [16]byte) {
	n := new(big.Int)
	for _, c := range []byte(digits) {
		n.Add(n.Mul(n, big.NewInt(62)), big.NewInt(int64(strings.IndexByte(base62, c))))
	}
	n.FillBytes(bits[:])
	return bits
}

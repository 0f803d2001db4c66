package proto

import (
	"math/big"
	"math/rand/v2"
	"testing"
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

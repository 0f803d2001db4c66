package proto

import (
	"math/big"
	"strings"
)

// The kinds of ID. The part before the first underscore names the kind, the rest
// is opaque and base62.
const (
	ContainerPrefix = "container_"
	WorkspacePrefix = "workspace_"
	FilePrefix      = "file_"
	JobPrefix       = "job_"
	ExecPrefix      = "exec_"
	RequestPrefix   = "req_"
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// idDigits is the length of 128 bits in base62.
const idDigits = 22

// ID writes 128 bits as prefix plus 22 base62 digits. IDs made from time-ordered
// bits (UUID version 7) sort by the time they were made.
func ID(prefix string, bits [16]byte) string {
	var digits [idDigits]byte
	n, base, rem := new(big.Int).SetBytes(bits[:]), big.NewInt(62), new(big.Int)
	for i := idDigits - 1; i >= 0; i-- {
		n.DivMod(n, base, rem)
		digits[i] = base62[rem.Int64()]
	}
	return prefix + string(digits[:])
}

// ValidID reports whether id has the form that ID makes for this prefix. What is not
// valid cannot exist, so it is never looked up and never becomes part of a path.
func ValidID(prefix, id string) bool {
	rest, ok := strings.CutPrefix(id, prefix)
	if !ok || len(rest) != idDigits {
		return false
	}
	for i := 0; i < len(rest); i++ {
		if !isAlnum(rest[i]) {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

package proto

import (
	"math/big"
	"strings"
)

// hostDigits is the length in base 36 of what 22 base62 digits can hold.
const hostDigits = 26

// HostID spells the ID of a container for host names: "i" and 26 digits of base 36. A host name loses its case and has
// no underscore, so the ID itself cannot stand there. It returns "" for what is no ID of a container.
func HostID(id string) string {
	if !ValidID(ContainerPrefix, id) {
		return ""
	}
	number := new(big.Int)
	for _, digit := range []byte(id[len(ContainerPrefix):]) {
		number.Mul(number, big.NewInt(int64(len(base62))))
		number.Add(number, big.NewInt(int64(strings.IndexByte(base62, digit))))
	}
	digits := number.Text(36)
	return "i" + strings.Repeat("0", hostDigits-len(digits)) + digits
}

// IDOfHost returns the ID of the container that HostID spelled so, in any case of letters, or "".
func IDOfHost(label string) string {
	label = strings.ToLower(label)
	if len(label) != 1+hostDigits || label[0] != 'i' {
		return ""
	}
	for _, c := range []byte(label) {
		if !isAlnum(c) {
			return ""
		}
	}
	number, _ := new(big.Int).SetString(label[1:], 36)
	digits := make([]byte, idDigits)
	digit := new(big.Int)
	for i := idDigits - 1; i >= 0; i-- {
		number.DivMod(number, big.NewInt(int64(len(base62))), digit)
		digits[i] = base62[digit.Int64()]
	}
	if number.Sign() != 0 {
		return ""
	}
	return ContainerPrefix + string(digits)
}

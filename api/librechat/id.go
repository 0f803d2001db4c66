package librechat

import (
	"encoding/base64"
	"encoding/binary"
	"math/big"
	"strings"

	"berth/proto"
)

// spelledDigits is the length of IDs as clients take them, in digits of base64url. The application refuses others.
const spelledDigits = 21

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// spell returns an ID as clients take it. Our IDs are UUIDs of version 7, in which 6 of 128 bits say so; without these,
// they fit. An ID that is no such UUID has no spelling: it returns "".
func spell(prefix, id string) string {
	if !proto.ValidID(prefix, id) {
		return ""
	}
	number := new(big.Int)
	for _, digit := range []byte(id[len(prefix):]) {
		number.Mul(number, big.NewInt(int64(len(base62))))
		number.Add(number, big.NewInt(int64(strings.IndexByte(base62, digit))))
	}
	if number.BitLen() > 128 {
		return ""
	}
	var bits [16]byte
	number.FillBytes(bits[:])
	high, low := binary.BigEndian.Uint64(bits[:8]), binary.BigEndian.Uint64(bits[8:])
	if high>>12&0xf != 7 || low>>62 != 2 {
		return ""
	}
	packed := new(big.Int).SetUint64(high>>16<<12 | high&0xfff)
	packed.Lsh(packed, 62)
	packed.Or(packed, new(big.Int).SetUint64(low&(1<<62-1)))
	var out [16]byte // of which the last 126 bits become 21 digits
	packed.Lsh(packed, 2)
	packed.FillBytes(out[:])
	return base64.RawURLEncoding.EncodeToString(out[:])[:spelledDigits]
}

// unspell returns the ID that spell spelled so, or "".
func unspell(prefix, spelled string) string {
	if len(spelled) != spelledDigits {
		return ""
	}
	bits, err := base64.RawURLEncoding.DecodeString(spelled + "A")
	if err != nil {
		return ""
	}
	packed := new(big.Int).SetBytes(bits)
	packed.Rsh(packed, 2)
	low := new(big.Int).And(packed, new(big.Int).SetUint64(1<<62-1)).Uint64()
	top := packed.Rsh(packed, 62)
	if top.BitLen() > 60 {
		return ""
	}
	high := top.Uint64()
	var number [16]byte
	binary.BigEndian.PutUint64(number[:8], high>>12<<16|7<<12|high&0xfff)
	binary.BigEndian.PutUint64(number[8:], 2<<62|low)
	return proto.ID(prefix, number)
}

// spellSession spells the ID of a container.
func spellSession(container string) string { return spell(proto.ContainerPrefix, container) }

// spellFile spells the ID of a stored file.
func spellFile(file string) string { return spell(proto.FilePrefix, file) }

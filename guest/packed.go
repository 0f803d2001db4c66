package guest

import (
	"encoding/binary"
	"strings"
)

// Most requests are for plain commands: those whose output goes through descriptors. What is said of them is packed
// rather than JSON: it is read in a sixth of the time (BenchmarkCommand), while somebody waits, and without what
// package json keeps of each type. Numbers are varints, strings have their length before them, lists their count.

// packing is the version of what need not be JSON: 1 is of plain commands, 2 of frameAsk too. A guest says in Hello up to which one it understands, and older ones none.
const packing = 2

// appendCommand packs a plain command that n descriptors go with.
func appendCommand(b []byte, cmd *Command, n int) []byte {
	b = binary.AppendVarint(b, int64(n))
	b = appendFlag(b, cmd.Stdin)
	for _, s := range []string{cmd.ID, cmd.Text, cmd.Dir, cmd.Output, cmd.Job, cmd.User} {
		b = appendString(b, s)
	}
	for _, list := range [][]string{cmd.Argv, cmd.Env, cmd.Lists} {
		b = binary.AppendVarint(b, int64(len(list)))
		for _, s := range list {
			b = appendString(b, s)
		}
	}
	return b
}

// readCommand is the reverse of appendCommand.
func readCommand(b []byte) (cmd *Command, n int, err error) {
	u := cursor{rest: string(b)} // once for all the strings in it
	cmd = &Command{}
	n, cmd.Stdin = int(u.number()), u.flag()
	for _, s := range []*string{&cmd.ID, &cmd.Text, &cmd.Dir, &cmd.Output, &cmd.Job, &cmd.User} {
		*s = u.text()
	}
	for _, list := range []*[]string{&cmd.Argv, &cmd.Env, &cmd.Lists} {
		*list = u.list()
	}
	for _, s := range []*string{&cmd.ID, &cmd.Output, &cmd.Job} {
		*s = strings.Clone(*s) // these stay as long as the command, and all else must not stay with them
	}
	return cmd, n, u.end()
}

// appendDone packs the end of a plain command.
func appendDone(b []byte, d *done) []byte {
	for _, n := range d.numbers() {
		b = binary.AppendVarint(b, n)
	}
	for _, set := range d.flags() {
		b = appendFlag(b, *set)
	}
	b = appendString(b, d.Seen)
	return b
}

// readDone is the reverse of appendDone.
func readDone(b []byte, d *done) error {
	u := cursor{rest: string(b)}
	var n [7]int64
	for i := range n {
		n[i] = u.number()
	}
	d.setNumbers(n)
	for _, set := range d.flags() {
		*set = u.flag()
	}
	d.Seen = u.text()
	return u.end()
}

func appendFlag(b []byte, set bool) []byte {
	if set {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendVarint(b, int64(len(s))), s...)
}

// A cursor reads what was packed. Once something does not fit, all that follows is empty.
type cursor struct {
	rest string
	bad  bool
}

func (u *cursor) number() int64 {
	var head [binary.MaxVarintLen64]byte
	n, size := binary.Varint(head[:copy(head[:], u.rest)])
	if size <= 0 {
		u.fail()
		return 0
	}
	u.rest = u.rest[size:]
	return n
}

func (u *cursor) flag() bool {
	n := u.take(1)
	u.bad = u.bad || n[0] > 1
	return n[0] == 1
}

func (u *cursor) text() string { return u.take(u.number()) }

// take is so many bytes; where there are fewer it is one zero.
func (u *cursor) take(n int64) string {
	if !u.has(n) {
		return "\x00"
	}
	s := u.rest[:n]
	u.rest = u.rest[n:]
	return s
}

// list reads a list, whose strings have a byte each at least.
func (u *cursor) list() []string {
	n := u.number()
	if !u.has(n) || n == 0 {
		return nil
	}
	all := make([]string, n)
	for i := range all {
		all[i] = u.text()
	}
	return all
}

// has reports whether so many bytes are left, as they have to be.
func (u *cursor) has(n int64) bool {
	if n < 0 || n > int64(len(u.rest)) {
		u.fail()
		return false
	}
	return true
}

func (u *cursor) fail() { u.rest, u.bad = "", true }

// end is an error unless all was read and made sense.
func (u *cursor) end() error {
	if u.bad || u.rest != "" {
		return errFrame
	}
	return nil
}

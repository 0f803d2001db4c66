package audit

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"berth/proto"
)

// A line is taken only if its hash is that of its text, and what is taken is one line of JSON.
func FuzzLine(f *testing.F) {
	line, _, err := encode(proto.AuditEntry{Seq: 1, Prev: genesis, Time: proto.At(time.Unix(1, 0)), Act: "exec.end",
		Outcome: proto.AuditOK, Actor: "key_1"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line)
	f.Add(line[:len(line)-1])
	f.Add(bytes.Replace(line, []byte("key_1"), []byte("key_2"), 1))
	f.Add(line[len(line)-tailBytes:])
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if _, err := decode(line); err != nil {
			return
		}
		for i := range line[:len(line)-tailBytes] {
			bad := bytes.Clone(line)
			bad[i] ^= 1
			if _, err := decode(bad); err == nil {
				t.Fatalf("%q is taken with byte %d changed", line, i)
			}
		}
	})
}

// Whatever callers call things, an entry is one line of printable ASCII that reads back as it was, cut where it is
// too long.
func FuzzEntry(f *testing.F) {
	f.Add("container.create", "a name", "a note", "echo hello")
	f.Add("x", "line\nfeed", "\x1b[31mred\x1b[0m \u202ertl", `"},"hash":"0000`)
	f.Add("x", "\xff\xfe", "\u2028\x00\x7f\u0085", "\U0001f389 é")
	f.Fuzz(func(t *testing.T, act, item, note, command string) {
		in := proto.AuditEntry{Seq: 7, Prev: genesis, Time: proto.At(time.Unix(1, 0)), Act: act, Outcome: proto.AuditOK,
			Item: item, Note: note, Exec: &proto.AuditExec{Command: command}}
		line, hash, err := encode(in)
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range line {
			if (b < ' ' || b > '~') != (i == len(line)-1) {
				t.Fatalf("byte %d of %q", i, line)
			}
		}
		out, err := decode(line)
		if err != nil || out.Hash != hash {
			t.Fatalf("%q: %v", line, err)
		}
		again, _, err := encode(out)
		if err != nil || !bytes.Equal(again, line) {
			t.Fatalf("%q reads back as %q (%v)", line, again, err)
		}
		if len(item) <= maxWord && string([]rune(item)) == item && !reflect.DeepEqual(out.Item, item) {
			t.Fatalf("the item %q is read as %q", item, out.Item)
		}
	})
}

package output

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"berth/proto"
)

// filled returns a buffer of one letter. Its prefix is its offset.
func filled(s proto.Stream, at int64, letter byte) *Buffer {
	b := NewBuffer()
	copy(b.Data(), bytes.Repeat([]byte{letter}, BufferBytes))
	b.Prefix(fmt.Appendf(nil, "%v at %d:", s, at))
	return b
}

// A reader checks each piece and its prefix.
type rawReader struct {
	got  [2][]byte
	lent int // pieces that came in a buffer
	gaps int64
}

// read reads everything, in pieces of at most most bytes.
func (r *rawReader) read(t *testing.T, o *Output, c *Cursor, most int) {
	room := []byte("room")
	for {
		b, p, ok, err := o.Append(context.Background(), c, room, most)
		if err != nil {
			t.Error(err)
		}
		if !ok {
			return
		}
		r.gaps += max(0, p.Until-p.Offset)
		if p.Whole != nil {
			r.lent++
			if want := fmt.Appendf(nil, "%v at %d:", p.Stream, p.Offset); !bytes.HasPrefix(p.Whole, want) ||
				!bytes.Equal(p.Whole[len(want):], p.Data) {
				t.Errorf("piece %v at %d has the prefix %q", p.Stream, p.Offset, p.Whole[:len(p.Whole)-len(p.Data)])
			}
		} else if p.Until == 0 && !bytes.Equal(b, append([]byte("room"), p.Data...)) {
			t.Errorf("piece %v at %d does not follow the bytes that were in the slice", p.Stream, p.Offset)
		}
		r.got[p.Stream-1] = append(r.got[p.Stream-1], p.Data...)
	}
}

// TestBuffersReachTheirReaders checks that readers at any pace and offset get buffers without a copy, in order with
// copied output, and that a lossless writer waits for them.
func TestBuffersReachTheirReaders(t *testing.T) {
	o := New(2<<20, nil)
	o.Hold()
	var readers [3]rawReader
	var cursors [3]Cursor
	done := make(chan struct{})
	for i := range readers {
		o.Attach(&cursors[i])
		go func() {
			defer func() { o.Detach(&cursors[i]); done <- struct{}{} }()
			readers[i].read(t, o, &cursors[i], 1000<<(4*i))
		}()
	}
	var want [2][]byte
	kept := 0
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range 400 {
		s := proto.Stream(1 + rng.IntN(2))
		at := int64(len(want[s-1]))
		letter := byte('a' + i%26)
		if rng.IntN(3) == 0 {
			b := bytes.Repeat([]byte{letter}, 1+rng.IntN(40_000))
			want[s-1] = append(want[s-1], b...)
			o.WriteAt(s, at, b)
			continue
		}
		b := filled(s, at, letter)
		want[s-1] = append(want[s-1], b.Data()...)
		if ok, _ := o.WriteBuffer(s, at, b); ok {
			kept++
		} else {
			b.Free()
		}
	}
	o.Finish()
	for range readers {
		<-done
	}
	if kept < 200 {
		t.Errorf("%d buffers were kept of some 270", kept)
	}
	for i, r := range readers {
		if r.gaps > 0 || !bytes.Equal(r.got[0], want[0]) || !bytes.Equal(r.got[1], want[1]) {
			t.Errorf("reader %d has %d and %d bytes of %d and %d, and gaps of %d", i, len(r.got[0]), len(r.got[1]),
				len(want[0]), len(want[1]), r.gaps)
		}
		if r.lent != kept {
			t.Errorf("reader %d was lent %d buffers of %d", i, r.lent, kept)
		}
		if cursors[i].lent != nil {
			t.Errorf("reader %d still has a buffer", i)
		}
	}
	middle := readers[0].got[0][len(want[0])-BufferBytes/2-len(want[0])%7:]
	var late rawReader
	late.read(t, o, &Cursor{Stdout: int64(len(want[0]) - len(middle)), Stderr: int64(len(want[1]))}, 1<<20)
	if late.gaps > 0 || !bytes.Equal(late.got[0], middle) || len(late.got[1]) > 0 {
		t.Errorf("from within a buffer %d bytes came of %d, and %d of the other stream", len(late.got[0]), len(middle),
			len(late.got[1]))
	}
}

// TestLentBuffersStay checks that a lent buffer stays unchanged while the output drops it, and is free once reader
// and output are done with it.
func TestLentBuffersStay(t *testing.T) {
	o := New(2<<20, nil)
	o.Write(proto.Stdout, make([]byte, 2<<20)) // the head is full, and the tail begun
	at := int64(2 << 20)
	write := func(letter byte) *Buffer {
		b := filled(proto.Stdout, at, letter)
		if kept, _ := o.WriteBuffer(proto.Stdout, at, b); !kept {
			t.Fatalf("the buffer at %d was not kept", at)
		}
		at += BufferBytes
		return b
	}
	first := write('a')
	c := Cursor{Stdout: at - BufferBytes}
	o.Attach(&c)
	_, p, _, err := o.Append(context.Background(), &c, nil, 1<<20)
	if err != nil || &p.Data[0] != &first.Data()[0] {
		t.Fatalf("a piece of %d bytes is not the buffer, %v", len(p.Data), err)
	}
	for i := range 40 {
		write(byte('b' + i%20))
	}
	if head, tail, _ := o.Text(proto.Stdout); bytes.IndexByte(append(head, tail...), 'a') >= 0 {
		t.Fatal("the output still keeps the buffer")
	}
	if first.uses != 1 || len(bytes.Trim(p.Data, "a")) > 0 {
		t.Fatalf("a lent buffer has %d uses, and %d other bytes", first.uses, len(bytes.Trim(p.Data, "a")))
	}
	if _, _, _, err = o.Append(context.Background(), &c, nil, 1<<20); err != nil || first.uses != 0 {
		t.Fatalf("a buffer that was given back has %d uses, %v", first.uses, err)
	}
	last := write('z')
	c.Stdout, c.seq = at-BufferBytes, 0
	if _, _, _, err = o.Append(context.Background(), &c, nil, 1<<20); err != nil || last.uses != 2 {
		t.Fatalf("a buffer that is kept and was lent has %d uses, %v", last.uses, err)
	}
	if o.Detach(&c); last.uses != 1 {
		t.Errorf("after its reader a buffer has %d uses", last.uses)
	}
	if total, _ := o.Totals(); total != at || o.Kept() > 2<<20+2*BufferBytes {
		t.Errorf("%d bytes, of which %d are kept", total, o.Kept())
	}
}

// TestBuffersThatAreCopied checks that a buffer is copied where the output has no room for several, and in the head.
func TestBuffersThatAreCopied(t *testing.T) {
	tight := New(2<<20, NewBudget(1<<20))
	tight.Write(proto.Stdout, make([]byte, 3<<20))
	for name, o := range map[string]*Output{"little room": New(1<<19, nil), "in the head": New(64<<20, nil),
		"little memory": tight} {
		at, _ := o.Totals()
		for i := range 8 {
			b := filled(proto.Stdout, at, byte('a'+i))
			kept, _ := o.WriteBuffer(proto.Stdout, at, b)
			if kept {
				t.Errorf("%s: a buffer was kept", name)
			}
			copy(b.Data(), make([]byte, BufferBytes))
			at += BufferBytes
		}
		_, tail, _ := o.Text(proto.Stdout)
		head, _, _ := o.Text(proto.Stdout)
		all := append(head, tail...)
		if total, _ := o.Totals(); total != at || !bytes.Equal(all[len(all)-10:], bytes.Repeat([]byte{'h'}, 10)) {
			t.Errorf("%s: %d bytes of %d, which end with %q", name, total, at, all[len(all)-10:])
		}
	}
}

// TestBuffersAreSaved checks that saved buffers are loaded at their offsets, also after a gap.
func TestBuffersAreSaved(t *testing.T) {
	o := New(4<<20, nil)
	o.Write(proto.Stdout, bytes.Repeat([]byte{'x'}, 3<<20))
	for i, at := range []int64{3 << 20, 3<<20 + BufferBytes, 1 << 30, 1<<30 + BufferBytes} {
		b := filled(proto.Stdout, at, byte('a'+i))
		if kept, over := o.WriteBuffer(proto.Stdout, at, b); !kept || over != (at > 4<<20) {
			t.Fatalf("the buffer at %d: kept %v, over %v", at, kept, over)
		}
	}
	o.Finish()
	var file bytes.Buffer
	if err := o.Save(&file); err != nil {
		t.Fatal(err)
	}
	if int64(file.Len()) > o.Kept() {
		t.Errorf("a file of %d bytes for the %d that are kept", file.Len(), o.Kept())
	}
	total, _ := o.Totals()
	back, err := Load(&file, total, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	var was, is rawReader
	was.read(t, o, &Cursor{}, 1<<20)
	is.read(t, back, &Cursor{}, 1<<20)
	if was.lent != 2 || was.gaps != is.gaps || !bytes.Equal(was.got[0], is.got[0]) ||
		!bytes.HasSuffix(is.got[0], bytes.Repeat([]byte{'d'}, BufferBytes)) {
		t.Errorf("%d buffers, %d bytes and gaps of %d came back as %d and %d", was.lent, len(was.got[0]), was.gaps,
			len(is.got[0]), is.gaps)
	}
}

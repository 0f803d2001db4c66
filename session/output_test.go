package session

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"berth/proto"
)

// collect reads all that a cursor gets and checks that offsets have no holes but the gaps told.
func collect(t *testing.T, o *output, from Cursor) (got [2][]byte, gaps int64) {
	t.Helper()
	at := [2]int64{from.Stdout, from.Stderr}
	for {
		p, ok, err := o.next(context.Background(), &from)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return got, gaps
		}
		i := p.Stream - 1
		if p.Offset != at[i] {
			t.Fatalf("%s continues at %d, want %d", p.Stream, p.Offset, at[i])
		}
		if p.Until > 0 {
			gaps += p.Until - p.Offset
			at[i] = p.Until
			continue
		}
		got[i] = append(got[i], p.Data...)
		at[i] += int64(len(p.Data))
	}
}

func TestOutputKeepsHeadAndTailOfEachStream(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		limit := int64(1 + rng.IntN(300_000))
		o := newOutput(limit)
		var want [2][]byte
		for range rng.IntN(400) {
			s := proto.Stream(1 + rng.IntN(2))
			b := make([]byte, rng.IntN(3000))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			want[s-1] = append(want[s-1], b...)
			if over := o.write(s, b); over != (int64(len(want[s-1])) > limit) {
				t.Fatalf("over the limit of %d with %d bytes: %v", limit, len(want[s-1]), over)
			}
		}
		o.finish()
		for i := range want {
			head, tail, dropped := o.text(proto.Stream(i + 1))
			if int64(len(head)+len(tail))+dropped != int64(len(want[i])) || !bytes.HasPrefix(want[i], head) || !bytes.HasSuffix(want[i], tail) {
				t.Fatalf("stream %d of %d bytes, limit %d: head %d, tail %d, dropped %d", i, len(want[i]), limit, len(head), len(tail), dropped)
			}
			if dropped > 0 && int64(len(want[i])) <= limit/3 {
				t.Fatalf("%d of %d bytes were dropped under a limit of %d", dropped, len(want[i]), limit)
			}
		}
		if got := o.kept(); got > 2*limit+4*chunkSize {
			t.Fatalf("%d bytes are kept under a limit of %d", got, limit)
		}
		collect(t, o, Cursor{})
	}
}

func TestReadersAtAnyPaceSeeTheSame(t *testing.T) {
	o := newOutput(1 << 20)
	done := make(chan [2][]byte, 8)
	for range cap(done) {
		go func() {
			got, gaps := collect(t, o, Cursor{})
			if gaps > 0 {
				t.Errorf("%d bytes are missing although all were kept", gaps)
			}
			done <- got
		}()
	}
	var want [2][]byte
	for i := range 20_000 {
		s := proto.Stream(1 + i%2)
		b := []byte(strings.Repeat("x", i%17) + "\n")
		want[s-1] = append(want[s-1], b...)
		o.write(s, b)
	}
	o.finish()
	for range cap(done) {
		got := <-done
		if !bytes.Equal(got[0], want[0]) || !bytes.Equal(got[1], want[1]) {
			t.Error("a reader saw something else than was written")
		}
	}
}

func TestSingleBytesCostNoMoreThanOthers(t *testing.T) {
	o := newOutput(1 << 20)
	for i := range 4 << 20 {
		o.write(proto.Stream(1+i/1000%2), []byte{'x'})
	}
	for _, st := range o.streams {
		if n := len(st.head.chunks) + len(st.tail.chunks); n > 1100 {
			t.Errorf("%d pieces for single bytes", n)
		}
	}
}

func TestPiecesAreBounded(t *testing.T) {
	o := newOutput(1 << 20)
	for i := range 200_000 {
		o.write(proto.Stream(1+i%2), []byte{'x'})
	}
	for _, st := range o.streams {
		if len(st.head.chunks) > maxChunks || len(st.tail.chunks) > maxChunks {
			t.Errorf("%d and %d pieces", len(st.head.chunks), len(st.tail.chunks))
		}
	}
	o.finish()
	collect(t, o, Cursor{})
}

func TestDroppedOutputShowsAsAGap(t *testing.T) {
	o := newOutput(1 << 10)
	o.write(proto.Stdout, []byte("hello"))
	o.finish()
	o.drop()
	if _, gaps := collect(t, o, Cursor{Stdout: 2}); gaps != 3 {
		t.Errorf("a gap of %d, want 3", gaps)
	}
}

func FuzzFollowerNeverSplitsACharacter(f *testing.F) {
	f.Add([]byte("aé€😀"), uint8(1))
	f.Add([]byte{0xff, 0xc3, 0xa9, 0xf0, 0x9f, 0x98}, uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		var back []byte
		fo := follower{fn: func(e proto.Event) error {
			if e.Offset != int64(len(back)) {
				t.Fatalf("offset %d after %d bytes", e.Offset, len(back))
			}
			if e.DataBase64 != nil {
				if utf8.Valid(data) {
					t.Fatalf("text was sent as bytes: %q", e.DataBase64)
				}
				back = append(back, e.DataBase64...)
			}
			back = append(back, e.Data...)
			return nil
		}}
		for off := 0; off < len(data); {
			end := min(len(data), off+1+int(step))
			if err := fo.piece(Piece{Stream: proto.Stdout, Offset: int64(off), Data: data[off:end]}); err != nil {
				t.Fatal(err)
			}
			off = end
		}
		if err := fo.flush(); err != nil || !bytes.Equal(back, data) {
			t.Fatalf("%q came back as %q, %v", data, back, err)
		}
	})
}

// A lossless writer is held up by its slowest reader, and by nobody once it is released.
func TestLosslessOutputWaitsForItsReaders(t *testing.T) {
	o := newOutput(64 << 10)
	o.lossless = true
	var want [2][]byte
	written := make(chan struct{})
	go func() {
		defer close(written)
		rng := rand.New(rand.NewPCG(3, 4))
		for i := range 3000 {
			s := proto.Stream(1 + rng.IntN(2))
			b := bytes.Repeat([]byte{byte(i)}, 1+rng.IntN(4000))
			want[s-1] = append(want[s-1], b...)
			o.write(s, b)
		}
		o.finish()
	}()
	type read struct {
		got  [2][]byte
		gaps int64
	}
	reads := make(chan read, 3)
	for range cap(reads) {
		go func() {
			var c Cursor
			o.attach(&c)
			defer o.detach(&c)
			var r read
			for {
				p, ok, err := o.next(context.Background(), &c)
				if err != nil || !ok {
					break
				}
				r.gaps += max(0, p.Until-p.Offset)
				r.got[p.Stream-1] = append(r.got[p.Stream-1], p.Data...)
			}
			reads <- r
		}()
	}
	whole := 0
	for range cap(reads) {
		r := <-reads
		<-written
		if r.gaps == 0 && bytes.Equal(r.got[0], want[0]) && bytes.Equal(r.got[1], want[1]) {
			whole++
		}
	}
	if whole == 0 { // the first to come had everything; a later one may have missed the beginning
		t.Error("no reader had all of it")
	}
}

func TestReleaseEndsTheWait(t *testing.T) {
	o := newOutput(1 << 10)
	o.lossless = true
	written := make(chan struct{})
	go func() {
		defer close(written)
		o.write(proto.Stdout, make([]byte, 1<<20))
	}()
	o.release()
	<-written
	if total, _ := o.totals(); total != 1<<20 {
		t.Errorf("%d bytes", total)
	}
}

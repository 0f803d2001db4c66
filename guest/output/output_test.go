package output

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"berth/proto"
)

// collect reads everything from a cursor, and checks that the offsets have no holes other than the reported gaps.
func collect(t *testing.T, o *Output, from Cursor) (got [2][]byte, gaps int64) {
	t.Helper()
	at := [2]int64{from.Stdout, from.Stderr}
	for {
		p, ok, err := o.Next(context.Background(), &from)
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
		o := New(limit, nil)
		var want [2][]byte
		for range rng.IntN(400) {
			s := proto.Stream(1 + rng.IntN(2))
			b := make([]byte, rng.IntN(3000))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			want[s-1] = append(want[s-1], b...)
			if over := o.Write(s, b); over != (int64(len(want[s-1])) > limit) {
				t.Fatalf("over the limit of %d with %d bytes: %v", limit, len(want[s-1]), over)
			}
		}
		o.Finish()
		for i := range want {
			head, tail, dropped := o.Text(proto.Stream(i + 1))
			if int64(len(head)+len(tail))+dropped != int64(len(want[i])) || !bytes.HasPrefix(want[i], head) ||
				!bytes.HasSuffix(want[i], tail) {
				t.Fatalf("stream %d of %d bytes, limit %d: head %d, tail %d, dropped %d", i, len(want[i]), limit,
					len(head), len(tail), dropped)
			}
			if dropped > 0 && int64(len(want[i])) <= limit/3 {
				t.Fatalf("%d of %d bytes were dropped under a limit of %d", dropped, len(want[i]), limit)
			}
		}
		if got := o.Kept(); got > 2*limit+4*ChunkBytes {
			t.Fatalf("%d bytes are kept under a limit of %d", got, limit)
		}
		collect(t, o, Cursor{})
	}
}

func TestReadersAtAnyPaceSeeTheSame(t *testing.T) {
	o := New(1<<20, nil)
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
		o.Write(s, b)
	}
	o.Finish()
	for range cap(done) {
		got := <-done
		if !bytes.Equal(got[0], want[0]) || !bytes.Equal(got[1], want[1]) {
			t.Error("a reader got other bytes than were written")
		}
	}
}

func TestSingleBytesCostNoMoreThanOthers(t *testing.T) {
	o := New(1<<20, nil)
	for i := range 4 << 20 {
		o.Write(proto.Stream(1+i/1000%2), []byte{'x'})
	}
	for _, st := range o.streams {
		if n := len(st.head.chunks) + len(st.tail.chunks); n > 1100 {
			t.Errorf("%d pieces for single bytes", n)
		}
	}
}

func TestPiecesAreBounded(t *testing.T) {
	o := New(1<<20, nil)
	for i := range 200_000 {
		o.Write(proto.Stream(1+i%2), []byte{'x'})
	}
	for _, st := range o.streams {
		if len(st.head.chunks) > maxChunks || len(st.tail.chunks) > maxChunks {
			t.Errorf("%d and %d pieces", len(st.head.chunks), len(st.tail.chunks))
		}
	}
	o.Finish()
	collect(t, o, Cursor{})
}

func TestDroppedOutputShowsAsAGap(t *testing.T) {
	o := New(1<<10, nil)
	o.Write(proto.Stdout, []byte("hello"))
	o.Finish()
	o.Drop()
	if _, gaps := collect(t, o, Cursor{Stdout: 2}); gaps != 3 {
		t.Errorf("a gap of %d, want 3", gaps)
	}
}

// TestLosslessOutputWaitsForItsReaders checks that a lossless writer waits for its slowest reader until it is
// released.
func TestLosslessOutputWaitsForItsReaders(t *testing.T) {
	o := New(64<<10, nil)
	o.Hold()
	var want [2][]byte
	written := make(chan struct{})
	go func() {
		defer close(written)
		rng := rand.New(rand.NewPCG(3, 4))
		for i := range 3000 {
			s := proto.Stream(1 + rng.IntN(2))
			b := bytes.Repeat([]byte{byte(i)}, 1+rng.IntN(4000))
			want[s-1] = append(want[s-1], b...)
			o.Write(s, b)
		}
		o.Finish()
	}()
	type read struct {
		got  [2][]byte
		gaps int64
	}
	reads := make(chan read, 3)
	for range cap(reads) {
		go func() {
			var c Cursor
			o.Attach(&c)
			defer o.Detach(&c)
			var r read
			for {
				p, ok, err := o.Next(context.Background(), &c)
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
		t.Error("no reader got everything")
	}
}

func TestReleaseEndsTheWait(t *testing.T) {
	o := New(1<<10, nil)
	o.Hold()
	written := make(chan struct{})
	go func() {
		defer close(written)
		o.Write(proto.Stdout, make([]byte, 1<<20))
	}()
	o.Release()
	<-written
	if total, _ := o.Totals(); total != 1<<20 {
		t.Errorf("%d bytes", total)
	}
}

// TestGapInWriting checks that lost bytes show as a gap, and that the output on both sides stays in order.
func TestGapInWriting(t *testing.T) {
	o := New(1<<20, nil)
	o.Write(proto.Stdout, []byte("one"))
	o.WriteAt(proto.Stdout, 10, []byte("two"))
	o.WriteAt(proto.Stdout, 13, []byte("three"))
	o.Finish()
	head, tail, dropped := o.Text(proto.Stdout)
	if string(head) != "one" || string(tail) != "twothree" || dropped != 7 {
		t.Errorf("%q %q, %d dropped", head, tail, dropped)
	}
	if got, gaps := collect(t, o, Cursor{}); string(got[0]) != "onetwothree" || gaps != 7 {
		t.Errorf("%q with gaps of %d", got[0], gaps)
	}
}

func TestSavedOutputComesBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		o := New(int64(1+rng.IntN(200_000)), nil)
		for range rng.IntN(300) {
			o.Write(proto.Stream(1+rng.IntN(2)), bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(3000)))
		}
		o.Finish()
		var file bytes.Buffer
		if err := o.Save(&file); err != nil {
			t.Fatal(err)
		}
		stdout, stderr := o.Totals()
		back, err := Load(bytes.NewReader(file.Bytes()), stdout, stderr, nil)
		if err != nil {
			t.Fatal(err)
		}
		for s := proto.Stdout; s <= proto.Stderr; s++ {
			h1, t1, d1 := o.Text(s)
			h2, t2, d2 := back.Text(s)
			if !bytes.Equal(append(h1, t1...), append(h2, t2...)) || d1 != d2 || d1 > 0 && len(h1) != len(h2) {
				t.Fatalf("%v: %d+%d bytes and %d dropped came back as %d+%d and %d", s, len(h1), len(t1), d1, len(h2),
					len(t2), d2)
			}
		}
		torn, err := Load(bytes.NewReader(file.Bytes()[:rng.IntN(file.Len()+1)]), stdout, stderr, nil)
		if a, b := torn.Totals(); a != stdout || b != stderr {
			t.Fatalf("a cut file has %d and %d bytes, %v", a, b, err)
		}
		collect(t, torn, Cursor{})
	}
}

func FuzzLoad(f *testing.F) {
	o := New(8, nil)
	o.Write(proto.Stdout, []byte("0123456789"))
	var file bytes.Buffer
	_ = o.Save(&file)
	f.Add(file.Bytes(), int64(10), int64(0))
	f.Fuzz(func(t *testing.T, data []byte, stdout, stderr int64) {
		if stdout < 0 || stderr < 0 || stdout > 1<<40 || stderr > 1<<40 {
			return
		}
		o, _ := Load(bytes.NewReader(data), stdout, stderr, nil)
		got, gaps := collect(t, o, Cursor{})
		if n := int64(len(got[0])+len(got[1])) + gaps; n != stdout+stderr {
			t.Fatalf("%d bytes and gaps, want %d", n, stdout+stderr)
		}
	})
}

// TestSmallPiecesCount checks that the overhead of a piece counts, so that a program that changes streams with every
// byte stays within the bound.
func TestSmallPiecesCount(t *testing.T) {
	const pieces = 4 * maxChunks
	b := NewBudget(1 << 30)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	o := New(1<<20, b)
	for i := range pieces {
		o.Write(proto.Stream(1+i%2), []byte{'x'})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	took := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	if b.Used() < pieces*chunkCost || b.Used() != o.Kept() || b.Used() > 2*took || took > 2*b.Used() {
		t.Errorf("%d pieces count as %d bytes and take %d", pieces, b.Used(), took)
	}
	var file bytes.Buffer
	if err := o.Save(&file); err != nil || int64(file.Len()) > o.Kept() {
		t.Errorf("a file of %d bytes for %d, %v", file.Len(), o.Kept(), err)
	}
	o.Drop()
	if b.Used() != 0 {
		t.Errorf("%d bytes stay in the budget", b.Used())
	}
}

// TestPiecesAreSqueezed checks that outputs of many small pieces shrink like others when memory is short.
func TestPiecesAreSqueezed(t *testing.T) {
	const room = 64 << 10
	for _, limit := range []int64{squeezed / 2, 1 << 20} {
		b := NewBudget(room)
		for i := range int64(2) {
			o := New(limit, b)
			for k := range 3 * maxChunks {
				o.Write(proto.Stream(1+k%2), []byte{'x'})
			}
			o.Finish()
			collect(t, o, Cursor{})
			if most := room + (i+1)*2*2*squeezed; b.Used() > most {
				t.Errorf("%d outputs with a limit of %d take %d bytes, more than %d", i+1, limit, b.Used(), most)
			}
		}
	}
}

// TestBudgetBoundsAllOutputs checks that many outputs together stay within their budget, apart from what each may
// always keep.
func TestBudgetBoundsAllOutputs(t *testing.T) {
	const limit, each, many = 4 << 20, 1 << 20, 16
	b := NewBudget(limit)
	var all []*Output
	for i := range many {
		o := New(each, b)
		for range 300 {
			o.Write(proto.Stdout, bytes.Repeat([]byte{byte(i)}, 8<<10))
		}
		all = append(all, o)
		if most := int64(limit + (i+1)*(squeezed+2*ChunkBytes) + each); b.Used() > most {
			t.Fatalf("%d outputs hold %d bytes, more than %d", i+1, b.Used(), most)
		}
	}
	for i, o := range all {
		o.Finish()
		head, tail, dropped := o.Text(proto.Stdout)
		if int64(len(head)+len(tail))+dropped != 300*8<<10 || len(head) < squeezed/2 || len(tail) < squeezed/2 ||
			head[0] != byte(i) {
			t.Errorf("output %d: %d+%d bytes, %d dropped", i, len(head), len(tail), dropped)
		}
		collect(t, o, Cursor{})
		o.Drop()
	}
	if b.Used() != 0 {
		t.Errorf("%d bytes stay in the budget", b.Used())
	}
}

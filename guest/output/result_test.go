package output

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"berth/proto"
)

// mixed returns n random characters of one to four bytes.
func mixed(rng *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteString([]string{"a", "é", "日", "😀", "\n"}[rng.IntN(5)])
	}
	return b.String()
}

// TestLimitIsWhatItSays checks that a result, a reader after the end and the stored output have at most the limit of
// each stream, and that no cut divides a character, however the output arrived.
func TestLimitIsWhatItSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		limit := int64(1 + rng.IntN(60_000))
		o := New(limit, nil)
		var want [2]string
		for i := range want {
			want[i] = mixed(rng, rng.IntN(100_000))
			for rest := []byte(want[i]); len(rest) > 0; {
				n := min(len(rest), 1+rng.IntN(10_000))
				o.Write(proto.Stream(i+1), rest[:n])
				rest = rest[n:]
			}
		}
		o.Finish()
		checkLimit(t, o, limit, want)
		var file bytes.Buffer
		if err := o.Save(&file); err != nil {
			t.Fatal(err)
		}
		back, err := Load(&file, int64(len(want[0])), int64(len(want[1])), nil)
		if err != nil {
			t.Fatal(err)
		}
		checkLimit(t, back, limit, want)
	}
}

func checkLimit(t *testing.T, o *Output, limit int64, want [2]string) {
	t.Helper()
	got, _ := collect(t, o, Cursor{})
	for i, want := range want {
		s := proto.Stream(i + 1)
		text, truncated := o.Result(s)
		if truncated != (int64(len(want)) > limit) {
			t.Fatalf("%d bytes under a limit of %d: truncated %v", len(want), limit, truncated)
		}
		if !truncated {
			if text != want || string(got[i]) != want {
				t.Fatalf("%d bytes under a limit of %d are not whole", len(want), limit)
			}
			continue
		}
		head, tail, dropped := o.Text(s)
		kept := int64(len(head) + len(tail))
		if kept > limit || kept < limit-2*utf8.UTFMax || kept+dropped != int64(len(want)) {
			t.Fatalf("%d+%d bytes and %d dropped of %d under a limit of %d", len(head), len(tail), dropped, len(want),
				limit)
		}
		if text != string(head)+proto.OutputTruncated(dropped)+string(tail) || string(got[i]) != string(head)+
			string(tail) || !strings.HasPrefix(want, string(head)) || !strings.HasSuffix(want, string(tail)) {
			t.Fatalf("other text than was written, under a limit of %d", limit)
		}
		if !utf8.Valid(head) || !utf8.Valid(tail) {
			t.Fatalf("a character is divided under a limit of %d: …%q, %q…", limit, head[max(0, len(head)-4):],
				tail[:min(4, len(tail))])
		}
	}
}

// TestBytesThatAreNoText checks that a result stays within the limit although each byte that is no text takes three.
func TestBytesThatAreNoText(t *testing.T) {
	for _, written := range []int{900, 1000, 50_000, 500_000} {
		o := New(1000, nil)
		o.Write(proto.Stdout, bytes.Repeat([]byte("\xff."), written/2))
		o.Finish()
		text, truncated := o.Result(proto.Stdout)
		start, rest, _ := strings.Cut(text, "\n[output truncated: ")
		var dropped int
		_, err := fmt.Sscanf(rest, "%d bytes left out]\n", &dropped)
		_, end, _ := strings.Cut(rest, "]\n")
		kept := strings.Count(start+end, "\uFFFD") + strings.Count(start+end, ".")
		if err != nil || !truncated || len(start)+len(end) > 1000 || len(start)+len(end) < 990 ||
			kept+dropped != written {
			t.Errorf("%d bytes: %d+%d bytes of text, %d dropped, %v", written, len(start), len(end), dropped, err)
		}
	}
}

// TestGapsDivideNoCharacter checks that a reader who falls behind while the command runs loses whole characters.
func TestGapsDivideNoCharacter(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 100 {
		o := New(int64(1+rng.IntN(100_000)), nil)
		var c Cursor
		var got []byte
		read := func(most int) {
			for range most {
				p, ok, err := o.Next(context.Background(), &c)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					return
				}
				if got = append(got, p.Data...); p.Until > 0 {
					got = nil
				}
			}
		}
		for rest := []byte(mixed(rng, 200_000)); len(rest) > 0; {
			n := min(len(rest), 1+rng.IntN(50_000))
			o.Write(proto.Stdout, rest[:n])
			rest = rest[n:]
			if rng.IntN(4) == 0 {
				read(1)
			}
		}
		o.Finish()
		read(1 << 20)
		if !utf8.Valid(got) {
			t.Fatalf("the output after a gap begins within a character: %q…", got[:4])
		}
	}
}

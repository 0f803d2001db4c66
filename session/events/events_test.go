package events

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"berth/guest/output"
	"berth/proto"
)

func FuzzFollowerNeverSplitsACharacter(f *testing.F) {
	f.Add([]byte("aé€😀"), uint8(1))
	f.Add([]byte{0xff, 0xc3, 0xa9, 0xf0, 0x9f, 0x98}, uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		var back []byte
		fo := Follower{Event: func(e proto.Event) error {
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
			if err := fo.piece(output.Piece{Stream: proto.Stdout, Offset: int64(off),
				Data: data[off:end]}); err != nil {
				t.Fatal(err)
			}
			off = end
		}
		if err := fo.flush(); err != nil || !bytes.Equal(back, data) {
			t.Fatalf("%q came back as %q, %v", data, back, err)
		}
	})
}

// TestGapDropsTheBegunCharacter checks that a gap never divides a character: a follower that falls behind within one
// gets neither its beginning nor its end.
func TestGapDropsTheBegunCharacter(t *testing.T) {
	out := output.New(4<<10, nil)
	out.Write(proto.Stdout, []byte("é"[:1]))
	from, got := output.Cursor{}, []proto.Event(nil)
	f := Follower{ID: "exec_1", Event: func(e proto.Event) error { got = append(got, e); return nil }}
	p, _, err := out.Next(t.Context(), &from)
	if err == nil {
		err = f.piece(p)
	}
	if err != nil || len(got) > 0 {
		t.Fatal(got, err)
	}
	out.Write(proto.Stdout, []byte(strings.Repeat("é", 200_000)[1:]))
	out.Finish()
	if err := f.Follow(t.Context(), out, &from); err != nil {
		t.Fatal(err)
	}
	gaps := 0
	for _, e := range got {
		if e.DataBase64 != nil || strings.Trim(e.Data, "é") != "" || e.Offset%2 != 0 || e.Until%2 != 0 {
			t.Errorf("an event divides a character: %.80v", e)
		}
		if e.Type == proto.EventGap {
			gaps++
		}
	}
	if gaps != 1 {
		t.Errorf("%d gaps in %d events", gaps, len(got))
	}
}

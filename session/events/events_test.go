package events

import (
	"bytes"
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

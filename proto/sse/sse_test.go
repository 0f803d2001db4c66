package sse

import (
	"bytes"
	"errors"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// readAll returns the data of all events, and the error that ended the stream.
func readAll(in string, opts Options) (got []string, err error) {
	got = []string{}
	r := NewReader(strings.NewReader(in), opts)
	for {
		e, err := r.Next()
		if err == io.EOF {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, string(e.Data))
	}
}

func TestEventsHoweverTheyAreWritten(t *testing.T) {
	for in, want := range map[string][]string{
		"event: a\ndata: 1\n\ndata: 2\n\n":                           {"1", "2"},
		"event: a\r\ndata:1\r\n\r\n: comment\r\n\r\ndata: 2\r\n\r\n": {"1", "2"},
		"data: {\ndata: }\n\n":                                       {"{\n}"},
		"id: 5\nretry: 3\nevent: x\n\ndata: cut off\n":               {},
		"": {},
	} {
		if got, err := readAll(in, Options{}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for in, want := range map[string][]string{
		"data: 1\n\nerror: 2\n\n{\"a\":3}\n\n": {"1", "2", `{"a":3}`},
		"data: 1\n\ndata: cut off\n":           {"1", "cut off"},
		"data: 1\n\ndata: cut off":             {"1", "cut off"},
		"data\n\ndata: 1\n\n\n":                {"", "1"},
	} {
		if got, err := readAll(in, Options{Lenient: true}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	long := "data: " + strings.Repeat("x", 1001)
	if _, err := readAll(long, Options{MaxEvent: 1000}); !errors.Is(err, ErrEventTooLong) {
		t.Errorf("an event that is too long: %v", err)
	}
}

// An upstream that goes on for ever in small events is cut off where one that answers whole is.
func TestStreamIsBoundedAsAWhole(t *testing.T) {
	const limit = 64 << 20
	one := "data: " + strings.Repeat("x", 1<<20) + "\n\n"
	got, err := readAll(strings.Repeat(one, limit>>20+1), Options{MaxEvent: 2 << 20, MaxStream: limit})
	if events := len(got); !errors.Is(err, ErrStreamTooLong) || events == 0 || events >= limit>>20 {
		t.Errorf("%d events: %v", events, err)
	}
}

func TestWrittenEventsAreReadBack(t *testing.T) {
	rec := httptest.NewRecorder()
	w := NewWriter(rec)
	w.WriteHeader(ContentType)
	sent := []Event{{Data: []byte("1")}, {ID: "7", Name: "a", Data: []byte("two\nlines")}}
	for _, e := range sent {
		if err := errors.Join(w.WriteComment(), w.Write(e)); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReader(rec.Body, Options{})
	for _, want := range sent {
		got, err := r.Next()
		if err != nil || got.ID != want.ID || got.Name != want.Name || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Error(err)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("event: a\ndata: {}\n\ndata: [1]\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, lenient := range []bool{false, true} {
			r := NewReader(bytes.NewReader(data), Options{Lenient: lenient})
			for {
				e, err := r.Next()
				if err != nil {
					break
				}
				if len(e.Data) == 0 && !lenient || len(e.Data) > len(data) {
					t.Fatalf("%q", e.Data)
				}
			}
		}
	})
}

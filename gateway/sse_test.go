package gateway

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestEventsHoweverTheyAreWritten(t *testing.T) {
	for in, want := range map[string][]string{
		"event: a\ndata: 1\n\ndata: 2\n\n":                           {"1", "2"},
		"event: a\r\ndata:1\r\n\r\n: comment\r\n\r\ndata: 2\r\n\r\n": {"1", "2"},
		"data: {\ndata: }\n\n":                                       {"{\n}"},
		"id: 5\nretry: 3\nevent: x\n\ndata: cut off\n":               {},
		"": {},
	} {
		got := []string{}
		err := readEvents(strings.NewReader(in), func(data []byte) error {
			got = append(got, string(data))
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	stop := errors.New("enough")
	if err := readEvents(strings.NewReader("data: 1\n\ndata: 2\n\n"), func([]byte) error { return stop }); !errors.Is(
		err, stop) {
		t.Error(err)
	}
	if err := readEvents(strings.NewReader("data: "+strings.Repeat("x", maxEvent+1)), func([]byte) error {
		return nil
	}); err == nil {
		t.Error("an event of any size is taken")
	}
}

// An upstream that goes on for ever in small events is cut off where one that answers whole is.
func TestStreamIsBoundedAsAWhole(t *testing.T) {
	one := "data: " + strings.Repeat("x", 1<<20) + "\n\n"
	events := 0
	err := readEvents(strings.NewReader(strings.Repeat(one, maxAnswer>>20+1)), func([]byte) error {
		events++
		return nil
	})
	if err == nil || err.Error() != longAnswer().Error() || events == 0 || events >= maxAnswer>>20 {
		t.Errorf("%d events: %v", events, err)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("event: a\ndata: {}\n\ndata: [1]\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = readEvents(bytes.NewReader(data), func(one []byte) error {
			if len(one) == 0 || len(one) > len(data) {
				t.Fatalf("%q", one)
			}
			return nil
		})
	})
}

package native

import (
	"testing"

	"berth/api/openapi"
)

func FuzzParseRange(f *testing.F) {
	for _, seed := range []string{"bytes=0-1", "bytes=-5", "bytes=5-", "bytes=1-0", "bytes=--", "x"} {
		f.Add(seed, int64(10))
	}
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			return
		}
		s, ok := parseRange(header)
		if !ok {
			return
		}
		if first, n := s.within(size); n < 0 || n > 0 && (first < 0 || first+n > size) {
			t.Fatalf("%q of %d: %d+%d", header, size, first, n)
		}
	})
}

func FuzzParseQuery(f *testing.F) {
	f.Add("label=a=b&limit=3")
	f.Add("%zz;&&limit=-1&state=running&label")
	r := row{Operation: openapi.Operation{Query: []openapi.Param{{Name: "label", Repeat: true},
		{Name: "limit", Kind: openapi.Whole, Max: 10}, {Name: "mode", Kind: openapi.Mode},
		{Name: "f", Kind: openapi.Flag}}}}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := r.ParseQuery(raw)
		if err != nil {
			return
		}
		c := &call{query: q}
		if n := c.whole("limit"); n < 0 || n > 10 {
			t.Fatalf("%q: limit %d", raw, n)
		}
		if c.mode("mode") > 0o7777 {
			t.Fatalf("%q: mode %o", raw, c.mode("mode"))
		}
		_, _ = c.labels()
	})
}

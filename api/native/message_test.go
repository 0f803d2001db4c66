package native

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"berth/api/openapi"
	"berth/proto"
)

// Whatever a client sends is a message that can be done or an error that can be shown.
func FuzzDecodeMessage(f *testing.F) {
	for _, seed := range []string{
		`{"type":"exec","ref":"r1","cmd":{"command":"ls","tty":{"rows":1,"cols":2}}}`,
		`{"type":"attach","exec_id":"exec_1","stdout_offset":5}`,
		`{"type":"stdin","exec_id":"e","data_base64":"aGk=","close":true}`,
		`{"type":"signal","exec_id":"e","signal":"SIGTERM"}`, `{"type":"resize","exec_id":"e","rows":1,"cols":65535}`,
		`{"type":"watch"}`,
		`{"type":"stdin","exec_id":"e","data":"\ud800"}`, `{"type":"watch","type":"exec"}`, `null`, `{"ref":1}`, "\xff",
		`{"type":"resize","rows":-1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeMessage(data)
		if len(m.Ref) > maxRef {
			t.Fatalf("a ref of %d bytes", len(m.Ref))
		}
		if err != nil {
			var e *proto.Error
			if !errors.As(err, &e) || e.Code != proto.InvalidArgument || e.Message == "" {
				t.Fatalf("%v", err)
			}
			if _, err := json.Marshal(e); err != nil {
				t.Fatal(err)
			}
			return
		}
		if m.StdoutOffset < 0 || m.StderrOffset < 0 || m.Type == msgExec && m.Cmd == nil || m.Type != msgExec &&
			m.Cmd != nil {
			t.Fatalf("%+v", m)
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeMessage(text)
		if err != nil || !reflect.DeepEqual(m, again) && !emptyBytes(m) {
			t.Fatalf("%+v, then %+v, %v", m, again, err)
		}
	})
}

// emptyBytes reports bytes that are there and empty, which JSON leaves out.
func emptyBytes(m message) bool { return m.DataBase64 != nil || m.Cmd != nil }

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
		q, err := r.parseQuery(raw)
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

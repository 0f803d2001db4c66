package live

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"berth/proto"
)

// Each message of a client is decoded, or refused with an error that can be shown.
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
		if m.StdoutOffset < 0 || m.StderrOffset < 0 || m.Type == TypeExec && m.Cmd == nil || m.Type != TypeExec &&
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
func emptyBytes(m Message) bool { return m.DataBase64 != nil || m.Cmd != nil }

package proto

import (
	"encoding/json"
	"strings"
	"testing"
)

// What is valid as an ID can be part of a path as it is: nothing else is ever looked up.
func FuzzValidID(f *testing.F) {
	for _, s := range []string{"container_0123456789ABCDEFGHabcd", "container_../../../../etc/pass", "container_", "",
		"container_0123456789ABCDEFGHabc\x00", "exec_0123456789ABCDEFGHabcd", "inputs", "-rf", "job.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if (ValidID(ContainerPrefix, s) || ValidJobID(s)) && strings.ContainsAny(s, "/.\\\x00 \n%") {
			t.Errorf("%q is taken for an ID", s)
		}
		if ValidID(ContainerPrefix, s) && len(s) != len(ContainerPrefix)+22 {
			t.Errorf("%q has another length", s)
		}
		if ValidJobID(s) && (s == InputsDir || s[0] == '-') {
			t.Errorf("%q is taken for a job", s)
		}
	})
}

// A time that can be read is written as one that reads the same.
func FuzzTime(f *testing.F) {
	for _, s := range []string{`"2026-01-02T03:04:05.678901Z"`, `"2026-01-02T03:04:05+14:00"`,
		`"9999-12-31T23:59:59.999999999Z"`, `"0000-01-01T00:00:00Z"`, `null`, `1`, `"2106-02-07T06:28:16Z"`, `""`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var a, b Time
		if json.Unmarshal(data, &a) != nil {
			return
		}
		text, err := json.Marshal(a)
		if err != nil {
			return // a year that RFC 3339 cannot write
		}
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatalf("%s became %s, which cannot be read: %v", data, text, err)
		}
		if again, err := json.Marshal(b); err != nil || string(again) != string(text) {
			t.Errorf("%s became %s, then %s (%v)", data, text, again, err)
		}
	})
}

// A binary message that can be read is written as the same bytes.
func FuzzOutput(f *testing.F) {
	for _, b := range [][]byte{nil, {1}, {1, 0}, {3, 0, 0, 0, 0, 0, 0, 0, 0, 0}, AppendOutput(nil, "exec_1", Stderr,
		1<<40, []byte("a\xff"))} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseOutput(b)
		if err != nil {
			return
		}
		s := Stdout
		if e.Type == EventStderr {
			s = Stderr
		}
		if again := AppendOutput(nil, e.ExecID, s, e.Offset, e.DataBase64); string(again) != string(b) {
			t.Errorf("%x became %x", b, again)
		}
	})
}

package strictjson

import (
	"encoding/json"
	"strings"
	"testing"

	"berth/proto"
)

type sample struct {
	Name   string            `json:"name"`
	Count  int8              `json:"count"`
	Labels map[string]string `json:"labels"`
	Limits *proto.Limits     `json:"limits"`
	Files  []string          `json:"files"`
}

func TestDecodeNamesWhatIsWrong(t *testing.T) {
	for body, want := range map[string]string{
		``:                             `empty`,
		"  \n":                         `empty`,
		`{"name":"x","nmae":1}`:        `Unknown field "nmae" (byte `,
		`{"Name":"x"}`:                 `Unknown field "Name"`,
		`{"limits":{"cpu":1}}`:         `Unknown field "limits.cpu"`,
		`{"name":"x","name":"y"}`:      `The field "name" is given twice`,
		`{"labels":{"a":"1","a":"2"}}`: `The field "labels.a" is given twice`,
		`{"name":5}`:                   `The field "name" must be a string, not a number`,
		`{"count":"5"}`:                `The field "count" must be a whole number, not a string`,
		`{"count":500}`:                `The field "count" must be a whole number, not 500`,
		`{"count":1.5}`:                `The field "count" must be a whole number, not 1.5`,
		`{"files":["a",2]}`:            `The field "files.1" must be a string`,
		`{"limits":{"cpus":true}}`:     `The field "limits.cpus" must be a number, not true`,
		`null`:                         `The request body must be an object, not null.`,
		`{"name":null}`:                `The field "name" must be a string, not null`,
		`{"labels":{"a":null}}`:        `The field "labels.a" must be a string, not null`,
		`{"limits":null}`:              `The field "limits" must be an object, not null`,
		`{"files":["a",null]}`:         `The field "files.1" must be a string, not null`,
		`{"limits":{"cpus":1e999}}`:    `The field "limits.cpus" must be a number, not 1e999`,
		`{"limits":{"cpus":NaN}}`:      `Invalid JSON at byte`,
		`{"count":1e400}`:              `The field "count" must be a whole number, not 1e400`,
		`{"count":1e-1}`:               `The field "count" must be a whole number, not 1e-1`,
		`[1]`:                          `The request body must be an object, not an array.`,
		`{"name":"x"} {"name":"y"}`:    `Invalid JSON at byte 13`,
		`{"name":"x"`:                  `Invalid JSON at byte 11`,
		`{x:1}`:                        `Invalid JSON at byte 1`,
		"{\"name\":\"\xff\"}":          `Invalid JSON`,
		`{"` + strings.Repeat("x", 5000) + `":1}`: `Unknown field "xxx`,
	} {
		var v sample
		err := DecodeBytes([]byte(body), &v)
		shown := body[:min(len(body), 60)]
		if proto.CodeOf(err) != proto.InvalidArgument || !strings.Contains(err.Error(), want) ||
			len(err.Error()) > 400 {
			t.Errorf("%s\n got %v\nwant %s", shown, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "strictjson.") {
			t.Errorf("%s: the message names a Go type: %v", shown, err)
		}
	}
	var deep any
	if err := DecodeBytes([]byte(strings.Repeat("[", 200_000)), &deep); proto.CodeOf(err) != proto.InvalidArgument ||
		len(err.Error()) > 400 {
		t.Errorf("200,000 levels deep: %v", err)
	}
	for body, want := range map[string]int8{`{"count":5.0}`: 5, `{"count":-1.2e1}`: -12, `{"count":1E2}`: 100,
		`{"count":-0}`: 0} {
		var v sample
		if err := DecodeBytes([]byte(body), &v); err != nil || v.Count != want {
			t.Errorf("%s: %d, %v", body, v.Count, err)
		}
	}
	var v sample
	if err := DecodeBytes([]byte(` {"name":"x","labels":{"a":"1","A":"2"},"limits":{"cpus":0.5}} `+"\n"),
		&v); err != nil || v.Name != "x" || v.Labels["A"] != "2" || v.Limits.CPUs != 0.5 {
		t.Fatalf("%+v, %v", v, err)
	}
}

// A nullable sample takes null for what is left out.
type nullable struct {
	sample
	Raw json.RawMessage `json:"raw"`
	Sub []nullable      `json:"sub"`
}

func (nullable) NullIsAbsent() (depth int) { return 3 }

func TestNullIsAbsentWhereATypeSaysSo(t *testing.T) {
	for body, want := range map[string]string{
		`{"name":null}`:                                `{}`,
		`{"name":null,"count":1}`:                      `{"count":1}`,
		`{"count":1,"name":null}`:                      `{"count":1}`,
		`{"count":1,"name":null }`:                     `{"count":1}`,
		`{"name":null,"files":null , "limits" : null}`: `{}`,
		`{ "files" : null , "count":1,"labels":null,"limits":null,"name":"x"}`: `{"count":1,"name":"x"}`,
		`{"sub":[{"name":null,"count":2},{"limits":null}]}`:                    `{"sub":[{"count":2},{}]}`,
		`{"labels":{"a":null,"b":"1"}}`:                                        `{"labels":{"b":"1"}}`,
		`{"raw":null,"name":"null,"}`:                                          `{"name":"null,"}`,
	} {
		var got, plain nullable
		if err := DecodeBytes([]byte(body), &got); err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if err := DecodeBytes([]byte(want), &plain); err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(got)
		if b, _ := json.Marshal(plain); string(a) != string(b) {
			t.Errorf("%s: %s, want %s", body, a, b)
		}
	}
	for body, want := range map[string]string{
		`null`:                               `must be an object, not null`,
		`{"files":[null]}`:                   `"files.0" must be a string, not null`,
		`{"raw":null,"count":"x"}`:           `"count" must be a whole number, not a string (byte 20)`,
		`{"nmae":null,"count":"x"}`:          `"count"`,
		`{"sub":[{"sub":[{"count":null}]}]}`: `must be a whole number, not null`, // deeper than it says
		`{"count":1,,"name":null}`:           `Invalid JSON`,
	} {
		var got nullable
		if err := DecodeBytes([]byte(body), &got); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

// The wire types of the project must be decodable by the strict decoder.
func TestDecodeWireTypes(t *testing.T) {
	for _, v := range []any{&proto.Cmd{}, &proto.CreateContainer{}, &proto.EditorInput{}, &proto.Event{},
		&proto.Exec{}} {
		if err := DecodeBytes([]byte(`{}`), v); err != nil {
			t.Errorf("%T: %v", v, err)
		}
	}
	var c proto.Cmd
	body := `{"command":"ls","env":{"A":"b"},"tty":{"rows":24,"cols":80},"timeout_seconds":1.5}`
	if err := DecodeBytes([]byte(body), &c); err != nil || c.TTY.Rows != 24 || c.TimeoutSeconds != 1.5 {
		t.Fatalf("%+v %v", c, err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"name":"x"}`, `{"count":300}`, `{"a":{"b":[1,{"c":null}]}}`, `{"name":"\ud800"}`,
		"{\"\x00\":1}", `[[[[`, `{"limits":{"cpus":1e999}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var strict, loose sample
		err := DecodeBytes(data, &strict)
		if err == nil && json.Unmarshal(data, &loose) != nil {
			t.Fatalf("%q is accepted, but no JSON", data)
		}
		if err != nil && proto.CodeOf(err) != proto.InvalidArgument {
			t.Fatalf("%v", err)
		}
	})
}

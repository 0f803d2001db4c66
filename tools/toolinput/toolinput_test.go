package toolinput

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"berth/proto"
)

type inner struct {
	Text  *string `json:"text,omitempty"`
	Range []int   `json:"view_range,omitempty" says:"a list of two integers"`
	Line  *int    `json:"line,omitempty"`
}

type sample struct {
	inner
	Name    string   `json:"name"`
	Restart bool     `json:"restart,omitempty"`
	Seconds float64  `json:"seconds,omitempty"`
	Files   []string `json:"files,omitempty"`
	Limit   int64    `json:"limit"`
}

func TestWhatIsPlainIsTaken(t *testing.T) {
	text, empty, two := "a", "", 2
	for in, want := range map[string]sample{
		``: {}, `null`: {}, `{}`: {}, ` {"name":"x"} `: {Name: "x"}, `"{\"name\":\"x\"}"`: {Name: "x"}, `""`: {},
		`{"name":null,"restart":null,"seconds":null,"files":null,"text":null,"view_range":null,"line":null}`: {},
		`{"unknown":null}`:          {},
		`{"text":"a"}`:              {inner: inner{Text: &text}},
		`{"text":""}`:               {inner: inner{Text: &empty}},
		`{"line":2}`:                {inner: inner{Line: &two}},
		`{"line":2.0}`:              {inner: inner{Line: &two}},
		`{"line":" 2 "}`:            {inner: inner{Line: &two}},
		`{"line":"2.0"}`:            {inner: inner{Line: &two}},
		`{"line":""}`:               {},
		`{"limit":"-12e1"}`:         {Limit: -120},
		`{"seconds":"1.5"}`:         {Seconds: 1.5},
		`{"seconds":""}`:            {},
		`{"restart":"True"}`:        {Restart: true},
		`{"restart":"true"}`:        {Restart: true},
		`{"restart":1}`:             {Restart: true},
		`{"restart":"false"}`:       {},
		`{"restart":""}`:            {},
		`{"view_range":["2","3"]}`:  {inner: inner{Range: []int{2, 3}}},
		`{"view_range":"[1, 3]"}`:   {inner: inner{Range: []int{1, 3}}},
		`{"view_range":"1,-1"}`:     {inner: inner{Range: []int{1, -1}}},
		`{"view_range":[1.0,3e0]}`:  {inner: inner{Range: []int{1, 3}}},
		`{"view_range":[]}`:         {inner: inner{Range: []int{}}},
		`{"view_range":""}`:         {},
		`{"files":"[\"a\",\"b\"]"}`: {Files: []string{"a", "b"}},
		`{"files":"a"}`:             {Files: []string{"a"}},
		`{"files":["a"]}`:           {Files: []string{"a"}},
		`{"name":"x","name":"y"}`:   {Name: "y"},
		`{"name":"[1]"}`:            {Name: "[1]"},
		`{"name":" 7 "}`:            {Name: " 7 "},
		`{"name":"\ud800"}`:         {Name: "\uFFFD"},
	} {
		var got sample
		if err := DecodeKnown(json.RawMessage(in), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v %v", in, got, err)
		}
	}
	var got sample
	if err := Decode(json.RawMessage(`{"description":"Say hi","Name":"no","name":"x"}`), &got); err != nil ||
		got.Name != "x" {
		t.Errorf("%+v %v", got, err)
	}
}

func TestWhatIsNotIsRefusedInWords(t *testing.T) {
	for in, want := range map[string]string{
		`{"name":7}`:                            `name must be a string, not the number 7`,
		`{"name":["a"]}`:                        `name must be a string, not the list ["a"]`,
		`{"name":true}`:                         `name must be a string, not true`,
		`{"text":{"a":1}}`:                      `text must be a string, not an object`,
		`{"restart":"yes"}`:                     `restart must be true or false, not the string "yes"`,
		`{"restart":[]}`:                        `restart must be true or false, not the list []`,
		`{"seconds":"soon"}`:                    `seconds must be a number, not the string "soon"`,
		`{"seconds":"NaN"}`:                     `seconds must be a number`,
		`{"seconds":"0x10"}`:                    `seconds must be a number`,
		`{"seconds":1e999}`:                     `seconds must be a number`,
		`{"line":1.5}`:                          `line must be an integer, not the number 1.5`,
		`{"line":"two"}`:                        `line must be an integer, not the string "two"`,
		`{"limit":1e300}`:                       `limit must be an integer, not the number 1e300`,
		`{"view_range":5}`:                      `view_range must be a list of two integers, not the number 5`,
		`{"view_range":"all"}`:                  `view_range must be a list of two integers, not the string "all"`,
		`{"view_range":[1,"x"]}`:                `view_range must be a list of two integers, not the list [1,"x"]`,
		`{"view_range":[1,null]}`:               `view_range must be a list of two integers, not the list [1,null]`,
		`{"view_range":{"start":1}}`:            `view_range must be a list of two integers, not an object`,
		`{"files":[1]}`:                         `files must be a list, each item a string, not the list [1]`,
		`{"nmae":"x"}`:                          `argument "nmae" is unknown; the tool has files, limit, line, name, restart`,
		`[]`:                                    `the input must be an object with the arguments of the tool, not the list []`,
		`"ls"`:                                  `the input must be an object with the arguments of the tool, not the string "ls"`,
		`{"name":"x"`:                           `the input is not valid JSON at byte`,
		`{"name":"` + strings.Repeat("x", 5000): `the input is not valid JSON`,
		`{"line":"` + strings.Repeat("x", 5000) + `"}`: `line must be an integer, not the string "xxx`,
	} {
		var got sample
		err := DecodeKnown(json.RawMessage(in), &got)
		if proto.CodeOf(err) != proto.InvalidArgument || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%.100s: %v, want %s", in, err, want)
		}
		for _, word := range []string{"Go ", "struct", "unmarshal", "strconv", "toolinput"} {
			if strings.Contains(err.Error(), word) {
				t.Errorf("%.100s: %v", in, err)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"name":"x","view_range":"[1,2]"}`, `{"line":"1e400"}`, `"{\"limit\":\"9007199254740993\"}"`,
		`{"files":"[\"\"]"}`, `{"view_range":[[1],2]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v sample
		if err := DecodeKnown(data, &v); err != nil && proto.CodeOf(err) != proto.InvalidArgument {
			t.Fatal(err)
		}
	})
}

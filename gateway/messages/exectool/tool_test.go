package exectool

import (
	"encoding/json"
	"strings"
	"testing"

	"berth/gateway/messages/rawjson"
)

func TestToolsAsTheUpstreamGetsThem(t *testing.T) {
	b, err := ReadTools(json.RawMessage(
		`[{"name":"a","odd": 1.0},{"type":"code_execution_20250825","name":"code_execution","cache_control":{"type":"ephemeral"}},{"type":"web_search_20250305","name":"web_search"},{"name":"b","allowed_callers":["direct"]}]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Describe(" And skills.")
	var names []string
	for i, raw := range b.Upstream {
		o, err := rawjson.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, o.Text("name"))
		if own := i == 1 || i == 2; own != o.Has("input_schema") || own && !json.Valid(o.Get("input_schema")) ||
			o.Has("cache_control") != (i == 2) || strings.HasSuffix(o.Text("description"), " And skills.") != (i == 1) || o.Has("allowed_callers") {
			t.Errorf("%d: %s", i, raw)
		}
	}
	if got := strings.Join(names, " "); got != "a bash_code_execution text_editor_code_execution web_search b" ||
		string(b.Upstream[0]) != `{"name":"a","odd": 1.0}` {
		t.Error(got)
	}
}

// A choice that forces a tool would force it in every round.
func TestToolChoiceIsForcedOnce(t *testing.T) {
	b, err := ReadTools(json.RawMessage(`[{"type":"code_execution_20250825","name":"code_execution"}]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ in, first, later string }{
		{`{"type":"auto","disable_parallel_tool_use":true}`, `{"type":"auto","disable_parallel_tool_use":true}`,
			`{"type":"auto","disable_parallel_tool_use":true}`},
		{`{"type":"any"}`, `{"type":"any"}`, `{"type":"auto"}`},
		{`{"type":"tool","name":"code_execution"}`, `{"type":"tool","name":"bash_code_execution"}`, `{"type":"auto"}`},
		{`{"type":"tool","name":"mine"}`, `{"type":"tool","name":"mine"}`, `{"type":"auto"}`},
		{`{"type":"none"}`, `{"type":"none"}`, `{"type":"none"}`},
	} {
		if first, later := string(b.UpstreamChoice(json.RawMessage(c.in), true)),
			string(b.UpstreamChoice(json.RawMessage(c.in), false)); first != c.first || later != c.later {
			t.Errorf("%s: %s, then %s", c.in, first, later)
		}
	}
}

func TestSchemasThatLeadNowhere(t *testing.T) {
	deep := strings.Repeat(`{"items":`, 100) + `{}` + strings.Repeat(`}`, 100)
	wide := `{"$defs":{` // each refers to the next one twice
	for i := range 40 {
		wide += `"d` + string(rune('0'+i)) + `":{"a":{"$ref":"#/$defs/d` + string(rune('1'+i)) +
			`"},"b":{"$ref":"#/$defs/d` + string(rune('1'+i)) + `"}},`
	}
	wide += `"z":{}},"$ref":"#/$defs/d0"}`
	for schema, bad := range map[string]bool{
		`{"type":"object"}`: false, `{"$ref":"#"}`: true, `{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"}}}`: false,
		deep: true, wide: true, `{"$ref":"https://elsewhere"}`: false,
		`{"properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"properties":{"next":{"$ref":"#/$defs/n"}}}}}`: true,
		``: false,
	} {
		if err := checkRefs(json.RawMessage(schema)); (err != nil) != bad {
			t.Errorf("%.80s: %v", schema, err)
		}
	}
}

func TestIDsAreTakenBack(t *testing.T) {
	for _, id := range []string{"toolu_01AbC", "call_x-1", "toolu_a-b", "toolu_0xff", "srvtoolu_1", "", "é"} {
		server := serverID(id)
		if !word.MatchString(server) || UpstreamID(server) != id && id != "" {
			t.Errorf("%q is %q and then %q", id, server, UpstreamID(server))
		}
	}
	if serverID("toolu_1") != "srvtoolu_1" || UpstreamID("srvtoolu_0x") != "toolu_0x" {
		t.Error("IDs that need not be written in another way are")
	}
}

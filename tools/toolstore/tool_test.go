package toolstore

import (
	"strings"
	"testing"

	"berth/proto"
)

func TestToolsAreChecked(t *testing.T) {
	good := func() NewTool {
		return NewTool{Name: "t", ToolType: "code_runner", Configuration: Configuration{Type: "CodeRunner",
			Runtime: "python", Code: "def run(input): pass"}}
	}
	if tool := good(); tool.check() != nil {
		t.Fatal(tool.check())
	}
	for item, spoil := range map[string]func(*NewTool){
		"name":                          func(t *NewTool) { t.Name = "a/b" },
		"description":                   func(t *NewTool) { t.Description = strings.Repeat("d", 5000) },
		"tool_type":                     func(t *NewTool) { t.ToolType = "CODE_RUNNER" },
		"approval_action":               func(t *NewTool) { t.ApprovalAction = "Review" },
		"configuration.type":            func(t *NewTool) { t.Configuration.Type = "coderunner" },
		"configuration.runtime":         func(t *NewTool) { t.Configuration.Runtime = "Python" },
		"configuration.code":            func(t *NewTool) { t.Configuration.Code = " \n" },
		"configuration.timeout_seconds": func(t *NewTool) { t.Configuration.TimeoutSeconds = -1 },
		"configuration.env_variables": func(t *NewTool) {
			t.Configuration.EnvVariables = map[string]string{
				"1A": "x"}
		},
		"configuration.env_variables.A": func(t *NewTool) {
			t.Configuration.EnvVariables = map[string]string{
				"A": "\x00"}
		},
		"configuration.input_schema.0.name": func(t *NewTool) {
			t.Configuration.InputSchema = []Field{
				{FieldType: "STRING"}}
		},
		"configuration.output_schema.0.items_type": func(t *NewTool) {
			t.Configuration.OutputSchema = []Field{{Name: "a", FieldType: "ARRAY", ItemsType: "x"}}
		},
	} {
		tool := good()
		spoil(&tool)
		if err := tool.check(); proto.AsError(err).Item != item || !strings.Contains(proto.AsError(err).Message, item) {
			t.Errorf("%s: %v", item, err)
		}
	}
	large := good()
	if large.Configuration.Code = strings.Repeat("x", MaxCode+1); proto.CodeOf(large.check()) != proto.TooLarge {
		t.Errorf("%v", large.check())
	}
}

func TestProviderKeys(t *testing.T) {
	for pair, want := range map[[2]string]string{
		{"OPENAI_API_KEY", "sk-1234"}: "", {"x", "sk-1234"}: "one of OPENAI_API_KEY", {"", ""}: "one of",
		{"GEMINI_API_KEY", "abc"}: "GEMINI_API_KEY is no key", {"GEMINI_API_KEY", ""}: "is no key",
	} {
		if err := CheckProviderKey(pair[0], pair[1]); (err == nil) != (want == "") || err != nil &&
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", pair, err)
		}
	}
}

package native

import (
	"maps"
	"reflect"
	"slices"

	"berth/code"
	"berth/proto"
	"berth/tools/toolstore"
	"berth/tools/tooluse"
)

// Patterns of texts. Each is what the core checks, in the words of JSON schema.
const (
	noNUL     = `^[^\x00]*$`
	printable = `^[^\x00-\x1f\x7f-\x9f]*$`
	nameOrNot = `^([0-9A-Za-z][0-9A-Za-z_-]{0,63})?$` // of a job or a shell; left out and empty are the same
)

// imageName is what an image may be called, as far as a pattern can tell.
// The core knows more: lengths of the whole and what is there. A pattern that said it all would be
// wrong before long.
const imageName = `^[0-9a-z]+((\.|_|__|-+)[0-9a-z]+)*(/[0-9a-z]+((\.|_|__|-+)[0-9a-z]+)*){0,3}(:[0-9A-Za-z_][0-9A-Za-z_.-]{0,127})?$`

// hostPattern is a host of an allow-list, as far as a pattern can tell: a name, with or without a star for its first
// label, or an address, and a port.
const hostPattern = `^(\*\.)?([^\s/@:*?#%\[\]\\]+|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?$`

// signals are the names that a command can be sent, as Linux has them.
const signals = `^(SIG)?(ABRT|ALRM|BUS|CHLD|CONT|FPE|HUP|ILL|INT|IO|KILL|PIPE|PROF|PWR|QUIT|SEGV|STKFLT|STOP|SYS|TERM|TRAP|TSTP|TTIN|TTOU|URG|USR1|USR2|VTALRM|WINCH|XCPU|XFSZ)$`

// given is an object that has a text under a name.
func given(name string) schema {
	return schema{"required": []string{name}, "properties": schema{name: schema{"minLength": 1}}}
}

// blank is a text of nothing but white space.
const blank = `^\s*$`

// typeBounds say of whole types what no field says alone. They hold for types that embed them, too.
var typeBounds = map[string]schema{
	// Empty and left out are the same. A context belongs to a container, which has its image, and the context its
	// environment.
	"Program": {"allOf": []any{
		schema{"if": given("container"), "then": schema{"properties": schema{"image": schema{"maxLength": 0}}}},
		schema{"if": given("context"), "then": schema{
			"required": []string{"container"},
			"properties": schema{"container": schema{"minLength": 1}, "env": schema{"maxProperties": 0},
				"secrets": schema{"maxProperties": 0}},
		}},
	}},
	// The second of both may be there and be empty, as clients that always send every field have it.
	"Cmd": {"oneOf": []any{
		schema{"required": []string{"command"}, "properties": schema{"command": schema{"minLength": 1},
			"argv": schema{"maxItems": 0}}},
		schema{"required": []string{"argv"}, "properties": schema{"argv": schema{"minItems": 1}, "command": schema{
			"maxLength": 0}}},
	}},
	"Field": {"anyOf": []any{
		schema{"properties": schema{"field_type": schema{"const": "ARRAY"}}},
		schema{"properties": schema{"items_type": schema{"const": ""}}},
	}},
}

// bounds narrow the schemas of fields further than their types do. A fuzzer that follows the document holds the two
// against each other: what they allow is accepted, and what they exclude is refused.
func bounds(i Info) map[string]schema {
	// Limits are the daemon's settings, so the document of each daemon says what that one allows.
	most := i.DefaultLimits
	// A name with '=' would end up as another name with another value.
	env := schema{"maxProperties": 256, "propertyNames": schema{"pattern": `^[^=\x00]+$`},
		"additionalProperties": schema{"type": "string", "pattern": noNUL}}
	// At least 4 bytes: shorter values would be found, and blackened, all over an output that has
	// nothing to do with them.
	secrets := schema{"maxProperties": 256, "propertyNames": schema{"pattern": `^[^=\x00]+$`},
		"additionalProperties": schema{"type": "string", "pattern": noNUL, "minLength": 4, "maxLength": 64 << 10}}
	// Printable ASCII, since the same key may travel in a header.
	retryKey := schema{"pattern": "^[ -~]{0,255}$"}
	toolName := schema{"pattern": "^[A-Za-z][0-9A-Za-z_-]{0,63}$", "not": schema{"pattern": "^tool_[0-9A-Za-z]{22}$"}}
	callable := schema{"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$",
		"not": schema{"const": proto.ReservedTool}}
	approvals := schema{"enum": []any{"", toolstore.ApprovalReview}}
	users := schema{"enum": []any{"", proto.UserDefault, proto.UserRoot}}
	path := schema{"minLength": 1, "pattern": noNUL}
	return map[string]schema{
		"CreateContainer.labels": {"maxProperties": 64, "propertyNames": schema{"pattern": printable, "minLength": 1,
			"maxLength": 256},
			"additionalProperties": schema{"type": "string", "pattern": printable, "maxLength": 256}},
		"CreateContainer.env":              env,
		"CreateContainer.secrets":          secrets,
		"CreateContainer.idempotency_key":  retryKey,
		"CreateContainer.network" + orWord: {"type": "string", "enum": anys(i.modes())},
		"CreateContainer.network":          i.networks(),
		"Network.mode": {"enum": []any{"", proto.NetworkNone, proto.NetworkAllowlist,
			proto.NetworkOpen}},
		"Network.allow": {"items": schema{"type": "string", "pattern": hostPattern},
			"maxItems": 256},
		"CodeTools.allow": {"maxItems": 128, "items": schema{
			"oneOf": []any{callable, schema{"$ref": "#/components/schemas/AllowedTool"}}}},
		"CodeTools.max_calls":       {"minimum": 0, "maximum": 100_000},
		"CodeTools.timeout_seconds": {"minimum": 0, "maximum": 3600},
		"AllowedTool.name":          callable,
		"AllowedTool.approval":      {"enum": []any{"", proto.ApprovalAllow, proto.ApprovalReview}},
		"ToolProvider.type": {"enum": []any{"", proto.ProviderClient, proto.ProviderHTTP,
			proto.ProviderMCP}},
		"ToolProvider.url":                     {"maxLength": 2048},
		"ToolProvider.headers":                 {"maxProperties": 32},
		"ToolProvider.tools":                   {"maxItems": 128},
		"ToolSpec.name":                        callable,
		"ToolSpec.description":                 {"maxLength": 16 << 10},
		"ToolCall.state":                       {"enum": anys(proto.ToolCallStates)},
		"CreateContainer.idle_timeout_seconds": {"minimum": 0, "maximum": 30 * 24 * 3600},
		"CreateContainer.max_lifetime_seconds": {"minimum": 0, "maximum": 365 * 24 * 3600},
		"CreateContainer.runtime_class":        {"enum": []any{"", proto.ClassRunc, proto.ClassGVisor}},
		"Limits.cpus":                          orZero(0.01, most.CPUs),
		"Limits.memory_bytes":                  orZero(16<<20, most.MemoryBytes),
		"Limits.pids":                          orZero(16, most.PIDs),
		"Limits.disk_bytes":                    orZero(16<<20, most.DiskBytes),
		"Limits.open_files":                    orZero(256, most.OpenFiles),
		"Cmd.command":                          {"maxLength": 1 << 20, "pattern": noNUL},
		"Cmd.argv": {"prefixItems": []any{schema{"type": "string", "minLength": 1,
			"pattern": noNUL}}, "items": schema{"type": "string", "pattern": noNUL}},
		"Cmd.shell":           {"pattern": nameOrNot, "not": schema{"const": proto.InputsDir}},
		"Cmd.job_id":          {"pattern": nameOrNot, "not": schema{"const": proto.InputsDir}},
		"Cmd.cwd":             {"maxLength": 4095, "pattern": noNUL},
		"Cmd.env":             env,
		"Cmd.secrets":         secrets,
		"Cmd.idempotency_key": retryKey,
		"Cmd.user":            users,
		// 24 hours.
		"Cmd.timeout_seconds":  {"minimum": 0, "maximum": 86400},
		"Cmd.max_output_bytes": {"minimum": 0, "maximum": 16 << 20},
		"Cmd.on_output_limit": {"enum": []any{"", proto.OutputTruncate, proto.OutputFail,
			proto.OutputWait}},
		"Program.code": {"minLength": 1, "maxLength": proto.MaxCode, "pattern": noNUL,
			"not": schema{"pattern": blank}},
		"Program.language":         {"enum": languages()},
		"Program.env":              env,
		"Program.secrets":          secrets,
		"Program.network" + orWord: {"type": "string", "enum": anys(i.modes())},
		"Program.network":          i.networks(),
		"Program.context":          {"pattern": nameOrNot},
		"Program.timeout_seconds":  {"minimum": 0, "maximum": 86400},
		"Program.max_output_bytes": {"minimum": 0, "maximum": 16 << 20},
		"Script.language":          {"enum": anys(code.ScriptLanguages)},
		"Script.code": {"minLength": 1, "maxLength": proto.MaxCode, "pattern": noNUL,
			"not": schema{"pattern": blank}},
		"Cell.code": {"minLength": 1, "maxLength": proto.MaxCode, "pattern": noNUL,
			"not": schema{"pattern": blank}},
		"Cell.language":         {"enum": languages()},
		"Cell.timeout_seconds":  {"minimum": 0, "maximum": 86400},
		"Cell.max_output_bytes": {"minimum": 0, "maximum": 16 << 20},
		"NewContext.name": {"pattern": "^[0-9A-Za-z][0-9A-Za-z_-]{0,63}$",
			"not": schema{"const": proto.InputsDir}},
		"NewContext.language":        {"enum": languages()},
		"NewContext.job_id":          {"pattern": nameOrNot, "not": schema{"const": proto.InputsDir}},
		"NewContext.env":             env,
		"NewContext.secrets":         secrets,
		"NewTool.name":               toolName,
		"NewTool.description":        {"maxLength": 4096},
		"NewTool.tool_type":          {"const": "code_runner"},
		"NewTool.approval_action":    approvals,
		"ChangeTool.name":            toolName,
		"ChangeTool.description":     {"maxLength": 4096},
		"ChangeTool.tool_type":       {"const": "code_runner"},
		"ChangeTool.approval_action": approvals,
		"Configuration.type":         {"const": "CodeRunner"},
		"Configuration.runtime":      {"const": "python"},
		"Configuration.code": {"minLength": 1, "maxLength": toolstore.MaxCode, "pattern": noNUL,
			"not": schema{"pattern": blank}},
		"Configuration.timeout_seconds": orZero(0.1, 3600.0),
		"Configuration.env_variables": {"maxProperties": 64, "propertyNames": schema{
			"pattern": "^[A-Za-z_][0-9A-Za-z_]{0,127}$"}, "additionalProperties": schema{"type": "string",
			"pattern": noNUL, "maxLength": 32 << 10}},
		"Configuration.input_schema":      {"maxItems": 128},
		"Configuration.output_schema":     {"maxItems": 128},
		"Field.name":                      {"pattern": "^[0-9A-Za-z_.-]{1,64}$"},
		"Field.field_type":                {"enum": anys(toolstore.FieldTypes)},
		"Field.items_type":                {"enum": append([]any{""}, anys(toolstore.FieldTypes)...)},
		"Field.description":               {"maxLength": 4096},
		"RunRequest.input":                {"type": "object"},
		"RunRequest.version":              {"minimum": 0},
		"RunRequest.idempotency_key":      retryKey,
		"Run.state":                       {"enum": anys(proto.ToolRunStates)},
		"Refusal.reason":                  {"maxLength": 1000},
		"WindowSize.rows":                 {"minimum": 1, "maximum": 65535},
		"WindowSize.cols":                 {"minimum": 1, "maximum": 65535},
		"Message.rows":                    {"maximum": 65535},
		"Message.cols":                    {"maximum": 65535},
		"Message.ref":                     {"maxLength": maxRef},
		"Extension.seconds":               {"minimum": 0, "maximum": 30 * 24 * 3600},
		"Move.from":                       path,
		"Move.to":                         path,
		"Move.as":                         users,
		"Directory.path":                  path,
		"Directory.as":                    users,
		"Publication.path":                {"minLength": 1, "pattern": `^[^/\x00][^\x00]*$`},
		"Pull.ref":                        {"pattern": imageName},
		"SignalRequest.signal":            {"pattern": signals},
		"Use.type":                        {"enum": []any{"server_tool_use", "tool_use"}},
		"Use.id":                          {"minLength": 1},
		"Use.name":                        {"enum": anys(tooluse.Names())},
		"CreateKey.name":                  {"maxLength": 128, "pattern": printable},
		"CreateKey.owner":                 {"pattern": `^([0-9A-Za-z][0-9A-Za-z._-]{0,63})?$`},
		"CreateKey.expires_in_seconds":    {"minimum": 0, "maximum": 10 * 365 * 24 * 3600},
		"Quota.sessions":                  {"minimum": 0, "maximum": 1_000_000},
		"Quota.cpu_seconds_per_day":       orZero(0.001, 0.0),
		"Quota.storage_bytes":             {"minimum": 0},
		"Quota.requests_per_second":       orZero(0.001, 1e6),
		"Quota.burst":                     {"minimum": 0, "maximum": 1_000_000},
		"QuotaChange.sessions":            {"minimum": 0, "maximum": 1_000_000},
		"QuotaChange.cpu_seconds_per_day": orZero(0.001, 0.0),
		"QuotaChange.storage_bytes":       {"minimum": 0},
		"QuotaChange.requests_per_second": orZero(0.001, 1e6),
		"QuotaChange.burst":               {"minimum": 0, "maximum": 1_000_000},
		"ChangeKey.name":                  {"maxLength": 128, "pattern": printable},
	}
}

// modes are the network modes that this daemon gives to containers; the empty one is for who does not say.
func (i Info) modes() []proto.NetworkMode {
	all := []proto.NetworkMode{"", proto.NetworkNone, proto.NetworkAllowlist, proto.NetworkOpen}
	return slices.DeleteFunc(all, func(m proto.NetworkMode) bool { return !i.NetworkMax.Covers(m) })
}

// networks are the networks that this daemon gives. A list goes with one mode alone.
func (i Info) networks() schema {
	noList := schema{"properties": schema{"mode": schema{"enum": anys(i.modes())}, "allow": schema{"maxItems": 0}}}
	if !i.NetworkMax.Covers(proto.NetworkAllowlist) {
		return noList
	}
	return schema{"anyOf": []any{noList,
		schema{"properties": schema{"mode": schema{"enum": []any{"", proto.NetworkAllowlist}}}}}}
}

// orZero is from least to most, or 0, which stands for the default. A most of 0 is no bound.
func orZero[T int64 | float64](least, most T) schema {
	s := schema{"minimum": least}
	if most > 0 {
		s["maximum"] = most
	}
	return schema{"anyOf": []any{schema{"const": 0}, s}}
}

func anys[T any](list []T) (out []any) {
	for _, v := range list {
		out = append(out, v)
	}
	return out
}

// languages are all names that a language may be given by; left out and empty are the same.
func languages() []any { return append([]any{""}, anys(code.Names())...) }

// A catalogue collects the schemas of named types, which the document has once each.
type catalogue struct {
	schemas map[string]schema
	bounds  map[string]schema
}

// bound narrows the schema of a field.
func (c catalogue) bound(name string, s schema) {
	maps.Copy(s, c.bounds[name])
}

// seal says that a body of this type is refused if it, or a part of it, has fields that are not listed. What is in
// answers alone is left open, since a later version may add to it.
func (c catalogue) seal(v any) {
	c.of(v)
	c.sealType(reflect.TypeOf(v))
}

func (c catalogue) sealType(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		c.sealType(t.Elem())
		return
	case reflect.Struct:
	default:
		return
	}
	// Types with JSON of their own are left as they are: their fields are not what is on the wire.
	if s, named := c.schemas[schemaName(t)]; named && special[t] == nil {
		s["additionalProperties"] = false
	}
	for f := range fieldsOf(t) {
		c.sealType(f.t)
	}
}

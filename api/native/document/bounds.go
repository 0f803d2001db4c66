package document

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"berth/api/openapi"
	"berth/proto"
)

type schema = openapi.Schema

// NoNUL is the pattern of text without NUL bytes.
const NoNUL = `^[^\x00]*$`

// Patterns of strings. The core checks the same.
const (
	printable = openapi.Printable
	nameOrNot = `^([0-9A-Za-z][0-9A-Za-z_-]{0,63})?$` // of a job, a shell or a context; empty means left out

	// a host of an allow-list: a name, with or without a star for its first label, or an address, and a port
	hostPattern = `^(\*\.)?([^\s/@:*?#%\[\]\\]+|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?$`
)

// imagePattern covers the part of the core's rule for image names that a pattern can express.
var imagePattern = strings.ReplaceAll(`^PART(/PART){0,3}(:[0-9A-Za-z_][0-9A-Za-z_.-]{0,127})?$`, "PART",
	`[0-9a-z]+((\.|_|__|-+)[0-9a-z]+)*`)

// signalPattern lists the signals that a command can get.
var signalPattern = `^(SIG)?(` + strings.ReplaceAll("ABRT ALRM BUS CHLD CONT FPE HUP ILL INT IO KILL PIPE PROF PWR "+
	"QUIT SEGV STKFLT STOP SYS TERM TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ", " ", "|") + `)$`

// bounds returns the bounds that schema tags name. Limits and networks are settings of the daemon, so each daemon
// documents its own.
func (c Config) bounds() map[string]schema {
	reserved := schema{"const": proto.InputsDir}
	text := schema{"type": "string", "pattern": NoNUL}
	mapOf := func(most int, names, values schema) schema {
		return schema{"maxProperties": most, "propertyNames": names, "additionalProperties": values}
	}
	envName := schema{"pattern": `^[^=\x00]+$`} // a name with '=' would set another variable
	callable := schema{"type": "string", "pattern": `^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`,
		"not": schema{"const": proto.ReservedTool}}
	return map[string]schema{
		"noNUL":     {"pattern": NoNUL},
		"printable": {"pattern": printable},
		"user":      {"pattern": printable, "maxLength": 256},
		"name":      {"pattern": nameOrNot},
		"jobName":   {"pattern": nameOrNot, "not": reserved},
		"newName":   {"pattern": `^[0-9A-Za-z][0-9A-Za-z_-]{0,63}$`, "not": reserved},
		"image":     {"pattern": imagePattern},
		"signal":    {"pattern": signalPattern},
		"retryKey":  {"pattern": "^[ -~]{0,255}$"}, // printable ASCII, since it may travel in a header
		"toolName":  {"pattern": "^[A-Za-z][0-9A-Za-z_-]{0,63}$", "not": schema{"pattern": "^tool_[0-9A-Za-z]{22}$"}},
		"source":    {"minLength": 1, "pattern": NoNUL, "not": schema{"pattern": `^\s*$`}},
		"labels": mapOf(64, schema{"pattern": printable, "minLength": 1, "maxLength": 256},
			schema{"type": "string", "pattern": printable, "maxLength": 256}),
		"env": mapOf(256, envName, text),
		// At least 4 bytes: redaction of shorter values would mask unrelated output.
		"secrets": mapOf(256, envName, schema{"type": "string", "pattern": NoNUL, "minLength": 4,
			"maxLength": 64 << 10}),
		"toolEnv": mapOf(64, schema{"pattern": "^[A-Za-z_][0-9A-Za-z_]{0,127}$"}, schema{"type": "string",
			"pattern": NoNUL, "maxLength": 32 << 10}),
		"argv":  {"items": text, "prefixItems": []any{schema{"type": "string", "minLength": 1, "pattern": NoNUL}}},
		"hosts": {"items": schema{"type": "string", "pattern": hostPattern}},
		"callables": {"items": schema{"oneOf": []any{callable,
			schema{"$ref": "#/components/schemas/AllowedTool"}}}},
		"callable":     callable,
		"object":       {"type": "object"},
		"network":      c.networks(),
		"networkMode":  {"type": "string", "enum": c.modes()},
		"runtimeClass": {"type": "string", "enum": append([]proto.RuntimeClass{""}, c.RuntimeClasses...)},
		"cpus":         openapi.Between("0.01", number(c.Limits.CPUs)),
		"memory":       openapi.Between("16777216", number(c.Limits.MemoryBytes)),
		"pids":         openapi.Between("16", number(c.Limits.PIDs)),
		"disk":         openapi.Between("16777216", number(c.Limits.DiskBytes)),
		"openFiles":    openapi.Between("256", number(c.Limits.OpenFiles)),
	}
}

// number writes a bound; 0 is none.
func number[T int64 | float64](n T) json.Number {
	if n == 0 {
		return ""
	}
	return json.Number(fmt.Sprint(n))
}

// modes are the network modes that this daemon allows; the empty one is the default.
func (c Config) modes() []proto.NetworkMode {
	all := []proto.NetworkMode{"", proto.NetworkNone, proto.NetworkAllowlist, proto.NetworkOpen}
	return slices.DeleteFunc(all, func(m proto.NetworkMode) bool { return !c.NetworkMax.Covers(m) })
}

// networks are the networks that this daemon allows. Only the mode allowlist may have a list of hosts.
func (c Config) networks() schema {
	noList := schema{"properties": schema{"mode": schema{"enum": c.modes()}, "allow": schema{"maxItems": 0}}}
	if !c.NetworkMax.Covers(proto.NetworkAllowlist) {
		return noList
	}
	return schema{
		"if":   schema{"required": []string{"allow"}, "properties": schema{"allow": schema{"minItems": 1}}},
		"then": schema{"properties": schema{"mode": schema{"enum": []any{"", proto.NetworkAllowlist}}}},
		"else": noList,
	}
}

// given is an object with a non-empty string of this name.
func given(name string) schema {
	return schema{"required": []string{name}, "properties": schema{name: schema{"minLength": 1}}}
}

// typeRules are rules across several fields of a type. They apply to types that embed it, too.
var typeRules = map[string]schema{
	// Empty means left out. A context belongs to a container, which has an image, and has its own environment.
	"Program": {"allOf": []any{
		schema{"if": given("container"), "then": schema{"properties": schema{"image": schema{"maxLength": 0}}}},
		schema{"if": given("context"), "then": schema{
			"required": []string{"container"},
			"properties": schema{"container": schema{"minLength": 1}, "env": schema{"maxProperties": 0},
				"secrets": schema{"maxProperties": 0}},
		}},
	}},
	// The other one may be present and empty, since some clients always send every field.
	"Cmd": {
		"if":   schema{"required": []string{"argv"}, "properties": schema{"argv": schema{"minItems": 1}}},
		"then": schema{"properties": schema{"command": schema{"maxLength": 0}}},
		"else": given("command"),
	},
	"ToolField": {
		"if": given("items_type"),
		"then": schema{"required": []string{"field_type"},
			"properties": schema{"field_type": schema{"const": "ARRAY"}}},
	},
}

package native

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"berth/api/openapi"
	"berth/code"
	"berth/proto"
	"berth/tools/toolstore"
	"berth/tools/toolstore/field"
	"berth/tools/tooluse"
)

type schema = openapi.Schema

// Patterns of strings. The core checks the same.
const (
	noNUL     = `^[^\x00]*$`
	printable = `^[^\x00-\x1f\x7f-\x9f]*$`
	nameOrNot = `^([0-9A-Za-z][0-9A-Za-z_-]{0,63})?$` // of a job, a shell or a context; empty means left out

	// a host of an allow-list: a name, with or without a star for its first label, or an address, and a port
	hostPattern = `^(\*\.)?([^\s/@:*?#%\[\]\\]+|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?$`

	callablePattern = `^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`
)

// imagePattern covers the part of the core's rule for image names that a pattern can express.
var imagePattern = strings.ReplaceAll(`^PART(/PART){0,3}(:[0-9A-Za-z_][0-9A-Za-z_.-]{0,127})?$`, "PART",
	`[0-9a-z]+((\.|_|__|-+)[0-9a-z]+)*`)

// signalPattern lists the signals that a command can get.
var signalPattern = `^(SIG)?(` + strings.ReplaceAll("ABRT ALRM BUS CHLD CONT FPE HUP ILL INT IO KILL PIPE PROF PWR "+
	"QUIT SEGV STKFLT STOP SYS TERM TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ", " ", "|") + `)$`

// states are the states of a container.
var states = []proto.State{proto.StateCreating, proto.StateRunning, proto.StatePaused, proto.StateStopped,
	proto.StateExpired}

// enums lists the values of string types. A test compares them with the constants of package proto.
var enums = map[reflect.Type][]any{
	reflect.TypeFor[proto.State]():         anys(states),
	reflect.TypeFor[proto.ToolCallState](): anys(proto.ToolCallStates),
	reflect.TypeFor[proto.ToolRunState]():  anys(proto.ToolRunStates),
	reflect.TypeFor[proto.RuntimeClass]():  {proto.ClassRunc, proto.ClassGVisor},
	reflect.TypeFor[proto.NetworkMode]():   {proto.NetworkNone, proto.NetworkAllowlist, proto.NetworkOpen},
	reflect.TypeFor[proto.ExecState]():     {proto.ExecRunning, proto.ExecEnded},
	reflect.TypeFor[proto.FileType]():      {proto.TypeFile, proto.TypeDirectory, proto.TypeSymlink, proto.TypeOther},
	reflect.TypeFor[proto.EndReason](): {proto.EndExit, proto.EndSignal, proto.EndTimeout, proto.EndOutOfMemory,
		proto.EndDiskQuota, proto.EndPIDLimit, proto.EndOutputLimit, proto.EndKilled, proto.EndCanceled,
		proto.EndExpired, proto.EndStopped, proto.EndHostRestart, proto.EndLost, proto.EndNotStarted},
	reflect.TypeFor[proto.EventType](): {proto.EventStart, proto.EventStdout, proto.EventStderr, proto.EventGap,
		proto.EventExit, proto.EventError, proto.EventReady},
	reflect.TypeFor[proto.BlockError](): {proto.BlockInvalidInput, proto.BlockUnavailable, proto.BlockTooMany,
		proto.BlockTimeExceeded, proto.BlockTooLarge, proto.BlockFileNotFound},
	reflect.TypeFor[proto.Code](): {proto.InvalidArgument, proto.Unauthenticated, proto.PermissionDenied,
		proto.NotFound, proto.AlreadyExists, proto.Conflict, proto.Expired, proto.TooLarge, proto.TooMany,
		proto.QuotaExceeded, proto.TimedOut, proto.Canceled, proto.Unavailable, proto.Unsupported, proto.Internal},
}

// special holds types whose JSON does not follow from their fields.
var special = map[reflect.Type]schema{
	reflect.TypeFor[proto.Time]():      {"type": "string", "format": "date-time"},
	reflect.TypeFor[time.Time]():       {"type": "string", "format": "date-time"},
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[[]byte]():          {"type": "string", "contentEncoding": "base64"},
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
	"Cmd": {"oneOf": []any{
		schema{"required": []string{"command"}, "properties": schema{"command": schema{"minLength": 1},
			"argv": schema{"maxItems": 0}}},
		schema{"required": []string{"argv"}, "properties": schema{"argv": schema{"minItems": 1},
			"command": schema{"maxLength": 0}}},
	}},
	"Field": {"anyOf": []any{
		schema{"properties": schema{"field_type": schema{"const": "ARRAY"}}},
		schema{"properties": schema{"items_type": schema{"const": ""}}},
	}},
}

// namedBounds are the bounds that the schema tags of fields name. Limits and networks are settings of the daemon, so
// each daemon documents its own.
func namedBounds(i Info) map[string]schema {
	most, reserved := i.DefaultLimits, schema{"const": proto.InputsDir}
	text := schema{"type": "string", "pattern": noNUL}
	mapOf := func(most int, names, values schema) schema {
		return schema{"maxProperties": most, "propertyNames": names, "additionalProperties": values}
	}
	envName := schema{"pattern": `^[^=\x00]+$`} // a name with '=' would set another variable
	source := func(most int) schema {
		return schema{"minLength": 1, "maxLength": most, "pattern": noNUL, "not": schema{"pattern": `^\s*$`}}
	}
	callable := schema{"type": "string", "pattern": callablePattern, "not": schema{"const": proto.ReservedTool}}
	languages := append([]any{""}, anys(code.Names())...)
	return map[string]schema{
		"noNUL":     {"pattern": noNUL},
		"printable": {"pattern": printable},
		"name":      {"pattern": nameOrNot},
		"jobName":   {"pattern": nameOrNot, "not": reserved},
		"newName":   {"pattern": `^[0-9A-Za-z][0-9A-Za-z_-]{0,63}$`, "not": reserved},
		"image":     {"pattern": imagePattern},
		"signal":    {"pattern": signalPattern},
		"belowJob":  {"pattern": `^[^/\x00][^\x00]*$`},
		"owner":     {"pattern": `^([0-9A-Za-z][0-9A-Za-z._-]{0,63})?$`},
		"retryKey":  {"pattern": "^[ -~]{0,255}$"}, // printable ASCII, since it may travel in a header
		"toolName": {"pattern": "^[A-Za-z][0-9A-Za-z_-]{0,63}$",
			"not": schema{"pattern": "^tool_[0-9A-Za-z]{22}$"}},
		"fieldName": {"pattern": "^[0-9A-Za-z_.-]{1,64}$"},
		"labels": mapOf(64, schema{"pattern": printable, "minLength": 1, "maxLength": 256},
			schema{"type": "string", "pattern": printable, "maxLength": 256}),
		"env": mapOf(256, envName, text),
		// At least 4 bytes: redaction of shorter values would mask unrelated output.
		"secrets": mapOf(256, envName, schema{"type": "string", "pattern": noNUL, "minLength": 4,
			"maxLength": 64 << 10}),
		"toolEnv": mapOf(64, schema{"pattern": "^[A-Za-z_][0-9A-Za-z_]{0,127}$"}, schema{"type": "string",
			"pattern": noNUL, "maxLength": 32 << 10}),
		"argv":  {"items": text, "prefixItems": []any{schema{"type": "string", "minLength": 1, "pattern": noNUL}}},
		"allow": {"maxItems": 256, "items": schema{"type": "string", "pattern": hostPattern}},
		"allowedTools": {"maxItems": 128, "items": schema{"oneOf": []any{callable,
			schema{"$ref": "#/components/schemas/AllowedTool"}}}},
		"callable":       callable,
		"network":        i.networks(),
		"networkMode":    {"type": "string", "enum": anys(i.modes())},
		"cpus":           orZero(0.01, most.CPUs),
		"memory":         orZero(16<<20, most.MemoryBytes),
		"pids":           orZero(16, most.PIDs),
		"disk":           orZero(16<<20, most.DiskBytes),
		"openFiles":      orZero(256, most.OpenFiles),
		"code":           source(proto.MaxCode),
		"toolCode":       source(toolstore.MaxCode),
		"language":       {"enum": languages},
		"scriptLanguage": {"enum": anys(code.ScriptLanguages)},
		"fieldType":      {"enum": anys(field.Types)},
		"itemsType":      {"enum": append([]any{""}, anys(field.Types)...)},
		"tool":           {"enum": anys(tooluse.Names())},
		"object":         {"type": "object"},
	}
}

// modes are the network modes that this daemon allows; the empty one is the default.
func (i Info) modes() []proto.NetworkMode {
	all := []proto.NetworkMode{"", proto.NetworkNone, proto.NetworkAllowlist, proto.NetworkOpen}
	return slices.DeleteFunc(all, func(m proto.NetworkMode) bool { return !i.NetworkMax.Covers(m) })
}

// networks are the networks that this daemon allows. Only the mode allowlist may have a list of hosts.
func (i Info) networks() schema {
	noList := schema{"properties": schema{"mode": schema{"enum": anys(i.modes())}, "allow": schema{"maxItems": 0}}}
	if !i.NetworkMax.Covers(proto.NetworkAllowlist) {
		return noList
	}
	return schema{"anyOf": []any{noList,
		schema{"properties": schema{"mode": schema{"enum": []any{"", proto.NetworkAllowlist}}}}}}
}

// orZero allows 0, which means the default, and numbers from least to most. If most is 0 there is no upper bound.
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

// names returns the values of an enum as strings.
func names[T any](values []T) (list []string) {
	for _, v := range values {
		list = append(list, fmt.Sprint(v))
	}
	return list
}

package native

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"berth/proto"
)

// A schema is a JSON schema, as OpenAPI 3.1 has them.
type schema = map[string]any

var stateType = reflect.TypeFor[proto.State]()

// enums are the values of types that have few. A test compares them with the constants of package proto.
var enums = map[reflect.Type][]any{
	stateType: {proto.StateCreating, proto.StateRunning, proto.StatePaused,
		proto.StateStopped, proto.StateExpired},
	reflect.TypeFor[proto.RuntimeClass](): {proto.ClassRunc, proto.ClassGVisor},
	reflect.TypeFor[proto.NetworkMode]():  {proto.NetworkNone, proto.NetworkAllowlist, proto.NetworkOpen},
	reflect.TypeFor[proto.ExecState]():    {proto.ExecRunning, proto.ExecEnded},
	reflect.TypeFor[proto.FileType]():     {proto.TypeFile, proto.TypeDirectory, proto.TypeSymlink, proto.TypeOther},
	reflect.TypeFor[proto.EndReason](): {proto.EndExit, proto.EndSignal, proto.EndTimeout, proto.EndOutOfMemory,
		proto.EndDiskQuota, proto.EndPIDLimit, proto.EndOutputLimit, proto.EndKilled,
		proto.EndCanceled, proto.EndExpired, proto.EndStopped, proto.EndHostRestart, proto.EndLost,
		proto.EndNotStarted},
	reflect.TypeFor[proto.EventType](): {proto.EventStart, proto.EventStdout, proto.EventStderr, proto.EventGap,
		proto.EventExit, proto.EventError, proto.EventReady},
	reflect.TypeFor[proto.BlockError](): {proto.BlockInvalidInput, proto.BlockUnavailable, proto.BlockTooMany,
		proto.BlockTimeExceeded,
		proto.BlockTooLarge, proto.BlockFileNotFound},
	reflect.TypeFor[proto.Code](): {proto.InvalidArgument, proto.Unauthenticated, proto.PermissionDenied,
		proto.NotFound, proto.AlreadyExists, proto.Conflict,
		proto.Expired, proto.TooLarge, proto.TooMany, proto.QuotaExceeded, proto.TimedOut, proto.Canceled,
		proto.Unavailable, proto.Unsupported, proto.Internal},
}

// names is an enum's values as text.
func names(values []any) (list []string) {
	for _, v := range values {
		list = append(list, fmt.Sprint(v))
	}
	return list
}

// special are types whose JSON is not what their fields say.
var special = map[reflect.Type]schema{
	reflect.TypeFor[proto.Time]():      {"type": "string", "format": "date-time"},
	reflect.TypeFor[time.Time]():       {"type": "string", "format": "date-time"},
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[[]byte]():          {"type": "string", "contentEncoding": "base64"},
}

// of is the schema of a value's type.
func (c catalogue) of(v any) schema { return c.schema(reflect.TypeOf(v)) }

func (c catalogue) schema(t reflect.Type) schema {
	// A clone, since bounds are written into it.
	if s, ok := special[t]; ok {
		return maps.Clone(s)
	}
	// One of two is set; which one shows in its type.
	if t == reflect.TypeFor[proto.BashContent]() {
		return schema{"oneOf": []any{c.schema(reflect.TypeFor[proto.BashResult]()),
			c.schema(reflect.TypeFor[proto.BashError]())}}
	}
	if values, ok := enums[t]; ok {
		return schema{"type": "string", "enum": values}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return c.schema(t.Elem())
	case reflect.Slice:
		return schema{"type": "array", "items": c.schema(t.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": c.schema(t.Elem())}
	case reflect.Struct:
		return c.object(t)
	}
	return scalar(t.Kind())
}

// Unsigned types have a minimum: JSON schema has no other way to say that -1 is refused.
func scalar(k reflect.Kind) schema {
	switch k {
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Float64, reflect.Float32:
		return schema{"type": "number"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return schema{"type": "integer"}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return schema{"type": "integer", "minimum": 0}
	}
	return schema{} // an interface: anything
}

// object is a struct's schema: a reference to the catalogue if the type has a name of its own.
func (c catalogue) object(t reflect.Type) schema {
	name := schemaName(t)
	// Names of generic types have brackets, which no reference may.
	if name == "" || strings.ContainsRune(name, '[') {
		return c.fields(t, "")
	}
	if _, known := c.schemas[name]; !known {
		c.schemas[name] = nil // it may refer to itself
		c.schemas[name] = c.fields(t, name)
	}
	return schema{"$ref": "#/components/schemas/" + name}
}

// schemaNames are the names in the document of types whose Go name is longer, since package proto has all of them.
var schemaNames = map[reflect.Type]string{
	reflect.TypeFor[proto.CodeContext]():       "Context",
	reflect.TypeFor[proto.JobSummary]():        "Summary",
	reflect.TypeFor[proto.ToolConfiguration](): "Configuration",
	reflect.TypeFor[proto.ToolField]():         "Field",
	reflect.TypeFor[proto.ToolRun]():           "Run",
	reflect.TypeFor[proto.ToolRunError]():      "RunError",
	reflect.TypeFor[proto.ToolRunRequest]():    "RunRequest",
}

// schemaName is the name of a type in the document.
func schemaName(t reflect.Type) string {
	if name, ok := schemaNames[t]; ok {
		return name
	}
	return title(t.Name())
}

// title gives types that are not exported a name like the others: the document knows no packages.
func title(s string) string {
	if s == "" {
		return ""
	}
	return string(unicode.ToUpper(rune(s[0]))) + s[1:]
}

// fields describes a struct. A field is required unless it may be left out when it is empty.
// Lists are sorted and types named once, so that two documents can be compared line by line.
func (c catalogue) fields(t reflect.Type, name string) schema {
	properties, required := schema{}, []string{}
	c.collect(t, name, properties, &required)
	s := schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		// Sorted, so that the document changes only where the API does.
		slices.Sort(required)
		s["required"] = required
	}
	if d := typeWords[name]; d != "" {
		s["description"] = d
	}
	for _, whole := range wholes(t) {
		maps.Copy(s, typeBounds[whole])
	}
	return s
}

// collect adds a struct's fields. Those of an embedded struct are its own; behind a pointer they may be missing.
func (c catalogue) collect(t reflect.Type, name string, properties schema, required *[]string) {
	for f := range fieldsOf(t) {
		if f.embedded {
			inner := required
			if f.t.Kind() == reflect.Pointer {
				inner = &[]string{}
				f.t = f.t.Elem()
			}
			c.collect(f.t, title(f.t.Name()), properties, inner)
			continue
		}
		properties[f.name] = c.field(f, name+"."+f.name)
		if !f.optional {
			*required = append(*required, f.name)
		}
	}
}

// orWord behind a field's name is where bounds say which words may stand for it.
const orWord = " or"

// field is the schema of one field, which words and bounds know by its type's name and its own.
func (c catalogue) field(f field, name string) schema {
	s := c.schema(f.t)
	c.bound(name, s)
	if also := c.bounds[name+orWord]; also != nil {
		s = schema{"oneOf": []any{also, s}}
	}
	// A pointer that is always written is written as null at times.
	if f.t.Kind() == reflect.Pointer && !f.optional {
		s = schema{"anyOf": []any{s, schema{"type": "null"}}}
	}
	if d := words[name]; d != "" {
		s["description"] = d
	}
	return s
}

// wholes are the names of a struct's type and of those that it embeds.
func wholes(t reflect.Type) []string {
	list := []string{title(t.Name())}
	for f := range fieldsOf(t) {
		if f.embedded && f.t.Kind() == reflect.Struct {
			list = append(list, wholes(f.t)...)
		}
	}
	return list
}

// A field is a struct's field as JSON has it.
type field struct {
	name               string
	t                  reflect.Type
	optional, embedded bool
}

// fieldsOf goes by encoding/json's rules for names and omission, since the document describes what
// that writes and reads.
func fieldsOf(t reflect.Type) func(func(field) bool) {
	return func(yield func(field) bool) {
		for i := range t.NumField() {
			f := t.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" || !f.IsExported() {
				continue
			}
			out := field{name: name, t: f.Type, optional: strings.Contains(options, "omit"), embedded: f.Anonymous &&
				name == ""}
			if out.name == "" {
				out.name = f.Name
			}
			if !yield(out) {
				return
			}
		}
	}
}

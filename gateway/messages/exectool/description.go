package exectool

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"berth/gateway/messages/rawjson"
	"berth/proto"
)

// schemas are the input schemas of the server tools.
var schemas = map[string]json.RawMessage{
	ToolBash: json.RawMessage(
		`{"type":"object","properties":{"command":{"type":"string","description":"Text for bash, run as bash -c."}},"required":["command"]}`),
	ToolEditor: json.RawMessage(`{"type":"object","properties":{` +
		`"command":{"type":"string","enum":["view","create","str_replace"],"description":"What to do with the file."},` +
		`"path":{"type":"string","description":"The file: absolute, or relative to the working directory of bash. A leading $INPUT_DIR is expanded."},` +
		`"view_range":{"type":"array","items":{"type":"integer"},"description":"For view: first and last line, counted from 1; a last line of -1 is the end."},` +
		`"file_text":{"type":"string","description":"For create: all that the file is to hold."},` +
		`"old_str":{"type":"string","description":"For str_replace: the text to replace, which must occur exactly once."},` +
		`"new_str":{"type":"string","description":"For str_replace: what takes its place; nothing if left out."}},` +
		`"required":["command","path"]}`),
	ToolCode: json.RawMessage(
		`{"type":"object","properties":{"code":{"type":"string","description":"Python source."}},"required":["code"]}`),
}

// aboutContainer describes the container to the model.
const aboutContainer = " The container is a private Linux machine without a screen. Its files stay until the " +
	"conversation ends. " +
	"Files that the user gave are in the directory $INPUT_DIR (" + proto.InputDir + "). "

// description returns the description of a tool for the model.
func (b *Toolbox) description(name string) string {
	switch name {
	case ToolBash:
		return "Run a bash command in a Linux container. Each call is a fresh bash: variables and the working " +
			"directory do not carry over, files do. " +
			"Standard output, standard error and the return code come back; nobody can type, so do not start " +
			"programs that ask." + aboutContainer +
			"To hand a file to the user, write it directly into the directory $OUTPUT_DIR, which is new and empty " +
			"in each call."
	case ToolEditor:
		return "View, create and edit text files in the Linux container that bash_code_execution works in. view " +
			"shows a file, or a range of its lines; " +
			"create writes a whole file, over one that is there; str_replace replaces a text that occurs exactly once."
	}
	if !b.REPL {
		return "Run a Python program in a Linux container. Each call is a fresh interpreter: print what you want to " +
			"see. Variables do not carry over, files in the working directory do." + aboutContainer +
			"To hand a file to the user, write it directly into the directory that os.environ['OUTPUT_DIR'] names."
	}
	return "Run Python in an interpreter that keeps its variables and imports from call to call. What is printed " +
		"comes back, and the value of the last expression. " +
		"A call may take 90 seconds; one that takes longer is interrupted. Top-level await works. It is the " +
		"container that bash_code_execution works in, with the same files." + aboutContainer +
		"To hand a file to the user, write it directly into the directory that os.environ['OUTPUT_DIR'] names." +
		b.describeFunctions()
}

// describeFunctions describes the client tools that code may call.
func (b *Toolbox) describeFunctions() string {
	if len(b.Remote) == 0 {
		return ""
	}
	var t strings.Builder
	t.WriteString("\n\nThese async functions are defined. Each takes one dict and returns a string; call them with " +
		"await, several at once with asyncio.gather. " +
		"Only what you print reaches you, so filter and sum up their results in code.\n")
	for _, o := range b.Remote {
		fmt.Fprintf(&t, "\nawait %s(input: dict) -> str\n", b.functionName(o.Text("name")))
		if d := o.Text("description"); d != "" {
			t.WriteString(d + "\n")
		}
		fmt.Fprintf(&t, "input: %s\n", o.Get("input_schema"))
	}
	return t.String()
}

// pythonWords are keywords and builtins of Python. Code cannot call a tool by such a name.
var pythonWords = strings.Fields(
	`False None True and as assert async await break class continue def del elif else except finally for from global if import in is
	lambda nonlocal not or pass raise return try while with yield abs aiter all anext any ascii bin bool breakpoint bytearray bytes callable chr classmethod compile
	complex copyright credits delattr dict dir display divmod enumerate eval exec exit filter float format frozenset getattr globals hasattr hash help hex id input
	int isinstance issubclass iter len license list locals map max memoryview min next object oct open ord pow print property quit range repr reversed round set
	setattr slice sorted staticmethod str sum super tuple type vars zip`)

// functionName returns the Python expression that calls a tool: its name, if that is valid and unique in Python.
func (b *Toolbox) functionName(name string) string {
	own := pythonName(name)
	same := func(o rawjson.Object) bool { return pythonName(o.Text("name")) == own && o.Text("name") != name }
	if own[0] >= '0' && own[0] <= '9' || strings.HasPrefix(own, "__") || slices.Contains(pythonWords, own) ||
		slices.ContainsFunc(b.Remote, same) {
		return fmt.Sprintf("tools[%q]", name)
	}
	return own
}

// pythonName replaces characters of a tool's name that Python does not allow by underscores.
func pythonName(name string) string { return notPython.ReplaceAllString(name, "_") }

var notPython = regexp.MustCompile(`[^0-9A-Za-z_]`)

// maxSchemaDepth limits the nesting of a schema, including references.
const maxSchemaDepth = 64

// checkRefs refuses a schema with circular references.
func checkRefs(schema json.RawMessage) error {
	var root any
	if len(schema) == 0 || json.Unmarshal(schema, &root) != nil {
		return nil // the upstream reports the error
	}
	w := refWalk{root: root, open: map[string]bool{}, done: map[string]bool{}}
	return w.walk(root, 0)
}

// A refWalk follows the references of a schema, each once.
type refWalk struct {
	root any
	open map[string]bool // references on the path to the current node
	done map[string]bool // references that are completely checked
}

func (w *refWalk) walk(node any, depth int) error {
	if depth > maxSchemaDepth {
		return errors.New("it is nested too deeply")
	}
	switch v := node.(type) {
	case []any:
		for _, e := range v {
			if err := w.walk(e, depth+1); err != nil {
				return err
			}
		}
	case map[string]any:
		ref, ok := v["$ref"].(string)
		if ok && w.open[ref] {
			return fmt.Errorf(
				"the reference %.80q leads back to itself, which is not supported for tools that code may call", ref)
		}
		if ok && !w.done[ref] {
			w.open[ref] = true
			if err := w.walk(resolveRef(w.root, ref), depth+1); err != nil {
				return err
			}
			delete(w.open, ref)
			w.done[ref] = true
		}
		return w.walk(slices.Collect(maps.Values(v)), depth)
	}
	return nil
}

// resolveRef returns the node that a reference names, or nil if there is none or it is outside the schema.
func resolveRef(root any, ref string) any {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	node := root
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if part == "" {
			continue
		}
		m, ok := node.(map[string]any)
		if !ok {
			return nil
		}
		node = m[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return node
}

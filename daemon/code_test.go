package daemon_test

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"berth/code"
	"berth/proto"
)

// asJSON returns a value as the body of a request.
func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// runCode runs code in a new container of the base image.
func runCode(t *testing.T, req proto.Program) code.Outcome {
	t.Helper()
	return call[code.Outcome](t, base, 200, "POST", "/v1/run_code", asJSON(t, req))
}

func TestCodeInContainers(t *testing.T) {
	for _, c := range []struct {
		language, text string
		results        []string
		stdout         string
	}{
		{"python", "print('out')\nimport sys, os\n(sys.version_info[:2], os.getuid())", []string{"((3, 11), 1000)"},
			"out\n"},
		{"js", "console.log('out'); await Promise.resolve([1, 2])", []string{"[ 1, 2 ]"}, "out\n"},
		{"bash", "echo out; id -un >&2", nil, "out\n"},
	} {
		for range 2 { // the second run gets a prestarted interpreter
			res := runCode(t, proto.Program{Code: c.text, Language: c.language})
			if !slices.Equal(res.Results, c.results) && len(res.Results)+len(c.results) > 0 ||
				strings.Join(res.Logs.Stdout, "") != c.stdout || res.Error != "" {
				t.Errorf("%s: %+v", c.language, res)
			}
		}
	}
	got := call[struct{ Text string }](t, base, 200, "POST", "/v1/code_executor",
		asJSON(t, code.Script{Language: "node", Code: "console.log(6 * 7)"}))
	if !strings.Contains(got.Text, "```\n42\n```") {
		t.Errorf("%q", got.Text)
	}
}

// An image that lacks a language gives the same error each time, wherever the code was to run.
func TestALanguageThatTheImageLacks(t *testing.T) {
	c := call[proto.Container](t, base, 201, "POST", "/v1/containers", "{}")
	t.Cleanup(func() { _, _, _ = base.Do("DELETE", "/v1/containers/"+c.ID, nil) })
	contexts := "/v1/containers/" + c.ID + "/contexts"
	for _, language := range []string{"r", "java"} {
		for _, ask := range []struct {
			path string
			body any
		}{
			{"/v1/run_code", proto.Program{Code: "1", Language: language}},
			{"/v1/run_code", proto.Program{Code: "1", Language: language, Container: c.ID}},
			{contexts, code.NewContext{Name: "made", Language: language}},
			{contexts + "/cell/run", code.Cell{Code: "1", Language: language}},
		} {
			for range 3 { // the first may prestart an interpreter for the next
				err := call[struct{ Error proto.Error }](t, base, 501, "POST", ask.path, asJSON(t, ask.body)).Error
				if err.Item != "language" || !strings.Contains(err.Message, "such as full") {
					t.Errorf("%s by %s: %+v", language, ask.path, err)
				}
			}
		}
	}
	if list := call[struct{ Data []code.Context }](t, base, 200, "GET", contexts, "").Data; len(list) != 0 {
		t.Errorf("contexts are left: %+v", list)
	}
}

// The error of code that misses something names the image that has it.
func TestWhatTheImageLacksIsNamed(t *testing.T) {
	for _, c := range []struct{ language, text, lacks string }{
		{"python", "import bs4", "Python module bs4"},
		{"python", "from bs4.element import Tag", "Python module bs4"},
		{"python", "try:\n  import cv2.aruco\nexcept ImportError: raise RuntimeError('x')", "Python module cv2"},
		{"python", "import subprocess\nsubprocess.run(['pandoc', '-v'])", "program pandoc"},
		{"python", "import subprocess\nsubprocess.run('pandoc -v', shell=True, check=True)", "program pandoc"},
		{"js", "require('typescript')", "Node module typescript"},
		{"js", "await import('esbuild')", "Node module esbuild"},
		{"js", "require('child_process').execFileSync('ffmpeg')", "program ffmpeg"},
		{"bash", "soffice --version", "program soffice"},
		{"python", "import nosuchmodule", ""},
		{"python", "open('dot')", ""},
		{"bash", "nosuchprogram", ""},
	} {
		res := runCode(t, proto.Program{Code: c.text, Language: c.language})
		if res.ErrorDetail == nil {
			t.Errorf("%s: no error", c.text)
			continue
		}
		hint := "the image has no " + c.lacks + "; the image full has it"
		for _, text := range []string{res.Error, res.ErrorDetail.Message} {
			if c.lacks != "" && !strings.Contains(text, hint) || c.lacks == "" && strings.Contains(text, "full") {
				t.Errorf("%s: %s", c.text, text)
			}
		}
	}
}

func TestRichResultsInContainers(t *testing.T) {
	res := runCode(t, proto.Program{Code: "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})"})
	var table struct {
		Columns []struct{ Name, Dtype string }
		Rows    [][]any
		Total   int `json:"total_rows"`
	}
	var html string
	if len(res.Rich) != 1 || json.Unmarshal(res.Rich[0]["text/html"], &html) != nil ||
		!strings.Contains(html, "<table") || json.Unmarshal(res.Rich[0]["application/vnd.berth.table+json"],
		&table) != nil {
		t.Fatalf("%+v", res)
	}
	if len(table.Columns) != 2 || table.Columns[0].Dtype != "int64" || table.Rows[1][1] != "y" || table.Total != 2 {
		t.Errorf("%+v", table)
	}
	for _, text := range []string{
		"import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.title('t');",
		"import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()\nlen(plt.get_fignums());",
	} {
		res := runCode(t, proto.Program{Code: text})
		var png string
		if len(res.Rich) != 1 || json.Unmarshal(res.Rich[0]["image/png"], &png) != nil ||
			!strings.HasPrefix(png, "iVBORw0KGgo") || res.Results[0] != "<Figure size 640x480 with 1 Axes>" ||
			len(res.Logs.Stderr) > 0 {
			t.Errorf("%s: %+v", text, res)
		}
	}
}

func TestContextsInContainers(t *testing.T) {
	c := call[proto.Container](t, base, 201, "POST", "/v1/containers", `{"limits": {"memory_bytes": 134217728}}`)
	at := "/v1/containers/" + c.ID + "/contexts"
	cell := func(text string) code.Outcome {
		t.Helper()
		return call[code.Outcome](t, base, 200, "POST", at+"/main/run", asJSON(t, code.Cell{Code: text}))
	}
	cell("x = 20")
	if res := cell("x + 1"); !slices.Equal(res.Results, []string{"21"}) {
		t.Errorf("%+v", res)
	}
	res := cell("print('before', flush=True)\nb = bytearray(1 << 30)\nfor i in range(0, len(b), 4096): b[i] = 1")
	if res.ErrorDetail == nil || res.ErrorDetail.Name != string(proto.EndOutOfMemory) &&
		res.ErrorDetail.Name != "MemoryError" || strings.Join(res.Logs.Stdout, "") != "before\n" {
		t.Errorf("out of memory: %+v, %+v", res, res.ErrorDetail)
	}
	if res := cell("1"); len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "fresh interpreter") {
		t.Errorf("%+v", res)
	}
	base.restart(t, syscall.SIGKILL)
	if list := call[struct{ Data []code.Context }](t, base, 200, "GET", at, "").Data; len(list) != 0 {
		t.Errorf("after a restart of the daemon: %+v", list)
	}
	if res := cell("'x' in globals()"); !slices.Equal(res.Results, []string{"False"}) {
		t.Errorf("%+v", res)
	}
	call[proto.Container](t, base, 200, "POST", "/v1/containers/"+c.ID+"/stop", "")
}

// A listing is a program with its expected result. err is a part of the error.
type listing struct{ text, result, stdout, stderr, err string }

var listings = map[string][]listing{
	"ts": {
		{text: "enum E {A = 1, B}; interface P {x: number}; const p: P = {x: E.B}; p", result: "{ x: 2 }"},
		{text: "const x: number = ;", err: "<cell-1>:1\nconst x: number = ;\nSyntaxError: "},
		{text: "function f<T>(a: T): T { throw new Error('t') }\nf<string>('a')",
			err: "Error: t\n    at f (<cell-1>:1:32)\n    at <cell-1>:2:1"},
		{text: "interface A {\n  a: string\n}\n\nfunction f(a: A): never {\n  throw new Error(a.a)\n}\nf({a: 'six'})",
			err: "Error: six\n    at f (<cell-1>:6:9)\n    at <cell-1>:8:1"},
		{text: "interface A {\n}\n\nlet x = 1;\nlet x = 2", err: "<cell-1>:5\nlet x = 2\nSyntaxError: "},
		{text: "type A =\n  1\n\nsetTimeout((): void => { throw new Error('late') }, 1); 0", result: "0", err: "<cell-1>:4:32"},
		{text: "enum E { A }\n\ntry { null.x } catch (e: any) { console.log(e.stack.split('\\n')[1]) }",
			stdout: "    at <cell-1>:3:12\n"},
		{text: "interface A {\n}\nimport { type Stats, existsSync } from 'fs'\nimport type { B } from './b'\n" +
			"export const there: boolean = existsSync('/'); there", result: "true"},
		{text: "interface A {\n}\nimport './nosuch.mjs'", err: "<cell-1>:3\nError [ERR_MODULE_NOT_FOUND]"},
		{text: "import x from 'data:text/javascript,export default 1' with { type: 'json' }", err: "not of type \"json\""},
	},
	"r": {
		{text: "x <- c(1, 2, 3)\nx\nmean(x)", result: "[1] 2", stdout: "[1] 1 2 3\n"},
		{text: "cat('hé\\n'); invisible(3)", stdout: "hé\n"},
		{text: "f <- function() stop('bad'); f()", err: "Error in f() : bad"},
		{text: "1 +* 2", err: "<cell 1>:1:4: unexpected '*'"},
		{text: "warning('w'); 's'", result: `[1] "s"`, stderr: "Warning message:\nw\n"},
		{text: "plot(1:3)", result: "<plot>"},
		{text: "quit(status = 3)", err: "status 3"},
	},
	"java": {
		{text: "int x = 5;\nSystem.out.println(\"hé\");\nx * 2", result: "10", stdout: "hé\n"},
		{text: "String f(int a) { return \"v\" + a; }\nf(3)", result: `"v3"`},
		{text: "int y = \"s\";", err: "<cell>:1: error: incompatible types"},
		{text: "int z = 1 / 0;", err: "java.lang.ArithmeticException: / by zero"},
		{text: "class A extends B {}\nclass B {}\nnew A() instanceof B", result: "true"},
		{text: "class Main {\n  public static void main(String[] args) {\n    System.out.println(args.length);\n  }\n}",
			stdout: "0\n"},
		{text: "package a.b;\nimport java.util.*;\npublic class App {\n  public static void main(final String... args) " +
			"throws Exception { System.out.println(List.of(Other.n())); }\n}\nclass Other { static int n() { return 3; } }",
			stdout: "[3]\n"},
		{text: "/* package x; */ package c;\nrecord P(int x) { static public void main(String[] a) { " +
			"System.out.println(new P(4)); } }", stdout: "P[x=4]\n"},
		{text: "class Main { public static void main(String[] a) { int[] b = new int[1]; b[2] = 1; } }",
			err: "java.lang.ArrayIndexOutOfBoundsException: Index 2 out of bounds"},
		{text: "class Main { public static void main(String[] a) { System.exit(3); } }", err: "status 3"},
		{text: "class A { static void main(String[] a) { System.out.println(1); } }\nA.main(null);", stdout: "1\n"},
		{text: "class Main {\n  void main() { System.out.println(7); }\n}", stdout: "7\n"},
		{text: "public class M { public void main(String[] args) { System.out.println(args.length); } }", stdout: "0\n"},
		{text: "class A { private void main() {} }"},
		{text: "void main() { System.out.println(\"m\"); }", stdout: "m\n"},
		{text: "class A { int main; void f(String main) {} }"},
		{text: "int x = 5\nx * 2", result: "10"},
		{text: "System.out.println(1)\nSystem.out.println(2)", stdout: "1\n2\n"},
		{text: "import java.util.List\nvar l = List.of(1, 2) // two\n\nl.size()", result: "2"},
		{text: "var s = List.of(3, 1)\n  .stream()\n  .sorted()\n  .toList()\ns", result: "[1, 3]"},
		{text: "int[] a = {1,\n  2}\nfor (int i : a) {\n  System.out.println(i);\n}\na.length", result: "2",
			stdout: "1\n2\n"},
		{text: "int f(int a) {\n  return a;\n}\nf(3)", result: "3"},
		{text: "int x = 1\nint y = \"s\"\nx", err: "<cell>:2: error: incompatible types"},
		{text: "int x = 1\nint y = ;\nx", err: "<cell>:2: error: illegal start of expression\nint y = ;"},
		{text: "int x = 1\nclass M {\n  int a\n}", err: "<cell>:3: error: ';' expected"},
		{text: "import java.util.*;\n\nclass Main {\n  public static void main(String[] a) {\n    List.of().get(0);\n  }\n}",
			err: "\tat Main.main (<cell>:5)"},
		{text: "int x = 1\nint f() {\n  int y = 0;\n  return x / y;\n}\n\nf()",
			err: "/ by zero\n\tat f (<cell>:4)\n\tat (<cell>:7)"},
		{text: "System.exit(4);", err: "status 4"},
	},
}

// Node compiles TypeScript in the image base, and esbuild in full.
func TestTypeScript(t *testing.T) {
	testListings(t, "base", "ts")
	testTypeScriptContext(t, "base")
}

// testTypeScriptContext interrupts a context at its time limit, which must keep it.
func testTypeScriptContext(t *testing.T, image string) {
	at := "/v1/containers/" + createFrom(t, image) + "/contexts/main/run"
	cell := func(text string, seconds float64) code.Outcome {
		t.Helper()
		return call[code.Outcome](t, base, 200, "POST", at, asJSON(t, code.Cell{Code: text, Language: "ts",
			TimeoutSeconds: seconds}))
	}
	cell("let x: number = 1", 0)
	for _, busy := range []string{"while (true) {}", "await new Promise<void>(() => {})"} {
		if res := cell(busy, 0.5); res.ErrorDetail == nil || res.ErrorDetail.Name != "timeout" || len(res.Notes) > 0 {
			t.Errorf("%s: %+v", busy, res)
		}
		if res := cell("x += 1 as number; x", 0); res.Error != "" || len(res.Results) != 1 || len(res.Notes) > 0 {
			t.Errorf("after %s: %+v", busy, res)
		}
	}
}

// testListings runs the listings of languages in an image.
func testListings(t *testing.T, image string, languages ...string) {
	for _, language := range languages {
		for _, p := range listings[language] {
			res := runCode(t, proto.Program{Code: p.text, Language: language, Image: image})
			if got := strings.Join(res.Results, "|"); got != p.result ||
				strings.Join(res.Logs.Stdout, "") != p.stdout || strings.Join(res.Logs.Stderr, "") != p.stderr {
				t.Errorf("%s: %s\n%+v", language, p.text, res)
			}
			if (res.Error != "") != (p.err != "") || !strings.Contains(res.Error, p.err) {
				t.Errorf("%s: %s\nerror %q, want %q", language, p.text, res.Error, p.err)
			}
		}
	}
}

package code_test

import (
	"strings"
	"testing"
	"time"

	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// notebookCells are cells that are not Python as they stand, or need IPython.
var notebookCells = map[string]want{
	// commands
	"!echo hello\n1+1":          {results: []string{"2"}, stdout: "hello\n"},
	"!echo out; echo err >&2":   {stdout: "out\n", stderr: "err\n"},
	"x = !printf 'a\\nb'\nx":    {results: []string{"['a', 'b']"}},
	"a, b = !printf '1\\n2'\nb": {results: []string{"'2'"}},
	"!!echo listed":             {results: []string{"['listed']"}},
	"!exit 3\n_exit_code":       {results: []string{"3"}},
	"!cat; echo end":            {stdout: "end\n"},
	"!echo a \\\n  b\n1/0": {stdout: "a b\n",
		err: "line 3, in <module>\n    1/0\n", name: "ZeroDivisionError"},
	"x = 3\nfor i in 1, 2:\n    !echo {i+1} $x":                     {stdout: "2 3\n3 3\n"},
	"!echo x y | awk '{print $2}'; echo ${HOME:+home} {nope} $nope": {stdout: "y\nhome {nope}\n"},
	"print('first')\n!echo second\nprint('third')":                  {stdout: "first\nsecond\nthird\n"},
	// what only looks like one
	"s = '''\n!no\n%no\n'''\n!echo 'yes'\ns":         {results: []string{`'\n!no\n%no\n'`}, stdout: "yes\n"},
	"a = 7\nb = (a\n% 4)\n!echo {b}":                 {stdout: "3\n"},
	"a = 7 \\\n% 4 # '''\n!echo {a}":                 {stdout: "3\n"},
	"s = \"it's # no \\\" comment\"\n!echo {len(s)}": {stdout: "19\n"},
	// magics of a line
	"%matplotlib inline\nimport math\nmath.pi": {results: []string{"3.141592653589793"}},
	"import os; was = os.getcwd()\n%cd /\n%cd -\nos.getcwd() == was": {results: []string{"True"},
		stdout: "/\nWORKSPACE\n"},
	"%cd /\nd = %pwd\n%cd -\nd":                         {results: []string{"'/'"}, stdout: "/\nWORKSPACE\n"},
	"%env BERTH_A=1 2\n%env BERTH_A":                    {results: []string{"'1 2'"}, stdout: "env: BERTH_A=1 2\n"},
	"%env BERTH_B two\n!echo $BERTH_B":                  {stdout: "env: BERTH_B=two\ntwo\n"},
	"t = %timeit -n 2 -r 3 -q -o sum(range(9))\nlen(t)": {results: []string{"3"}},
	"x = 1\n%reset -f\n'x' in globals()":                {results: []string{"False"}},
	"%reset -f\nx = 1; y = 2\n%who":                     {stdout: "x\ty\n"},
	"%load_ext autoreload": {
		stderr: "%load_ext: extensions of IPython do not work here; the line does nothing\n"},
	"open('a.py', 'w').write('import sys; z = sys.argv[1:]');\n%run a.py b 'c d'\nz": {
		results: []string{"['b', 'c d']"}},
	"len?": {stdout: "Signature: len(obj, /)\nType: builtin_function_or_method\nDocstring:\n" +
		"Return the number of items in a container.\n"},
	"?nothing":         {stdout: "Object `nothing` not found.\n"},
	"%sql select":      {err: "the line magic %sql is not known; there are %autoreload, %cat", name: "UsageError"},
	"%conda install x": {err: "conda is not here; install with %pip", name: "UsageError"},
	// magics of a cell
	"%%bash\necho $0; echo 'a b'; exit 4": {stdout: "bash\na b\n", err: "'bash' returned non-zero exit status 4",
		name: "CalledProcessError"},
	"%%bash -x\necho $#":                            {stdout: "0\n", stderr: "+ echo 0\n"},
	"\n%%sh\necho $(( 1 + 2 ))":                     {stdout: "3\n"},
	"%%python\nprint(__name__)":                     {stdout: "__main__\n"},
	"%%writefile b.txt\n{a}\n":                      {stdout: "Writing b.txt\n"},
	"%%capture c\nprint(1)\n!echo 2\ndisplay(3)\n4": {},
	"%%html\n<b>":                                   {results: []string{"<b>"}},
	"%%nope\n": {
		err: "the cell magic %%nope is not known; there are %%bash", name: "UsageError"},
	"%%capture\nx = 1\n1/0": {err: "line 3, in <module>\n    1/0\n", name: "ZeroDivisionError"},
	// the rest
	"    x = 2\n    x * 2":              {results: []string{"4"}},
	"\n  def f():\n    return 5\n  f()": {results: []string{"5"}},
	"x = 1\n  y = 2":                    {err: "IndentationError: unexpected indent", name: "IndentationError"},
	"get_ipython().run_line_magic('pwd', '') == __import__('os').getcwd()": {results: []string{"True"}},
	"from IPython import get_ipython as g\ng() is get_ipython()":           {results: []string{"True"}},
	"from IPython.display import HTML, display\ndisplay(HTML('<i>'))\nHTML('<b>')": {
		results: []string{"<IPython.core.display.HTML object>", "<IPython.core.display.HTML object>"}},
	"display({'text/plain': 'raw'}, raw=True)": {results: []string{"raw"}},
	"x = = 1":     {err: "SyntaxError: invalid syntax", name: "SyntaxError"},
	"1 % 2 %":     {err: "SyntaxError: invalid syntax", name: "SyntaxError"},
	"print('!ls'": {err: "'(' was never closed", name: "SyntaxError"},
	"f(%x)":       {err: "SyntaxError: invalid syntax", name: "SyntaxError"},
}

// Cells may have what notebooks understand, in a container whose Python has no IPython.
func TestNotebookCells(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	here := strings.TrimSpace(strings.Join(b.once(t, proto.Program{Code: "!pwd", Container: s.ID()}).Logs.Stdout, ""))
	for text, w := range notebookCells {
		w.stdout = strings.ReplaceAll(w.stdout, "WORKSPACE", here)
		w.check(t, text, b.cell(t, s, "main", text))
	}
}

// What a magic prints contains times.
func TestMagicsThatMeasure(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	for text, w := range map[string]struct{ value, print string }{
		"%time 6 * 7":                     {"42", "Wall time: "},
		"%%time\nx = 6\nx * 7":            {"42", "CPU times: "},
		"%%timeit -n 1 -r 2 a = 1\na + 1": {"", "per loop (mean ± std. dev. of 2 runs, 1 loops each)"},
	} {
		res := b.cell(t, s, "main", text)
		if out := strings.Join(res.Logs.Stdout, ""); strings.Join(res.Results, "") != w.value ||
			!strings.Contains(out, w.print) || res.Error != "" {
			t.Errorf("%s: results %q, printed %q, error %s", text, res.Results, out, res.Error)
		}
	}
}

// An interrupt ends a command of a notebook and what it started, and the interpreter stays.
func TestInterruptOfANotebookCommand(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	b.cell(t, s, "main", "kept = 1")
	res, err := b.run.Cell(t.Context(), sessiontest.Owner, s.ID(), "main", proto.Cell{
		Code: "!echo $$ >pid; sleep 600 | cat", TimeoutSeconds: 0.5}, nil)
	if err != nil || res.ErrorDetail == nil || res.ErrorDetail.Name != string(proto.EndTimeout) {
		t.Fatalf("%+v, %v", res, err)
	}
	res = b.cell(t, s, "main",
		"import os\ntry: os.kill(int(open('pid').read()), 0)\nexcept ProcessLookupError: print(kept)")
	want{stdout: "1\n"}.check(t, "the command has ended", res)
}

// Tasks that a cell leaves go on until the next one.
func TestTasksGoOnBetweenCells(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	const start = `import asyncio, pathlib
async def ticks():
    for n in range(3):
        await asyncio.sleep(0.01)
    print('from the task')
    pathlib.Path('done').touch()
task = asyncio.create_task(ticks())`
	if res := b.cell(t, s, "main", start); res.Error != "" {
		t.Fatal(res.Error)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if res := b.once(t, proto.Program{Code: "import os; os.path.exists('done')", Container: s.ID()}); res.
			Results[0] == "True" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the task does not go on")
		}
	}
	want{results: []string{"True"}, stdout: "from the task\n"}.check(t, "the next cell", b.cell(t, s, "main",
		"task.done()"))
}

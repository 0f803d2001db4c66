package code_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/code"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// A bench is a stack with a runner over it.
type bench struct {
	*sessiontest.Stack
	run *code.Runner
}

func newBench(t *testing.T, cfg session.Config) bench {
	t.Helper()
	st := sessiontest.New(t, cfg)
	r := code.Open(code.Config{Sessions: st.Sessions, Timeout: cfg.ExecTimeout})
	t.Cleanup(func() { r.Close() })
	return bench{st, r}
}

// once runs a program, which must give an outcome.
func (b bench) once(t *testing.T, req proto.Program) (res code.Outcome) {
	t.Helper()
	err := b.run.Once(context.Background(), sessiontest.Owner, req, nil,
		func(r code.Outcome) error { res = r; return nil })
	if err != nil {
		t.Fatalf("%s: %v", req.Code, err)
	}
	return res
}

// cell runs code in a context, which must give an outcome.
func (b bench) cell(t *testing.T, s *session.Session, name, text string) code.Outcome {
	t.Helper()
	res, err := b.run.Cell(context.Background(), sessiontest.Owner, s.ID(), name, code.Cell{Code: text}, nil)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return res
}

// A want is an expected outcome. err is a part of the error's text.
type want struct {
	results        []string
	stdout, stderr string
	err, name      string
}

func (w want) check(t *testing.T, text string, res code.Outcome) {
	t.Helper()
	stdout, stderr := strings.Join(res.Logs.Stdout, ""), strings.Join(res.Logs.Stderr, "")
	if !slices.Equal(res.Results, w.results) && len(res.Results)+len(w.results) > 0 || stdout != w.stdout ||
		stderr != w.stderr {
		t.Errorf("%s\nresults %q, stdout %q, stderr %q; want %q, %q, %q", text, res.Results, stdout, stderr, w.results,
			w.stdout, w.stderr)
	}
	if (res.Error != "") != (w.err != "") || !strings.Contains(res.Error, w.err) {
		t.Errorf("%s\nerror %q, want %q", text, res.Error, w.err)
	}
	if w.name != "" && (res.ErrorDetail == nil || res.ErrorDetail.Name != w.name) {
		t.Errorf("%s\nerror detail %+v, want %s", text, res.ErrorDetail, w.name)
	}
	if len(res.Rich) != len(res.Results) {
		t.Errorf("%s\n%d bundles for %d results", text, len(res.Rich), len(res.Results))
	}
}

var pythonPrograms = map[string]want{
	"1+1":                                 {results: []string{"2"}},
	"print('a')\nprint('b', end='')\n'v'": {results: []string{"'v'"}, stdout: "a\nb"},
	"x = 5":                               {},
	"None":                                {},
	"[1, 2];":                             {},
	"'é' * 3 # ;":                         {results: []string{"'ééé'"}},
	"import sys; print('e', file=sys.stderr)": {stderr: "e\n"},
	"1/0": {err: "File \"<cell 1>\", line 1, in <module>\n    1/0\n",
		name: "ZeroDivisionError"},
	"print('before')\nx = = 1":                     {err: "SyntaxError: invalid syntax", name: "SyntaxError"},
	"print('kept')\nraise ValueError('v')":         {stdout: "kept\n", err: "ValueError: v", name: "ValueError"},
	"import sys\nprint(1)\nsys.exit(3)":            {stdout: "1\n", err: "status 3", name: "exit"},
	"import sys\nsys.exit(0)":                      {},
	"import os\nprint(1, flush=True)\nos._exit(9)": {stdout: "1\n", err: "status 9", name: "exit"},
	"import os, signal\nprint(1, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)": {
		stdout: "1\n", err: "SIGKILL", name: "signal"},
	"import asyncio\nawait asyncio.sleep(0.001)\n'done'": {
		results: []string{"'done'"}},
	"import atexit\natexit.register(print, 'bye')\n7": {
		results: []string{"7"}, stdout: "bye\n"},
	"import os\nos.system('echo child')": {
		results: []string{"0"}, stdout: "child\n"},
	"import os\nif os.fork(): os.wait()\nelse: print('c', flush=True)\n3": {
		results: []string{"3"}, stdout: "c\n"},
	"display('shown')\ndisplay(2)\n3": {
		results: []string{"'shown'", "2", "3"}},
	"input()": {
		err: "EOFError", name: "EOFError"},
	"(__name__, __import__('sys').argv, '__file__' in globals())": {
		results: []string{"('__main__', [''], False)"}},
	"class A:\n  def __repr__(self): raise KeyError('r')\nA()": {
		err: "KeyError: 'r'", name: "KeyError"},
	"import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()\n1": {
		results: []string{"1"}, stdout: "late\n"},
	"import pickle\nclass P: pass\ntype(pickle.loads(pickle.dumps(P()))) is P": {
		results: []string{"True"}},
}

var nodePrograms = map[string]want{
	"1+1": {results: []string{"2"}},
	"console.log('a'); const x = {a: 1, b: [1, 2]}; x": {results: []string{"{ a: 1, b: [ 1, 2 ] }"}, stdout: "a\n"},
	"console.error('e')": {stderr: "e\n"},
	"export const e = 1; const s = `\nexport const t\n`\ns + e": {results: []string{"'\\nexport const t\\n1'"}},
	"await new Promise(r => setTimeout(r, 10)); 'done'":         {results: []string{"'done'"}},
	"function f() {\n  throw new TypeError('bad')\n}\nf()": {err: "at f (<cell-1>:2:9)\n    at <cell-1>:4:1",
		name: "TypeError"},
	"let y = ;": {err: "<cell-1>:1\nlet y = ;\nSyntaxError: Unexpected token ';'", name: "SyntaxError"},
	"import fs from 'fs'\nimport {join as j} from 'path'\nj('a', 'b')": {results: []string{"'a/b'"}},
	"const m = await import('os'); typeof m.cpus":                      {results: []string{"'function'"}},
	"console.log('import(x)', `\nimport a from \"b\"\n`)": {
		stdout: "import(x) \nimport a from \"b\"\n\n"},
	"setTimeout(() => console.log('late'), 20); 5": {results: []string{"5"}, stdout: "late\n"},
	"setTimeout(() => { throw new Error('async') }, 5); 0": {results: []string{"0"}, err: "Error: async",
		name: "Error"},
	"Promise.reject(new Error('r'))": {err: "Error: r", name: "Error"},
	"console.log(1); process.exit(3)": {stdout: "1\n", err: "status 3",
		name: "exit"},
	"if (require.main === module) console.log('main')": {stdout: "main\n"},
	"require('fs').readFileSync(0, 'utf8')":            {results: []string{"''"}},
	"require('child_process').execSync('echo child', {stdio: 'inherit'})": {results: []string{"null"},
		stdout: "child\n"},
	"require('fs').readFileSync('/proc/self/cmdline', 'utf8').replace(/\\0+$/, '')": {results: []string{"'node'"}},
	"undefined": {},
	"throw 5":   {err: "Uncaught 5", name: "Uncaught"},
}

var bashPrograms = map[string]want{
	"echo a; echo b >&2":  {stdout: "a\n", stderr: "b\n"},
	"echo é; exit 3":      {stdout: "é\n", err: "status 3", name: "exit"},
	"cat; echo $#":        {stdout: "0\n"},
	"nosuchprogram; true": {stderr: "bash: line 1: nosuchprogram: command not found\n"},
}

func TestPrograms(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	for language, programs := range map[string]map[string]want{"python": pythonPrograms, "javascript": nodePrograms,
		"bash": bashPrograms} {
		t.Run(language, func(t *testing.T) {
			for text, w := range programs {
				w.check(t, text, b.once(t, proto.Program{Code: text, Language: language, Container: s.ID()}))
			}
		})
	}
}

func TestAProgramBeginsWhereItsRequestSays(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	for _, c := range []struct {
		req  proto.Program
		want string
	}{
		{proto.Program{Cwd: "/tmp"}, "/tmp\n"},
		{proto.Program{Cwd: "/tmp", Container: s.ID()}, "/tmp\n"},
	} {
		c.req.Code, c.req.Language = "pwd", "bash"
		if res := b.once(t, c.req); strings.Join(res.Logs.Stdout, "") != c.want || res.Error != "" {
			t.Errorf("%+v: %+v", c.req, res)
		}
	}
	err := b.run.Once(context.Background(), sessiontest.Owner, proto.Program{Code: "1", Cwd: "/nowhere"}, nil,
		func(code.Outcome) error { return nil })
	if proto.CodeOf(err) != proto.InvalidArgument || proto.AsError(err).Item != "/nowhere" {
		t.Errorf("a directory that does not exist: %v", err)
	}
	cell, err := code.CellOf(proto.Program{Code: "1", Container: s.ID(), Context: "main", Cwd: "/tmp"})
	if err != nil || cell.Cwd != "/tmp" {
		t.Errorf("%+v %v", cell, err)
	}
}

func TestAFreshRunLeavesNothing(t *testing.T) {
	b := newBench(t, session.Config{})
	for _, text := range []string{"1", "1/0", "import os; os._exit(4)"} {
		if res := b.once(t, proto.Program{Code: text}); res.Container != nil {
			t.Errorf("%s: a container that is gone is named: %+v", text, res.Container)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	err := b.run.Once(ctx, sessiontest.Owner,
		proto.Program{Code: "import time\ntime.sleep(600)"}, nil,
		func(code.Outcome) error { return nil })
	if err == nil {
		t.Errorf("a client that went away: %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		one := proto.Program{Code: "1"}
		_ = b.run.Once(context.Background(), sessiontest.Owner, one, nil, func(code.Outcome) error {
			panic("the answer")
		})
	}()
	if c := b.Sessions.Counts(); len(c.ByState) != 0 || c.Workspaces != 0 {
		t.Errorf("left: %+v", c)
	}
}

func TestASpareIsClaimedOnceAndGoes(t *testing.T) {
	st := sessiontest.New(t, session.Config{})
	r := code.Open(code.Config{Sessions: st.Sessions, MayPrestart: func(string) bool { return true }})
	b := bench{st, r}
	var execs []string
	for range 3 {
		res := b.once(t, proto.Program{Code: "print('x' in globals())\nx = 1"})
		if strings.Join(res.Logs.Stdout, "") != "False\n" || slices.Contains(execs, res.ExecID) {
			t.Errorf("%+v after %q", res, execs)
		}
		execs = append(execs, res.ExecID)
	}
	want{stdout: "a\n", err: "timeout_seconds", name: "timeout"}.check(t, "a timeout",
		b.once(t, proto.Program{Code: "print('a', flush=True)\nimport time\ntime.sleep(600)", TimeoutSeconds: 0.5}))
	want{err: "status 3", name: "exit"}.check(t, "an exit", b.once(t, proto.Program{Code: "import sys\nsys.exit(3)"}))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if c := b.Sessions.Counts(); len(c.ByState) != 0 || c.Workspaces != 0 {
		t.Errorf("left: %+v", c)
	}
}

func TestATimeoutKeepsWhatWasPrinted(t *testing.T) {
	b := newBench(t, session.Config{})
	text := "print('begun', flush=True)\nimport time\ntime.sleep(600)"
	want{stdout: "begun\n", err: "timeout_seconds", name: "timeout"}.check(
		t, text, b.once(t, proto.Program{Code: text, TimeoutSeconds: 1}))
}

func TestOutputIsBounded(t *testing.T) {
	b := newBench(t, session.Config{})
	res := b.once(t, proto.Program{Code: "for i in range(300000): print('0123456789')\n7", MaxOutputBytes: 10000})
	if n := len(strings.Join(res.Logs.Stdout, "")); n < 9000 || n > 80000 || !res.Truncated ||
		!slices.Equal(res.Results, []string{"7"}) {
		t.Errorf("%d bytes, truncated %v, results %q", n, res.Truncated, res.Results)
	}
	res = b.once(t, proto.Program{Code: "'x' * 50_000_000"})
	if n := len(res.Results[0]); n < 1<<20 || n > 2<<20 {
		t.Errorf("a result of %d bytes", n)
	}
}

func TestContextsKeepVariables(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	for _, step := range []struct {
		text string
		want want
	}{
		{"x = 20\ndef f(): return x / 0", want{}},
		{"x + 1", want{results: []string{"21"}}},
		{"_ * 2", want{results: []string{"42"}}},
		{"f()", want{err: "File \"<cell 1>\", line 2, in f\n    def f(): return x / 0\n", name: "ZeroDivisionError"}},
		{"from __future__ import annotations\nimport asyncio\nq = asyncio.Queue()", want{}},
		{"await q.put(1)\nawait q.get()", want{results: []string{"1"}}},
		{"import subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 0.2; echo later'])\n1", want{results: []string{"1"}}},
		{"import time\ntime.sleep(0.4)", want{stdout: "later\n"}},
	} {
		step.want.check(t, step.text, b.cell(t, s, "main", step.text))
	}
	if list, err := b.run.List(sessiontest.Owner, s.ID()); err != nil || len(list) != 1 || list[0].Name != "main" ||
		list[0].Cells != 8 || list[0].State != proto.ContextIdle {
		t.Errorf("%+v %v", list, err)
	}
}

// A step is a cell and its expected outcome.
type step struct {
	text string
	want want
}

func TestContextsOfOtherLanguages(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	for language, steps := range map[string][]step{
		"js": {
			{"const a = 1; let b = 2", want{}},
			{"const a = 5; a + b", want{results: []string{"7"}}},
			{"var p = new Promise(r => setTimeout(() => { console.log('t'); r() }, 200)); nope",
				want{err: "nope is not defined", name: "ReferenceError"}},
			{"await p; a", want{results: []string{"5"}, stdout: "t\n"}},
			{"process.exit(2)", want{err: "status 2", name: "exit"}},
		},
		"bash": {
			{"x=1; declare -A m=([a]=é); cd /tmp; f() { echo \"$x ${m[a]}\"; }", want{}},
			{"f; pwd", want{stdout: "1 é\n/tmp\n"}},
			{"false", want{err: "status 1", name: "exit"}},
			{"cat; echo on", want{stdout: "on\n"}},
			{"exit 4", want{err: "status 4", name: "exit"}},
		},
	} {
		if _, err := b.run.Create(context.Background(), sessiontest.Owner, s.ID(), code.NewContext{Name: language,
			Language: language}); err != nil {
			t.Fatal(err)
		}
		for _, step := range steps {
			step.want.check(t, language+": "+step.text, b.cell(t, s, language, step.text))
		}
		if res := b.cell(t, s, language, "1;"); len(res.Notes) != 1 ||
			!strings.Contains(res.Notes[0], "fresh interpreter") {
			t.Errorf("%s: %+v", language, res)
		}
	}
}

func TestInterruptsOfOtherLanguages(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	ctx := context.Background()
	for _, c := range []struct{ language, define, busy, look, want string }{
		{"js", "var x = 1", "while (true) {}", "console.log(x)", "1\n"},
		{"js", "x = 2", "await new Promise(() => {})", "console.log(x)", "2\n"},
		{"bash", "x=1", "sleep 600; x=2", "echo $x", "1\n"},
		{"bash", "x=3", "while :; do :; done", "echo $x", "3\n"},
	} {
		for _, cell := range []code.Cell{{Code: c.define}, {Code: c.busy, TimeoutSeconds: 0.3}, {Code: c.look}} {
			cell.Language = c.language
			res, err := b.run.Cell(ctx, sessiontest.Owner, s.ID(), c.language, cell, nil)
			if err != nil {
				t.Fatal(err)
			}
			timedOut := res.ErrorDetail != nil && res.ErrorDetail.Name == "timeout"
			if timedOut != (cell.Code == c.busy) || len(res.Notes) > 0 {
				t.Errorf("%s: %+v, %q", cell.Code, res.ErrorDetail, res.Notes)
			}
			if out := strings.Join(res.Logs.Stdout, ""); cell.Code == c.look && out != c.want {
				t.Errorf("%s: %q", cell.Code, out)
			}
		}
	}
}

func TestAnInterpreterThatDied(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	b.cell(t, s, "main", "x = 1")
	res := b.cell(t, s, "main", "print('last', flush=True)\nimport os\nos._exit(5)")
	want{stdout: "last\n", err: "status 5", name: "exit"}.check(t, "an exit", res)
	if len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "the next cell starts a fresh one") {
		t.Errorf("%q", res.Notes)
	}
	res = b.cell(t, s, "main", "x")
	want{err: "NameError", name: "NameError"}.check(t, "after it", res)
	if len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "fresh interpreter") ||
		!strings.Contains(res.Notes[0], "status 5") {
		t.Errorf("%q", res.Notes)
	}
	b.cell(t, s, "main", "y = 2")
	if err := s.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	res = b.cell(t, s, "main", "y")
	want{err: "NameError", name: "NameError"}.check(t, "after a stop", res)
	if len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "the container was stopped") {
		t.Errorf("%q", res.Notes)
	}
}

// Files in $OUTPUT_DIR are listed when the interpreter ends, and not before.
func TestFilesOfAnInterpreterThatEnds(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	if res := b.cell(t, s, "main", "import os\ndef put(name): open(os.environ['OUTPUT_DIR'] + '/' + name, "+
		"'w').write(name)\nput('a')"); len(res.Files) > 0 {
		t.Errorf("%+v", res.Files)
	}
	res := b.cell(t, s, "main", "os.chdir(os.environ['OUTPUT_DIR'])\nos.mkdir('d')\nput('d/b')\n"+
		"os.symlink('nowhere', 'c')\nexit()")
	if notes := strings.Join(res.Notes, "\n"); len(res.Files) != 2 || len(res.Notes) != 2 ||
		!strings.Contains(notes, `"c" was not stored`) {
		t.Errorf("%+v %q", res.Files, res.Notes)
	}
}

func TestInterruptAndTimeoutKeepTheInterpreter(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	b.cell(t, s, "main", "x = 1")
	ctx := context.Background()
	done := make(chan code.Outcome, 1)
	began := make(chan struct{})
	go func() {
		// An interrupt during an import can get lost: Python drops it inside a callback for a lock that was deleted.
		res, _ := b.run.Cell(ctx, sessiontest.Owner, s.ID(), "main",
			code.Cell{Code: "import time\nprint('on', flush=True)\ntime.sleep(600)"}, func(ev code.Progress) error {
				if ev.Data == "on\n" {
					close(began)
				}
				return nil
			})
		done <- res
	}()
	<-began
	if info, err := b.run.Interrupt(ctx, sessiontest.Owner, s.ID(), "main"); err != nil ||
		info.State != proto.ContextBusy {
		t.Fatalf("%+v %v", info, err)
	}
	want{stdout: "on\n", err: "KeyboardInterrupt", name: "KeyboardInterrupt"}.check(t, "an interrupt", <-done)
	res, err := b.run.Cell(ctx, sessiontest.Owner, s.ID(), "main", code.Cell{Code: "import time\ntime.sleep(600)",
		TimeoutSeconds: 0.3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want{err: "time.sleep(600)", name: "timeout"}.check(t, "a timeout", res)
	want{results: []string{"1"}}.check(t, "after both", b.cell(t, s, "main", "x"))
	if _, err := b.run.Interrupt(ctx, sessiontest.Owner, s.ID(), "main"); err != nil {
		t.Error(err)
	}
	want{results: []string{"1"}}.check(t, "after an interrupt of nothing", b.cell(t, s, "main", "x"))
}

func TestACellThatHeedsNoInterrupt(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	text := "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf', " +
		"flush=True)\ntime.sleep(600)"
	res, err := b.run.Cell(context.Background(), sessiontest.Owner, s.ID(), "main",
		code.Cell{Code: text, TimeoutSeconds: 0.5}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want{stdout: "deaf\n", err: "timeout_seconds", name: "timeout"}.check(t, text, res)
	if res = b.cell(t, s, "main", "1"); len(res.Notes) != 1 || !slices.Equal(res.Results, []string{"1"}) {
		t.Errorf("%+v", res)
	}
}

func TestRestartAndDelete(t *testing.T) {
	b := newBench(t, session.Config{})
	ctx := context.Background()
	s := b.Create(t, proto.CreateContainer{})
	if _, err := b.run.Create(ctx, sessiontest.Owner, s.ID(), code.NewContext{Name: "a", Env: map[string]string{
		"V": "set"}}); err != nil {
		t.Fatal(err)
	}
	want{results: []string{"'set'"}}.check(t, "env", b.cell(t, s, "a", "import os\nx = 1\nos.environ['V']"))
	if _, err := b.run.Restart(ctx, sessiontest.Owner, s.ID(), "a"); err != nil {
		t.Fatal(err)
	}
	want{results: []string{"'set'"}}.check(t, "env again", b.cell(t, s, "a", "import os\nos.environ['V']"))
	want{err: "NameError"}.check(t, "after a restart", b.cell(t, s, "a", "x"))
	if err := b.run.Delete(ctx, sessiontest.Owner, s.ID(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.run.Get(sessiontest.Owner, s.ID(), "a"); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("a deleted context: %v", err)
	}
	if n := s.Info().RunningExecs; n != 0 {
		t.Errorf("%d execs run after the context was deleted", n)
	}
}

func TestAnIdleContextHoldsNoContainer(t *testing.T) {
	var ahead atomic.Int64
	b := newBench(t, session.Config{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		IdleTimeout: time.Minute})
	s := b.Create(t, proto.CreateContainer{})
	b.cell(t, s, "main", "x = 1")
	ahead.Store(int64(2 * time.Minute))
	if done, err := b.Sessions.Sweep(context.Background()); err != nil || done.Stopped != 1 {
		t.Fatalf("%+v %v", done, err)
	}
	if res := b.cell(t, s, "main", "'x' in globals()"); !slices.Equal(res.Results, []string{"False"}) ||
		len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "idle") {
		t.Errorf("%+v", res)
	}
}

func TestWhatIsRefused(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	ctx := context.Background()
	for item, req := range map[string]proto.Program{
		"code":             {},
		"language":         {Code: "1", Language: "cobol"},
		"image":            {Code: "1", Container: s.ID(), Image: "base"},
		"max_output_bytes": {Code: "1", MaxOutputBytes: -1},
		"timeout_seconds":  {Code: "1", TimeoutSeconds: -1},
	} {
		err := b.run.Once(ctx, sessiontest.Owner, req, nil, func(code.Outcome) error { return nil })
		if proto.CodeOf(err) != proto.InvalidArgument || proto.AsError(err).Item != item {
			t.Errorf("%s: %v", item, err)
		}
	}
	err := b.run.Once(ctx, sessiontest.Owner, proto.Program{Code: strings.Repeat("#", proto.MaxCode+1)}, nil,
		func(code.Outcome) error { return nil })
	if proto.CodeOf(err) != proto.TooLarge {
		t.Error(err)
	}
	for i := range code.MaxContexts {
		ask := code.NewContext{Name: fmt.Sprint("c", i), Language: "bash"} // the smallest of them
		if _, err := b.run.Create(ctx, sessiontest.Owner, s.ID(), ask); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.run.Cell(ctx, sessiontest.Owner, s.ID(), "more", code.Cell{Code: "1"}, nil); proto.CodeOf(
		err) != proto.Conflict {
		t.Errorf("one context too many: %v", err)
	}
	if _, err := b.run.Cell(ctx, "somebody", s.ID(), "c1", code.Cell{Code: "1"}, nil); proto.CodeOf(
		err) != proto.NotFound {
		t.Errorf("another owner: %v", err)
	}
}

// The output of cells counts against the same budget as that of commands, and is released. With little memory left,
// cells keep less.
func TestCellsShareTheRoomForOutput(t *testing.T) {
	b := newBench(t, session.Config{OutputMemory: 2 << 20})
	s := b.Create(t, proto.CreateContainer{})
	b.cell(t, s, "a", "1")
	budget := s.OutputBudget()
	before := budget.Used()
	res, err := b.run.Cell(t.Context(), sessiontest.Owner, s.ID(), "a", code.Cell{Code: "print('x' * 3_000_000)",
		MaxOutputBytes: 8 << 20}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Join(res.Logs.Stdout, "")); !res.Truncated || n > 1<<20 {
		t.Errorf("%d bytes of output, truncated %v", n, res.Truncated)
	}
	if res := b.cell(t, s, "a", "class Big:\n  def _repr_html_(self): return 'y' * 1_500_000\nBig()"); !res.Truncated {
		t.Errorf("a result of more than there is room for was kept: %d results", len(res.Rich))
	}
	if after := budget.Used(); after > before+(256<<10) {
		t.Errorf("cells that are over keep %d bytes", after-before)
	}
	if res := b.cell(t, s, "a", "'z' * 1000"); res.Truncated || len(res.Results) != 1 || len(res.Results[0]) < 1000 {
		t.Errorf("the next cell: %+v", res)
	}
}

// Code that is cut off by the end of the daemon is not recorded as code whose client went away.
func TestCutOffByTheEndOfTheDaemon(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	if _, err := s.Run(t.Context(), proto.Cmd{Command: "mkfifo /tmp/up"}); err != nil {
		t.Fatal(err)
	}
	ctx, shutdown := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		text := "import time\nwith open('/tmp/up', 'w') as up: up.write('up')\ntime.sleep(1000)"
		ended <- b.run.Once(ctx, sessiontest.Owner, proto.Program{Container: s.ID(), Code: text}, nil,
			func(code.Outcome) error { return nil })
	}()
	if _, err := s.Run(t.Context(), proto.Cmd{Command: "cat /tmp/up"}); err != nil {
		t.Fatal(err)
	}
	shutdown(proto.Errorf(proto.Unavailable, "", "", "the daemon is shutting down"))
	if err := <-ended; err == nil {
		t.Error("the code is said to have ended well")
	}
	b.Reopen(t)
	s, err := b.Sessions.Get(sessiontest.Owner, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, e := range s.Execs() {
		if x := e.Info(); strings.Contains(x.Command, "sleep(1000)") {
			found = true
			if x.End == nil || x.End.Message != "the daemon was shut down" {
				t.Errorf("%+v", x.End)
			}
		}
	}
	if !found {
		t.Error("no exec of the code is known")
	}
}

// TestContextOfAnEarlierDaemon checks that the first cell of a context says that its variables went with the daemon
// before, unless the context was deleted there.
func TestContextOfAnEarlierDaemon(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	cell := func(name string) []string { return b.cell(t, s, name, "x = 1").Notes }
	for _, name := range []string{"kept", "deleted"} {
		if notes := cell(name); len(notes) > 0 {
			t.Errorf("a new context: %q", notes)
		}
	}
	if err := b.run.Delete(t.Context(), sessiontest.Owner, s.ID(), "deleted"); err != nil {
		t.Fatal(err)
	}
	b.Reopen(t)
	b.run = code.Open(code.Config{Sessions: b.Sessions})
	t.Cleanup(func() { b.run.Close() })
	var err error
	if s, err = b.Sessions.Get(sessiontest.Owner, s.ID()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"deleted", "new"} {
		if notes := cell(name); len(notes) > 0 {
			t.Errorf("context %s: %q", name, notes)
		}
	}
	if notes := cell("kept"); len(notes) != 1 || !strings.Contains(notes[0], "this is a fresh interpreter") {
		t.Errorf("got %q", notes)
	}
	if notes := cell("kept"); len(notes) > 0 {
		t.Errorf("told again: %q", notes)
	}
}

func TestLanguagesAreThoseOfTheWire(t *testing.T) {
	if !slices.Equal(code.Languages(), proto.CodeLanguages) {
		t.Errorf("%v and %v", code.Languages(), proto.CodeLanguages)
	}
}

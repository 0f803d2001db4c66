package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"berth/code"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
	"berth/tools/bridge"
	"berth/tools/bridge/provider"
)

// fetchTool takes a URL and returns a page.
var fetchTool = provider.Tool{Name: "fetch", Description: "Fetches a page.", InputSchema: json.RawMessage(
	`{"type":"object","properties":{"u":{"type":"string"}},"required":["u"],"additionalProperties":false}`)}

// query is a tool for coroutines.
var query = provider.Tool{Name: "query", Async: true, InputSchema: json.RawMessage(
	`{"type":"object","properties":{"sql":{"type":"string"}},"required":["sql"]}`)}

// answerPages answers calls of these tools, and sends the size of each batch.
func answerPages(t *testing.T, o *bridge.ProviderSession) (batches chan int) {
	t.Helper()
	batches = make(chan int, 1000)
	go func() {
		for {
			batch, err := o.Next(context.Background())
			if err != nil {
				return
			}
			batches <- len(batch)
			for _, c := range batch {
				var in struct{ U, SQL string }
				_ = json.Unmarshal(c.Input, &in)
				out, _ := json.Marshal("page " + in.U + in.SQL)
				_ = o.Answer(c.ID, out, nil)
			}
		}
	}()
	return batches
}

// A container with tools has the modules, and the same program maps over fifty calls and reduces their results in
// each language.
func TestFiftyInOneScript(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	batches := answerPages(t, b.offer(t, s, "gateway", time.Minute, fetchTool, query))
	for name, c := range map[string]struct {
		text     string
		requests int
	}{
		"coroutines": {`python3 - <<'E'
import asyncio
from tools import query
async def main():
    pages = await asyncio.gather(*[query({"sql": str(i)}) for i in range(50)])
    print(sum(len(p) for p in pages))
asyncio.run(main())
E`, 1},
		"threads": {`python3 - <<'E'
import tools
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(16) as pool:
    print(sum(map(len, pool.map(tools.fetch, map(str, range(50))))))
E`, 50},
		"node": {`cat >map.mjs <<'E'
import tools from '/.berth/tools/tools.js'
const pages = await Promise.all([...Array(50).keys()].map(i => tools.fetch(String(i))))
console.log(pages.reduce((n, p) => n + p.length, 0))
E
node map.mjs`, 1},
		"bash": {`seq 0 49 | xargs -P 8 -I{} tools fetch u={} | tr -d '\n' | wc -c`, 50},
	} {
		t.Run(name, func(t *testing.T) {
			res := sessiontest.Bash(t, s, c.text)
			if strings.TrimSpace(res.Stdout) != "340" || res.Stderr != "" { // fifty times "page ", and the digits
				t.Errorf("%s%s", res.Stdout, res.Stderr)
			}
			requests, calls := 0, 0
			for calls < 50 {
				requests, calls = requests+1, calls+<-batches
			}
			if requests > c.requests || calls != 50 {
				t.Errorf("%d calls in %d requests", calls, requests)
			}
		})
	}
}

// A script may make more calls at once than the daemon allows: the modules hold the rest back, and none fails.
func TestMoreThanMayBeUnderWay(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	o := b.offer(t, s, "gateway", time.Minute, fetchTool, query)
	for name, text := range map[string]string{
		"coroutines": `python3 - <<'E'
import asyncio
from tools import query
async def main():
    print(sum(len(p) for p in await asyncio.gather(*[query({"sql": "x"}) for i in range(300)])))
asyncio.run(main())
E`,
		"node": `node -e 'const tools = require("tools")
Promise.all([...Array(300).keys()].map(i => tools.fetch("x"))).then(all => console.log(all.reduce((n, p) => n + p.length, 0)))'`,
	} {
		t.Run(name, func(t *testing.T) {
			go answerLate(t.Context(), o, 300, 192) // three requests, which is the maximum
			if res := sessiontest.Bash(t, s, text); res.Stdout != "1200\n" || res.Stderr != "" {
				t.Errorf("%s%s", res.Stdout, res.Stderr)
			}
		})
	}
}

// Calls succeed even if their inputs together exceed the size of one request or the limit for all requests under way.
// The first answers wait until the maximum is under way.
func TestMoreBytesThanMayBeUnderWay(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	o := b.offer(t, s, "gateway", time.Minute, fetchTool, query)
	for name, text := range map[string]string{
		"coroutines": `python3 - <<'E'
import asyncio
from tools import query
async def main():
    print(sum(len(p) for p in await asyncio.gather(*[query({"sql": "x" * 900_000}) for i in range(30)])))
asyncio.run(main())
E`,
		"node": `node -e 'const tools = require("tools")
Promise.all([...Array(30).keys()].map(i => tools.fetch("x".repeat(900_000)))).then(all => console.log(all.reduce((n, p) => n + p.length, 0)))'`,
	} {
		t.Run(name, func(t *testing.T) {
			go answerLate(t.Context(), o, 30, 27) // three requests of at most 8 MiB
			if res := sessiontest.Bash(t, s, text); res.Stdout != "120\n" || res.Stderr != "" {
				t.Errorf("%s%s", res.Stdout, res.Stderr)
			}
		})
	}
}

// wrongCalls has the daemon's messages for calls that are wrong whatever the tool is.
var wrongCalls = map[string]string{
	"large":   "an input has at most 1048576 bytes; put what is larger into a file",
	"deep":    "the input of a call is nested more than 64 levels deep",
	"name":    "the name of a tool has at most 128 bytes",
	"unicode": "a call must be valid Unicode, and no object in it may have a name twice",
}

// A wrong call fails alone, with the same message in each language; the calls that are made together with it are
// answered.
func TestAWrongCallFailsAlone(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	answerPages(t, b.offer(t, s, "gateway", time.Minute, fetchTool, query))
	const coroutines = `python3 - <<'E'
import asyncio
from tools import query
deep = []
for _ in range(70): deep = [deep]
later = query.__globals__["later"]
wrong = {"large": lambda: query({"sql": "x" * (17 << 20)}), "deep": lambda: query({"sql": deep}), "name": lambda: later("x" * 129, {}), "unicode": lambda: query({"sql": chr(0xd800)})}
async def main():
    for what, call in wrong.items():
        first, error, last = await asyncio.gather(query({"sql": "a"}), call(), query({"sql": "b"}), return_exceptions=True)
        print(what, first, last, type(error).__name__, error, sep="|")
asyncio.run(main())
E`
	const node = `node -e 'const tools = require("tools")
let deep = []
for (let i = 0; i < 70; i++) deep = [deep]
const wrong = { large: () => tools.fetch("x".repeat(17 << 20)), deep: () => tools.fetch({ u: deep }), name: () => tools["x".repeat(129)](), unicode: () => tools.fetch(String.fromCharCode(0xd800)) };
(async () => {
  await tools()
  for (const [what, call] of Object.entries(wrong)) {
    const [first, error, last] = await Promise.allSettled([tools.fetch("a"), call(), tools.fetch("b")])
    console.log([what, first.value, last.value, error.reason?.name, error.reason?.message].join("|"))
  }
})()'`
	const alone = `python3 - <<'E'
import tools
deep = []
for _ in range(70): deep = [deep]
wrong = {"large": lambda: tools.fetch("x" * (17 << 20)), "deep": lambda: tools.fetch({"u": deep}), "name": lambda: tools["x" * 129](), "unicode": lambda: tools.fetch(chr(0xd800))}
for what, call in wrong.items():
    try: print(call())
    except Exception as e: print(what, tools.fetch("a"), tools.fetch("b"), type(e).__name__, e, sep="|")
E`
	const command = `python3 - <<'E' >large; echo 'large|page a|page b|' $(tools fetch - <large 2>&1) | sed 's/| tools: fetch: \(.*\): /|\1|/'
print('{"u": "%s"}' % ("x" * (1 << 20)))
E`
	for name, text := range map[string]string{"coroutines": coroutines, "node": node, "one after the other": alone,
		"command": command} {
		res := sessiontest.Bash(t, s, text)
		lines := strings.Split(strings.TrimSpace(res.Stdout), "\n")
		if len(lines) != len(wrongCalls) && name != "command" || res.Stderr != "" {
			t.Errorf("%s: %s%s", name, res.Stdout, res.Stderr)
		}
		for _, line := range lines {
			what, _, _ := strings.Cut(line, "|")
			if want := what + "|page a|page b|ValueError|" + wrongCalls[what]; line != want {
				t.Errorf("%s: %.200s, want %s", name, line, want)
			}
		}
	}
}

// The example of docs/tools.md, in its three languages.
func TestDocumentedExample(t *testing.T) {
	text, err := os.ReadFile("../../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	price := provider.Tool{Name: "price", InputSchema: json.RawMessage(
		`{"type":"object","properties":{"item":{"type":"string"}},"required":["item"]}`)}
	o := b.offer(t, s, "gateway", time.Minute, price)
	go func() {
		for batch, err := o.Next(context.Background()); err == nil; batch, err = o.Next(context.Background()) {
			for _, c := range batch {
				var in struct{ Item string }
				_ = json.Unmarshal(c.Input, &in)
				// an item's price is its number
				_ = o.Answer(c.ID, json.RawMessage(strings.TrimPrefix(in.Item, "item-")), nil)
			}
		}
	}()
	for lang, program := range map[string][]string{"python": {"python3", "-c"}, "js": {"node", "-e"},
		"bash": {"bash", "-c"}} {
		_, rest, _ := strings.Cut(string(text), "\n```"+lang+"\n")
		example, _, ok := strings.Cut(rest, "\n```\n")
		if !ok {
			t.Fatalf("there is no example for %s", lang)
		}
		res, err := s.Run(t.Context(), proto.Cmd{Argv: append(program, example)})
		if err != nil || res.Result.Result.Stdout != "1225\n" || res.Result.Result.Stderr != "" {
			t.Errorf("%s: %v %+v", lang, err, res.Result.Result)
		}
	}
}

// Commands find the modules, also as root and in shells that started earlier. The caller's own modules come first.
func TestModulesAreFound(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	shell := func(text string, env map[string]string) string {
		res, err := s.Run(t.Context(), proto.Cmd{Command: text, Shell: "kept", Env: env})
		if err != nil {
			t.Fatal(err)
		}
		return res.Result.Result.Stdout + res.Result.Result.Stderr
	}
	if out := shell(`type tools`, nil); !strings.Contains(out, "not found") {
		t.Errorf("before there are tools: %s", out)
	}
	answerPages(t, b.offer(t, s, "gateway", time.Minute, fetchTool))
	for _, c := range []struct{ text, want string }{
		{
			`tools fetch 1; tools fetch u=2; cd / && python3 -c 'import tools; print(tools.fetch("3"))' && node -p 'require("tools").fetch.name'`, "page 1\npage 2\npage 3\nfetch\n"},
		{`tools fetch; echo $?; tools nothing; echo $?`, "1\n77\n"},
		{
			`touch /.berth/tools/python/tools.py /.berth/tools/x 2>&1 | grep -c denied; rm -rf /.berth/tools 2>/dev/null; tools | head -1`, "2\nfetch  Fetches a page.\n"},
		{
			`mkdir -p own && echo 'x = 1' >own/tools.py && PYTHONPATH=$PWD/own:$PYTHONPATH python3 -c 'import tools; print(tools.x)'`, "1\n"},
	} {
		if res := sessiontest.Bash(t, s, c.text); res.Stdout != c.want {
			t.Errorf("%s:\n%s%s", c.text, res.Stdout, res.Stderr)
		}
	}
	for range 2 {
		if out := shell(
			`tools fetch u=4; python3 -c 'import tools; print(tools.fetch("5"))'; echo "$PATH" | tr : '\n' | grep -c berth`, nil); out != "page 4\npage 5\n1\n" {
			t.Errorf("in a kept shell: %s", out)
		}
	}
	res, err := s.Run(t.Context(), proto.Cmd{Command: `tools fetch 6; echo $PYTHONPATH`, User: proto.UserRoot,
		Env: map[string]string{"PYTHONPATH": "/mine"}})
	if err != nil || res.Result.Result.Stdout != "page 6\n/mine:/.berth/tools/python\n" {
		t.Errorf("%v %+v", err, res.Result.Result)
	}
}

// The daemon refuses tools that are not on the list, however code reaches for them.
func TestReflection(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	answerPages(t, b.offer(t, s, "gateway", time.Minute, fetchTool))
	out := sessiontest.Bash(t, s, `python3 - <<'E'
import os, gc, sys, subprocess
import tools
own = tools.fetch.__globals__ # all that there is behind a function
tries = {
    "attribute": lambda: tools.secret(1), "getattr": lambda: getattr(tools, "secret")(), "item": lambda: tools["secret"](u=1),
    "renamed": lambda: type(tools.fetch)(tools.fetch.__code__, own, "secret", None, tuple(type(c)("secret") if c.cell_contents == "fetch" else c for c in tools.fetch.__closure__))("x"),
    "by hand": lambda: own["call"]("secret", {}), "case": lambda: tools.Fetch("x"), "path": lambda: tools["../fetch"]("x"), "space": lambda: tools["fetch "]("x"),
    "known": lambda: (own["known"].update(secret=({"name": "secret"}, None)), own["call"]("secret", {}))[1],
}
for name, f in tries.items():
    try: print(name, "gave", f())
    except PermissionError as e: pass
    except Exception as e: print(name, repr(e))
words = [v for o in gc.get_objects() if isinstance(o, dict) for v in list(o.values()) if isinstance(v, str) and "approv" in v.lower() and "http" in v]
print(words, sorted(k for k in os.environ if "BERTH_TOOLS" in k))
E`)
	if out.Stdout != "[] ['BERTH_TOOLS', 'BERTH_TOOLS_TOKEN']\n" || out.Stderr != "" {
		t.Errorf("%s%s", out.Stdout, out.Stderr)
	}
}

// Cells have the tools as global names. The names follow the list and replace no other name.
func TestBareNames(t *testing.T) {
	b := newBench(t, bridge.Config{})
	s := b.create(t, proto.CodeTools{})
	length := provider.Tool{Name: "len", InputSchema: json.RawMessage(`{"type":"object"}`)}
	o := b.offer(t, s, "gateway", time.Minute, fetchTool, query, length)
	answerPages(t, o)
	r := code.Open(code.Config{Sessions: b.st.Sessions})
	defer r.Close()
	cell := func(context, lang, text string) string { return runCell(t, r, s, context, lang, text) }
	for _, c := range []struct{ lang, text, want string }{
		{"python", `fetch("1") + tools.fetch("2") + await query({"sql": "3"})`, "'page 1page 2page 3'"},
		{"python", `[len("abc"), len.__module__]`, "[3, 'builtins']"},
		{"python", "def fetch(u): return 'mine'\nfetch('x')", "'mine'"},
		{"python", "del fetch\nfetch('4')", "'page 4'"},
		{"js", `await fetch('1') + await tools.fetch('2')`, "'page 1page 2'"},
		{"js", `const [a, b] = await Promise.all(['3', '4'].map(u => fetch(u))); a + b`, "'page 3page 4'"},
		{"js", "import { fetch as get } from 'tools'\nawait get({ u: '5' })", "'page 5'"},
		{"bash", `tools fetch 1 >page; cat page`, ""},
	} {
		if got := cell(c.lang, c.lang, c.text); got != c.want {
			t.Errorf("%s: %s\n%s", c.lang, c.text, got)
		}
	}
	o.Close()
	answerPages(t, b.offer(t, s, "gateway", time.Minute, query, provider.Tool{Name: "late",
		InputSchema: json.RawMessage(
			`{"type":"object","properties":{"u":{"type":"string"}}}`)}))
	for _, c := range []struct{ lang, text, want string }{
		{"python", `late("1")`, "'page 1'"}, {"python", `fetch("1")`, "NameError"}, {"js", `await late('1')`,
			"'page 1'"}, {"js", `fetch.toString().includes('Fetches')`, "false"},
	} {
		if got := cell(c.lang, c.lang, c.text); !strings.HasPrefix(got, c.want) {
			t.Errorf("when the list has changed: %s: %s\n%s", c.lang, c.text, got)
		}
	}
}

func runCell(t *testing.T, r *code.Runner, s *session.Session, name, lang, text string) string {
	t.Helper()
	res, err := r.Cell(t.Context(), owner, s.ID(), name, code.Cell{Code: text, Language: lang}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.ErrorDetail != nil {
		return fmt.Sprintf("%s: %s", res.ErrorDetail.Name, res.Error)
	}
	return strings.Join(res.Results, " ")
}

// answerLate answers a number of calls. The first ones wait until held calls are under way.
func answerLate(ctx context.Context, o *bridge.ProviderSession, calls, held int) {
	var waiting []provider.Call
	for seen := 0; seen < calls; {
		batch, err := o.Next(ctx)
		if err != nil {
			return
		}
		waiting, seen = append(waiting, batch...), seen+len(batch)
		if seen < held {
			continue
		}
		for _, c := range waiting {
			_ = o.Answer(c.ID, json.RawMessage(`"page"`), nil)
		}
		waiting = nil
	}
}

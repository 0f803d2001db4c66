// Package inside_test runs the modules and the command with real interpreters.
package inside_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestCalls(t *testing.T) {
	const show = `const show = p => p.then(v => console.log(JSON.stringify(v)), e => console.log(e.name + ': ' + e.message));`
	for _, c := range []struct{ name, language, text, want string }{
		{"attribute", "python", `import tools; print(tools.add(1, 2))`, "3\n"},
		{"name", "python", `from tools import add; print(add(1, b=5))`, "6\n"},
		{"item", "python", `import tools; print(tools["add"](a=1))`, "2\n"},
		{"all", "python", `from tools import *; print(add({"a": 4, "b": 4}))`, "8\n"},
		{"positions", "python", `import tools; print(tools.echo("u", None, {"x": [1]}))`,
			"{'deep': {'x': [1]}, 'n': None, 'url': 'u'}\n"},
		{"whole", "python", `import tools; print(tools.echo({"url": "ü", "on": True}))`, "{'on': True, 'url': 'ü'}\n"},
		{"odd name", "python", `import tools; print(tools.get_it({"x": 1}), tools["get-it"](x=2))`,
			"{'x': 1} {'x': 2}\n"},
		{"async", "python", `
import asyncio, tools
async def main(): return await tools.query({"sql": "select 1"})
print(repr(asyncio.run(main())))`, `'{"rows": [1]}'` + "\n"},
		{"signature", "python",
			`import tools, inspect; print(inspect.signature(tools.add)); print(inspect.signature(tools["echo"]))`,
			"(a: int, b: int = 1)\n(url: str = ..., n=..., deep: dict = ..., on: bool = ...)\n"},
		{"doc", "python", `import tools; print(tools.add.__doc__)`, "Adds two numbers.\nExactly.\n\na (integer): " +
			"the first\nb (integer, optional)\n"},
		{"help", "python",
			`import tools, pydoc; t = pydoc.plain(pydoc.render_doc(tools)); print("Fetches." in t, "add(a: int" in t, "echo: Gives" in t, "PATIENCE" in t)`, "True True True False\n"},
		{"dir", "python", `import tools; print(dir(tools), "add" in tools, "nothing" in tools, hasattr(tools, "_x"))`,
			"['add', 'echo', 'fetch', 'get_it', 'len', 'query'] True False False\n"},
		{"values", "python", `
import tools, pathlib
class Array:
    def tolist(self): return [1, 2]
print(tools.echo({"url": pathlib.Path("/x"), "deep": {"a": Array()}}))`, "{'deep': {'a': [1, 2]}, 'url': '/x'}\n"},
		{"pickle", "python", `
import multiprocessing, tools
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as p: print(p.map(tools.add, [1, 2]))`, "[2, 3]\n"},
		{"errors", "python", `
import tools
for f in (lambda: tools.secret(1), lambda: getattr(tools, "sec" + "ret")(), lambda: tools["../add"](), lambda: tools.missing(), lambda: tools.broken(), lambda: tools.add("x"),
          lambda: tools.add(1, 2, 3), lambda: tools.add(1, a=1), lambda: tools.echo(url=object()), lambda: tools.echo(n=float("nan"))):
    try: print(f())
    except Exception as e: print(type(e).__name__, str(e).split(": nan")[0])`, // newer versions name the number
			"PermissionError tool secret is not on the list\nPermissionError tool secret is not on the " +
				"list\nPermissionError tool ../add is not on the list\nNameError tool missing is not " +
				"registered\nRuntimeError it broke\n" +
				"ValueError a is missing\nTypeError add() takes 2 positional arguments but 3 were given\nTypeError " +
				"add() got multiple values for argument 'a'\n" +
				"ValueError tool echo: the arguments are not JSON: object cannot be sent to a tool\nValueError tool " +
				"echo: the arguments are not JSON: Out of range float values are not JSON compliant\n"},
		{"token", "python", `
import os; os.environ["BERTH_TOOLS_TOKEN"] = "another"
import tools
try: tools.add(1)
except PermissionError as e: print(e)`, "who are you?\n"},
		{"attribute", "node", show + `const tools = require('tools'); show(tools.add(1, 2))`, "3\n"},
		{"item", "node",
			show + `const { add, ['get-it']: it } = require('tools'); show(add({ a: 1 }).then(v => it({ v })))`,
			`{"v":2}` + "\n"},
		{"import", "module",
			show +
				`const { default: tools } = await import(process.cwd() + '/.berth/tools/tools.js'); show(tools.add(1, { b: 4 }))`, "5\n"},
		{"positions", "node", show + `show(require('tools').echo('u', undefined, { x: [1] }))`,
			`{"deep":{"x":[1]},"url":"u"}` + "\n"},
		{"whole", "node", show + `show(require('tools').echo({ url: 'ü', on: true }))`, `{"on":true,"url":"ü"}` + "\n"},
		{"list", "node",
			`const t = require('tools'); t().then(l => console.log(l.length, Object.keys(t).join(), 'add' in t, t.then))`, "6 add,echo,get-it,len,fetch,query true undefined\n"},
		{"errors", "node", show + `const t = require('tools'); (async () => {
			for (const f of [() => t.secret(1), () => t['sec' + 'ret'](), () => Reflect.get(t, 'secret')(), () => t.missing(), () => t.broken(), () => t.add('x'), () => t.add(1, 2, 3)]) await show(f())
		})()`, "PermissionError: tool secret is not on the list\nPermissionError: tool secret is not on the " +
			"list\nPermissionError: tool secret is not on the list\nNameError: tool missing is not registered\n" +
			"RuntimeError: it broke\nValueError: a is missing\nTypeError: add() takes 2 arguments, but 3 were given\n"},
		{"token", "node", show + `process.env.BERTH_TOOLS_TOKEN = 'another'; show(require('tools').add(1))`,
			"PermissionError: who are you?\n"},
		{"list", "bash", `tools`, "add     Adds two numbers.\necho    Gives its input back.\nget-it\nlen\nfetch   " +
			"Fetches.\nquery   Asks.\n"},
		{"help", "bash", `tools add --help`, "usage: tools add a=integer [b=integer]\n\nAdds two " +
			"numbers.\nExactly.\n\n  a  the first\n  b\n"},
		{"schema", "bash", `tools --json | head -1 | grep -o '"required": *\["a"\]' | tr -d ' '`, `"required":["a"]` +
			"\n"},
		{"string", "bash", `tools fetch u=https://x/?a=b`, "page https://x/?a=b ünï\n"},
		{"positions", "bash", `tools fetch https://x/?a=b; tools add 1 2`, "page https://x/?a=b ünï\n3\n"},
		{"options", "bash", `tools echo --url 12 --on --n=3; tools echo -- --url`, `{"n":3,"on":true,"url":"12"}` +
			"\n" + `{"url":"--url"}` + "\n"},
		{"object", "bash", `tools add '{"a": 1, "b": 1}'; echo '{"a": 2}' | tools add -`, "2\n3\n"},
		{"typed", "bash", `tools echo n=null 'deep={"x": [1]}' url=true`, `{"deep":{"x":[1]},"n":null,"url":"true"}` +
			"\n"},
		{"link", "bash", `"$(dirname "$(command -v tools)")"/../../guest tools add 5`, "6\n"},
		{"errors", "bash",
			`(tools secret; echo $?; tools missing; echo $?; tools add x; echo $?; tools add 1 2 3; echo $?; tools add --a; echo $?; tools --nothing; echo $?; echo no | tools add -; echo $?) 2>&1 | grep -v '^usage\|^   '`,
			"tools: secret: PermissionError: tool secret is not on the list\n77\ntools: missing: NameError: tool " +
				"missing is not registered\n1\ntools: add: ValueError: a is missing\n1\n" +
				"tools: add: \"3\" is one argument too many; see tools add --help\n2\n" +
				"tools: add: --a has no value; see tools add --help\n2\ntools: --nothing is not an option\n2\n" +
				"tools: add: standard input is not a JSON object of at most 4194304 bytes\n2\n"},
		{"unlisted", "bash",
			`(tools missing tea; echo $?; tools missing --help; echo $?; tools missing item=tea; echo $?) 2>&1 | sed 's/; write it as.*//'`,
			"tools: missing: no provider serves the tool missing now, so the meaning of \"tea\" is unknown\n2\n" +
				"tools: missing: no provider serves the tool missing now, so the meaning of \"--help\" is " +
				"unknown\n2\n" +
				"tools: missing: NameError: tool missing is not registered\n1\n"},
		{"token", "bash", `BERTH_TOOLS_TOKEN=another tools add 1 2>&1; echo $?; BERTH_TOOLS= tools 2>&1; echo $?`,
			"tools: PermissionError: who are you?\n77\ntools: this command has no tools: BERTH_TOOLS is not in its " +
				"environment\n1\n"},
	} {
		t.Run(c.language+"/"+strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			out, errs, status := newPeer(t).run(t, languages[c.language](c.text)...)
			if out != c.want || errs != "" || status != 0 {
				t.Errorf("status %d\n%s%s\nwant\n%s", status, out, errs, c.want)
			}
		})
	}
}

// spread calls fifty tools at once, in each language. A call of meet waits for another call.
var spread = map[string]string{
	"python": `
import asyncio, tools
async def main():
    async def one(i):
        for _ in range(i % 5): # some come to it later than others, but before the loop waits for anything
            await asyncio.sleep(0)
        return await tools.query({"sql": str(i)})
    rows = await asyncio.gather(*[one(i) for i in range(50)])
    print(len(rows), set(rows))
asyncio.run(main())`,
	"threads": `
import tools
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(50) as pool:
    print(sum(pool.map(lambda i: tools.meet(i=i), range(50))))`,
	"node": `const { meet } = require('tools')
Promise.all([...Array(50).keys()].map(i => meet({ i }))).then(all => console.log(all.reduce((n, one) => n + one, 0)))`,
	"bash": `seq 0 49 | xargs -P 50 -I{} tools meet i={} | wc -l`,
}

func TestFifty(t *testing.T) {
	for _, c := range []struct {
		name, language, want string
		requests             int
	}{
		{"python", "python", `50 {'{"rows": [1]}'}`, 1},
		{"threads", "python", "50", 50},
		{"node", "node", "50", 1},
		{"bash", "bash", "50", 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(t)
			out, errs, _ := p.run(t, languages[c.language](spread[c.name])...)
			requests, calls, _ := p.count()
			if strings.TrimSpace(out) != c.want || errs != "" || calls != 50 || requests != c.requests {
				t.Errorf("%d requests, %d calls\n%s%s", requests, calls, out, errs)
			}
		})
	}
}

// After a broken connection, the calls without an answer are sent again with the same ids.
func TestBroken(t *testing.T) {
	for name, text := range map[string]string{
		"python": `
import asyncio, tools
async def main(): print(len(await asyncio.gather(*[tools.query({"sql": str(i)}) for i in range(3)])))
print(tools.add(1)); asyncio.run(main())`,
		"node": `const t = require('tools'); (async () => {
			console.log(await t.add(1)); console.log((await Promise.all([0, 1, 2].map(i => t.query({ sql: String(i) })))).length) })()`,
		"bash": `tools add 1; for i in 1 2 3; do tools query sql=$i >/dev/null; done; echo 3`,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t)
			p.breaks = 2
			out, errs, _ := p.run(t, languages[name](text)...)
			_, calls, distinct := p.count()
			if out != "2\n3\n" || errs != "" || distinct != 4 || calls <= distinct {
				t.Errorf("%d calls, of which %d are different\n%s%s", calls, distinct, out, errs)
			}
		})
	}
}

// Retries go on for a fixed time from the moment that the daemon goes, each time that it goes. Connections last
// longer here than that time.
func TestPatienceBeginsWhenTheDaemonGoes(t *testing.T) {
	const python = `
import asyncio, tools
own = tools.add.__globals__
own["PATIENCE"] = 0.2
`
	const node = `
const { now } = Date, began = now()
let skipped = 0
Date.now = () => began + skipped + 1000 * (now() - began)
const t = require('tools');
`
	for name, c := range map[string]struct {
		language, text string
		breaks         int
		holds          time.Duration
		want           string
	}{
		"python": {"python", python + `own["PAUSE"] = 0.05; print(tools.add(1))`, 3, 500 * time.Millisecond,
			"2\n"},
		"coroutines": {"python", python +
			`own["PAUSE"] = 0.05; print(asyncio.run(own["later"]("add", {"a": 1})))`, 3, 500 * time.Millisecond, "2\n"},
		"node": {"node", node + `t.add(1).then(console.log)`, 3, 500 * time.Millisecond, "2\n"},
		"python, no longer": {"python", python + "try: tools.add(1)\nexcept RuntimeError as e: print(str(e)[:27])",
			1000, 1, "the tools cannot be reached\n"},
		"node, no longer": {"node", node + `
Date.now = () => skipped
globalThis.setTimeout = (f, ms) => { skipped += ms; setImmediate(f) }
t.add(1).catch(e => console.log(e.name, e.message.slice(0, 27), skipped > 300e3, skipped < 310e3))`, 1000, 1,
			"RuntimeError the tools cannot be reached true true\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t)
			p.breaks, p.holds = c.breaks, c.holds
			if out, errs, _ := p.run(t, languages[c.language](c.text)...); out != c.want || errs != "" {
				t.Errorf("%s%s", out, errs)
			}
		})
	}
}

// Calls are spread over requests by their bytes, too: three requests stay within the daemon's limit.
func TestRequestsAreNotTooLarge(t *testing.T) {
	for name, c := range map[string]struct{ language, text string }{
		"python": {"python", `
import asyncio, tools
sizes = [900_000] * 20 + [1] * 100 + [1_000_000] * 9
async def main(): print(len(await asyncio.gather(*[tools.query({"sql": "x" * n}) for n in sizes])))
asyncio.run(main())`},
		"node": {"node", `const { query } = require('tools')
const sizes = [...Array(20).fill(900_000), ...Array(100).fill(1), ...Array(9).fill(1_000_000)]
Promise.all(sizes.map(n => query({ sql: 'x'.repeat(n) }))).then(all => console.log(all.length))`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t)
			out, errs, _ := p.run(t, languages[c.language](c.text)...)
			requests, calls, distinct := p.count()
			if out != "129\n" || errs != "" || calls != 129 || distinct != 129 || requests > 6 {
				t.Errorf("%d requests, %d calls\n%s%s", requests, calls, out, errs)
			}
			for i, batch := range p.batches {
				size := 0
				for _, c := range batch {
					size += len(fmt.Sprint(c.Input["sql"]))
				}
				if len(batch) > 64 || size > 8<<20 {
					t.Errorf("request %d has %d calls and %d bytes", i, len(batch), size)
				}
			}
		})
	}
}

// The Python module reads a response in pieces of any size, and detects one that was cut off.
func TestPieces(t *testing.T) {
	out, errs, _ := newPeer(t).run(t, "python3", "-c", `
import tools
Answer, Broken = (tools.fetch.__globals__[n] for n in ("Answer", "Broken"))
def read(raw, size):
    a, lines = Answer(), []
    for at in range(0, len(raw), size):
        lines += a.feed(raw[at:at + size])
    return lines if a.over else lines + a.feed(b"")
top = b"HTTP/1.1 200 OK\r\n"
for raw in (top + b"Content-Length: 5\r\n\r\n{}\n[]more", top + b"transfer-encoding: Chunked\r\n\r\n1;x=y\r\n{\r\n4\r\n}\n[]\r\n0\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n{}\n[]"):
    for size in range(1, len(raw) + 1):
        if read(raw, size) != [b"{}", b"[]"]: print(raw, size, read(raw, size))
for raw in (b"", top, top + b"Content-Length: 5\r\n\r\n{}\n[", top + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}\n[]\r\n", top + b"Transfer-Encoding: chunked\r\n\r\nx\r\n", b"SSH-2.0-x\r\n\r\n", b"x" * 100_000,
            top + b"Content-Length: many\r\n\r\n"):
    for size in (1, 7, len(raw) or 1):
        try: print(raw[:50], size, read(raw, size))
        except Broken: pass`)
	if out != "" || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
}

// A busy daemon is asked again. An error of the list is shown.
func TestBusy(t *testing.T) {
	for name, text := range map[string]string{
		"python": "import tools\ntry: print(tools.add(1))\nexcept Exception as e: print(type(e).__name__, e)",
		"node":   `require('tools').add(1).then(console.log, e => console.log(e.name, e.message))`,
		"bash":   `tools add 1 2>&1 | sed 's/.*: R/R/; s/://'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t)
			p.busy = 2
			if out, errs, _ := p.run(t, languages[name](text)...); out != "2\n" || errs != "" {
				t.Errorf("%s%s", out, errs)
			}
			p.fails = 502
			if out, errs, _ := p.run(t, languages[name](text)...); out != "RuntimeError not now\n" || errs != "" {
				t.Errorf("%s%s", out, errs)
			}
		})
	}
}

// Interrupted or cancelled code closes its connection. The tool hung answers after that.
func TestCanceled(t *testing.T) {
	for name, c := range map[string]struct{ language, text string }{
		"sync": {"python", `
import signal, tools
def alarm(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, alarm); signal.setitimer(signal.ITIMER_REAL, 0.5)
try: tools.slow()
except KeyboardInterrupt: print("over", flush=True); tools.hung()`},
		"async": {"python", `
import asyncio, tools
from tools import query
async def main():
    slow = query.__closure__ and asyncio.ensure_future(asyncio.wait_for(query.__globals__["later"]("slow", {}), 0.5))
    try: await slow
    except asyncio.TimeoutError: print("over", flush=True)
    await query.__globals__["later"]("hung", {}) # the loop has to go on for it to hang up
asyncio.run(main())`},
		"bash": {"bash", `timeout -s INT 0.5 tools slow; echo over; tools hung >/dev/null`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t)
			out, errs, _ := p.run(t, languages[c.language](c.text)...)
			if out != "over\n" || errs != "" {
				t.Errorf("%s%s", out, errs)
			}
		})
	}
}

// The list may change while a program runs.
func TestLate(t *testing.T) {
	p := newPeer(t)
	p.extra = true
	out, errs, _ := p.run(t, languages["python"](`
import tools
print(tools.late(x=1), "late" in tools)`)...)
	if out != "{'x': 1} True\n" || errs != "" {
		t.Errorf("%s%s", out, errs)
	}
}

"""Uses berth_tools as an application does: functions of this process are tools of code in a container."""

import asyncio
import enum
import json
import os
import sys
import threading
import typing
import urllib.request

from berth_tools import Tool, serve, tool


def api(method, path, body=None):
    request = urllib.request.Request(
        os.environ["BERTH_HOST"] + path, None if body is None else json.dumps(body).encode(),
        {"X-Api-Key": os.environ["BERTH_API_KEY"], "Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=90) as answer:
        return json.load(answer)


def same(what, got, want):
    if got != want:
        sys.exit(f"{what}: {got!r}, want {want!r}")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


running = most = 0
lock, together = threading.Lock(), threading.Barrier(8)


def fetch(u: str, tries: int = 3, *, kind: typing.Optional[str] = None) -> str:
    """Fetches a page.

    Not a real one.

    Args:
        u: Which page,
            by its name.
        tries (int): How often.

    Returns:
        Its text.
    """
    return f"page {u} {tries} {kind}"


def meet(n: int) -> int:
    together.wait(30)  # returns only when eight calls are here
    return n


async def later(xs: typing.List[int], colour: Colour = Colour.RED) -> typing.Dict[str, int]:
    await asyncio.sleep(0.01)
    return {"sum": sum(xs)}


def fail(): raise KeyError("no such thing")


def odd(): return object()


def large(): return "x" * 9_000_000


# The descriptions of functions that the daemon gets.
spec = tool(fetch).spec()
same("description", spec["description"], "Fetches a page.\n\nNot a real one.")
same("schema", spec["input_schema"], {"type": "object", "required": ["u"], "additionalProperties": False, "properties": {
    "u": {"type": "string", "description": "Which page, by its name."},
    "tries": {"type": "integer", "description": "How often.", "default": 3},
    "kind": {"type": ["string", "null"], "default": None}}})
same("schema", tool(later).input_schema["properties"], {
    "xs": {"type": "array", "items": {"type": "integer"}}, "colour": {"enum": ["red", "blue"]}})
for bad, f in (("*args", lambda: tool(lambda *args: 0, name="x")), ("a name", lambda: tool(lambda: 0))):
    try:
        f()
        sys.exit(f"{bad} was taken")
    except ValueError:
        pass

allow = ["fetch", "meet", "later", "fail", "odd", "large", "named"]
box = api("POST", "/v1/containers", {"code_tools": {"allow": allow}})["id"]


def run(code, language="python"):
    out = api("POST", "/v1/run_code", {"container": box, "code": code, "language": language})
    return out.get("error_detail", {}).get("name") or ("".join(out["results"]) or "".join(out["logs"]["stdout"]))


def refused(what, f):
    try:
        f()
    except (ConnectionError, ValueError) as e:
        print(what, "is refused:", e, file=sys.stderr)
    else:
        sys.exit(what + " is served")


refused("a container that is not there", lambda: serve("container_0000000000000000000000", [fetch]))
refused("another key", lambda: serve(box, [fetch], api_key="another"))
plain = api("POST", "/v1/containers", {})["id"]
refused("a container without tools", lambda: serve(plain, [fetch]))

with serve(box, [fetch, meet, later, fail, odd, large, tool(lambda x: x, name="named"),
                 tool(fetch, name="hidden")]) as server:
    same("names", sorted(server.names), sorted(allow))
    same("python", run("fetch('x') + tools.fetch(u='y', tries=1)"), "'page x 3 Nonepage y 1 None'")
    same("at once", run("from concurrent.futures import ThreadPoolExecutor\n"
                        "with ThreadPoolExecutor(8) as p: r = sum(p.map(meet, range(8)))\nr"), "28")
    same("coroutine", run("later([1, 2, 3])['sum']"), "6")
    same("js", run("(await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map(n => meet(n)))).length", "js"), "8")
    same("bash", run("tools later 'xs=[4, 5]'", "bash"), '{"sum":9}\n')
    same("a name of its own", run("tools.named({'x': [1]})"), "[1]")
    for code, error in (("fail()", "RuntimeError"), ("odd()", "RuntimeError"), ("large()", "RuntimeError"),
                        ("fetch(1)", "ValueError"), ("fetch()", "ValueError"), ("fetch('u', nothing=1)", "ValueError"),
                        ("tools.hidden('x')", "PermissionError"), ("hidden('x')", "NameError")):
        same(code, run(code), error)
    fifty = "from concurrent.futures import ThreadPoolExecutor\n" \
        "with ThreadPoolExecutor(16) as p: pages = list(p.map(fetch, map(str, range(50))))\nsum(map(len, pages)) + len(set(pages))"
    same("fifty", run(fifty), str(50 * len("page  3 None") + 90 + 50))

    # A command that outlives the daemon continues its calls, and so does this process.
    began, go = threading.Event(), threading.Event()

    def slow(n: int) -> int:
        began.set()
        go.wait(60)
        return n * n

    other = api("POST", "/v1/containers", {"code_tools": {"allow": ["slow"]}})["id"]
    with serve(other, {"slow": slow}) as second:
        x = api("POST", f"/v1/containers/{other}/exec", {
            "command": "python3 -c 'import tools; print(tools.slow(7), tools.slow(8))'", "background": True})["id"]
        began.wait(60)
        print("restart", flush=True)
        sys.stdin.readline()
        go.set()
        result = api("GET", f"/v1/containers/{other}/execs/{x}/result?wait_seconds=60")
        same("after a restart", result["result"]["stdout"], "49 64\n")
    second.wait()
same("when nobody serves it any more", run("fetch('x')"), "RuntimeError")
print("done")

"""Runs PraisonAI's code mode over a container, with the real package."""

import sys

from praisonaiagents import Agent, tool
from praisonaiagents.approval import ApprovalDecision, add_approval_requirement, set_approval_callback
from praisonaiagents.tools.python_tools import execute_code_with_tools
from praisonaiagents.tools.registry import ToolRegistry
from praisonaiagents.tools.tool_proxy import CodeToolBridge

from berth_praisonai import BerthBridge, code_tool


def same(what, got, want):
    if got != want:
        sys.exit(f"{what}: {got!r}, want {want!r}")


def raises(kind, f):
    try:
        out = f()
    except kind:
        return
    sys.exit(f"no {kind.__name__}: {out!r}")


def fetch(u: str, times: int = 1) -> str:
    """Fetches a page."""
    return f"page {u} " * times


@tool
def price(page: str) -> int:
    """The price on a page."""
    return len(page)


def drop(table: str) -> str:
    """Drops a table."""
    return "dropped " + table


registry = ToolRegistry(discovery_enabled=False)
for t in (fetch, price, drop):
    registry.register(t)
asked = []


def decide(name, arguments, level):
    asked.append(arguments)
    return ApprovalDecision(approved=len(asked) == 1, reason="not again")


add_approval_requirement("drop", "high")
set_approval_callback(decide)

with BerthBridge() as bridge:
    same("the interface", isinstance(bridge, CodeToolBridge), True)

    def run(code, allow=("fetch", "price"), **more):
        return execute_code_with_tools(code, allowed_tools=list(allow), registry=registry, bridge=bridge, **more)

    same("bare and namespace", run("print('hi')\nfetch('a') + tools.fetch(u='b', times=2)"), {
        "result": "'page a page b page b '", "stdout": "hi\n", "stderr": "", "success": True})
    same("map and reduce", run("min(price(fetch(str(i))) for i in range(50))")["result"], "7")
    same("an import", run("import json, os\nos.getuid()")["result"], "1000")
    raises(PermissionError, lambda: run("tools.drop('x')"))
    raises(PermissionError, lambda: run("getattr(tools, 'dr' + 'op')('x')"))
    raises(PermissionError, lambda: run("tools.fetch('x')", allow=["price"]))
    raises(NameError, lambda: run("tools.missing()", allow=["fetch", "missing"]))
    raises(ValueError, lambda: run("1", allow=["tools"]))
    same("no list", run("fetch('x')", allow=[])["success"], False)
    same("an error", run("1/0"), {"result": None, "stdout": "", "stderr": "Error: division by zero", "success": False})
    same("a loop", run("while True: pass", timeout=2)["success"], False)
    same("an approval", run("drop('x')", allow=["drop"])["result"], "'dropped x'")
    raises(PermissionError, lambda: run("drop('y')", allow=["drop"]))  # one approval is for one call
    same("asked", [a["table"] for a in asked], ["x", "y"])
    raises(PermissionError, lambda: run("try: fetch('x')\nexcept Exception: pass\n1",
                                        policy_hook=lambda name, arguments: ("not now", arguments)))
    same("a rewrite", run("fetch('x')", policy_hook=lambda name, arguments: (None, {**arguments, "u": "z"}))["result"],
         "'page z '")

raises(ValueError, lambda: code_tool([fetch], code_tools_allow=["tools"]))
execute = code_tool([fetch, price], code_tools_allow=["fetch"])
same("a tool", execute("fetch('a')")["result"], "'page a '")
raises(PermissionError, lambda: execute("tools.price('a')"))
agent = Agent(name="coder", instructions="Runs code.", tools=[execute], llm="none")
same("an agent's", [getattr(t, "__name__", None) for t in agent.tools], ["execute_code"])
with BerthBridge(keep=True) as bridge:
    bridge.run_code("open('/workspace/kept', 'w').write('x')")
    same("a kept container", bridge.run_code("open('/workspace/kept').read()")["result"], "'x'")
print("done")

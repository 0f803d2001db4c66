"""Runs PraisonAI's code mode over a container, with the real package."""

import sys

from praisonaiagents import Agent, ExecutionConfig, tool
from praisonaiagents.approval import ApprovalDecision, add_approval_requirement, set_approval_callback
from praisonaiagents.hooks import HookEvent, HookRegistry, HookResult
from praisonaiagents.policy import Policy, PolicyAction, PolicyEngine, PolicyRule
from praisonaiagents.tools.python_tools import execute_code_with_tools
from praisonaiagents.tools.registry import ToolRegistry
from praisonaiagents.tools.tool_proxy import CodeToolBridge, LocalProcessBridge

import berth_praisonai
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


def boom(x):
    """Fails."""
    raise ValueError("boom")


def odd():
    """Gives back what JSON does not have."""
    return {1}


def star(*first, **named):
    """Takes anything."""
    return [list(first), named]


registry = ToolRegistry(discovery_enabled=False)
for t in (fetch, price, drop, boom, odd, star):
    registry.register(t)
asked = []


def decide(name, arguments, level):
    if name != "drop":
        return ApprovalDecision(approved=True)
    asked.append(arguments)
    return ApprovalDecision(approved=len(asked) == 1, reason="not again")


add_approval_requirement("drop", "high")
set_approval_callback(decide)

with BerthBridge() as bridge:
    same("the interface", isinstance(bridge, CodeToolBridge), True)

    def run(code, allow=("fetch", "price"), **more):
        return execute_code_with_tools(code, allowed_tools=list(allow), registry=registry, bridge=bridge, **more)

    same("bare and namespace", run("print('hi')\nfetch('a') + tools.fetch(u='b', times=2)"), {
        "result": "page a page b page b ", "stdout": "hi\n", "stderr": "", "success": True})
    same("map and reduce", run("min(price(fetch(str(i))) for i in range(50))")["result"], "7")
    same("an import", run("import json, os\nfrom tools import fetch as f\nf(str(os.getuid()))")["result"], "page 1000 ")
    raises(PermissionError, lambda: run("tools.fetch('x')", allow=["price"]))
    raises(PermissionError, lambda: run("tools.fetch('x')", allow=[]))
    raises(NameError, lambda: run("missing()", allow=["fetch", "missing"]))
    raises(ValueError, lambda: run("1", allow=["tools"]))
    same("an exit", run("import os\nos._exit(3)")["success"], False)

    def told(bridge, code, allow, more):
        try:
            return execute_code_with_tools(code, allowed_tools=allow, registry=registry, bridge=bridge, **more)
        except Exception as e:
            return f"{type(e).__name__}: {e}"

    some = ["fetch", "boom", "odd", "star", "missing"]
    no, rewrite = (lambda name, given: ("no", given)), (lambda name, given: (None, {**given, "u": "z"}))
    for code, allow, more in (
        ("print('hi')\nfetch('a') + tools.fetch(u='b')", some, {}), ("fetch('x')", some, {}), ("1 + 1", some, {}),
        ("[1, 'a', None]", some, {}), ("x = 5", some, {}), ("None", some, {}), ("", some, {}), ("'a\\nb'", some, {}),
        ("1/0", some, {}), ("print('before')\n{}['k']", some, {}), ("undefined", some, {}), ("def f(:", some, {}),
        ("boom(1)", some, {}), ("try:\n  boom(1)\nexcept RuntimeError as e:\n  print(e)", some, {}),
        ("odd()", some, {}), ("star(1, 2, a=3)", some, {}), ("fetch(5)", some, {}), ("fetch()", some, {}),
        ("tools.drop('x')", some, {}), ("getattr(tools, 'dr' + 'op')('x')", some, {}), ("tools._x", some, {}),
        ("try:\n  tools.drop(1)\nexcept Exception: pass\n1", some, {}), ("tools.fetch('x')", [], {}),
        ("fetch('x')", [], {}), ("tools.missing()", some, {}), ("missing()", some, {}), ("1", ["tools"], {}),
        ("try:\n  missing()\nexcept Exception: pass\n1", some, {}), ("print('a' * 30000)", some, {}),
        ("print('b' * 300)\n'c' * 20000", some, {"max_output_size": 100}), ("while True: pass", some, {"timeout": 2}),
        ("fetch('x')", some, {"policy_hook": no}), ("fetch('x')", some, {"policy_hook": rewrite}),
        ("try:\n  fetch('x')\nexcept Exception: pass\n1", some, {"policy_hook": no}),
    ):
        want = told(LocalProcessBridge(), code, allow, more)
        for _ in range(9):  # its child has a CPU limit as long as its timeout, and either may end it
            if "exited abnormally" not in str(want):
                break
            want = told(LocalProcessBridge(), code, allow, more)
        same(f"{code!r} as in PraisonAI's own bridge", told(bridge, code, allow, more), want)
    same("an approval", run("drop('x')", allow=["drop"])["result"], "dropped x")
    raises(PermissionError, lambda: run("drop('y')", allow=["drop"]))  # one approval is for one call
    same("asked", [a["table"] for a in asked], ["x", "y"])
    raises(PermissionError, lambda: run("try: fetch('x')\nexcept Exception: pass\n1",
                                        policy_hook=lambda name, arguments: ("not now", arguments)))

raises(ValueError, lambda: code_tool([fetch], code_tools_allow=["tools"]))
execute = code_tool([fetch, price], code_tools_allow=["fetch"])
same("a tool", execute("fetch('a')")["result"], "page a ")
raises(PermissionError, lambda: execute("tools.price('a')"))
agent = Agent(name="coder", instructions="Runs code.", tools=[execute], llm="none", approval="full")
same("an agent's", [getattr(t, "__name__", None) for t in agent.tools], ["execute_code"])

# What an agent has to say of a call holds for calls by code: in its own code mode, and in a code_tool.
paid = []


def pay(amount: int) -> str:
    """Pays."""
    paid.append(amount)
    return f"paid {amount}"


def denying():
    engine = PolicyEngine()
    engine.add_policy(Policy(name="no_pay", rules=[
        PolicyRule(action=PolicyAction.DENY, resource="tool:pay", reason="no payments")]))
    return engine


def hooks(result):
    registry = HookRegistry()
    registry.register_function(HookEvent.BEFORE_TOOL, lambda given: result(given), matcher="pay")
    return registry


class Halves:
    """Halves is a guardrail of tool calls that changes their arguments."""

    def validate_tool_call(self, name, arguments):
        return True, {**arguments, "amount": arguments["amount"] // 2} if name == "pay" else arguments


berth_praisonai.install()
own = ExecutionConfig(code_execution=True, code_mode="isolated", code_tools=True, code_tools_allow=["pay"])
unsafe = ExecutionConfig(code_execution=True, code_mode="unsafe", code_tools=True, code_tools_allow=["pay"])
common = {"llm": "none", "approval": "full"}
ways = {
    "isolated": lambda: Agent(name="isolated", tools=[pay], execution=own, **common),
    "unsafe": lambda: Agent(name="unsafe", tools=[pay], execution=unsafe, **common),
    "code_tool": lambda: Agent(name="own", tools=[code_tool([pay], code_tools_allow=["pay"])], **common),
}


def ask(agent, code):
    try:
        return str(agent.execute_tool("execute_code", {"code": code}))
    except Exception as e:  # an agent tries again before it fails
        return str(e)


for way, make in ways.items():
    agent = make()
    got = ask(agent, "import os\npay(1) + ' by ' + str(os.path.isdir('/workspace'))")
    same(f"{way}: in a container, {got}", "paid 1 by True" in got and paid == [1], True)
    agent.policy = denying()
    got = ask(agent, "pay(2)")
    same(f"{way}: a policy, {got}", "denied by policy" in got and paid == [1], True)
    got = ask(agent, "try:\n  pay(2)\nexcept BaseException: pass\n'went on'")
    same(f"{way}: a policy that code ignores, {got}", "went on" not in got and paid == [1], True)
    agent = make()
    agent._tool_call_guardrails = [Halves()]
    same(f"{way}: a rewrite", "paid 2" in ask(agent, "pay(4)") and paid == [1, 2], True)
    paid.clear()

tool_of = code_tool([pay], code_tools_allow=["pay"])
agent = Agent(name="hooked", tools=[tool_of], hooks=hooks(lambda given: HookResult.deny("no")), **common)
got = ask(agent, "pay(3)")
same(f"a hook, {got}", "blocked by security policy" in got and not paid, True)
agent = Agent(name="hooked2", tools=[code_tool([pay], code_tools_allow=["pay"])], hooks=hooks(
    lambda given: HookResult(modified_input={"amount": 7})), **common)
ask(agent, "pay(3)")
same("a hook's rewrite", paid, [7])
strict = code_tool([pay], code_tools_allow=["pay"])
agent = Agent(name="strict", tools=[strict], **common)
agent.policy = denying()
raises(PermissionError, lambda: strict("pay(1)"))
raises(PermissionError, lambda: code_tool([pay], code_tools_allow=["pay"], policy_hook=lambda n, a: "no")("pay(1)"))
add_approval_requirement("pay", "high")
set_approval_callback(lambda name, given, level: ApprovalDecision(approved=name != "pay" or given["amount"] < 5))
agent = ways["code_tool"]()
got = ask(agent, "pay(1)\npay(6)")
same(f"an approval for one call, {got}", "denied" in got and paid[0] == 7 and set(paid[1:]) == {1}, True)

with BerthBridge(keep=True) as bridge:
    bridge.run_code("open('/workspace/kept', 'w').write('x')")
    same("a kept container", bridge.run_code("open('/workspace/kept').read()")["result"], "x")
print("done")

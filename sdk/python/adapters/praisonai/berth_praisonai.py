"""PraisonAI's code mode in a berth container: code that a model wrote runs there, and calls the agent's tools here.

    import berth_praisonai

    berth_praisonai.install()  # from now on, code that may call tools runs in containers
    Agent(tools=[fetch], execution=ExecutionConfig(
        code_execution=True, code_mode="isolated", code_tools=True, code_tools_allow=["fetch"]))

Without install, code reaches a container by a bridge or a tool of its own:

    with BerthBridge() as bridge:
        execute_code_with_tools("fetch('x')", allowed_tools=["fetch"], registry=registry, bridge=bridge)

    Agent(tools=[code_tool([fetch], code_tools_allow=["fetch"])])

A BerthBridge is a CodeToolBridge, PraisonAI's interface for code that runs elsewhere. Its results are those of
PraisonAI's own LocalProcessBridge; code may also import modules and use all built-in functions. Each call of a tool
goes through PraisonAI's own gate, serve_tool_call, which checks its list, its policies and its approval each time. Code
in the container can reach only the listed tools, and the daemon checks that too.
"""

import ast
import contextvars
import gc
import json
import os
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Optional

from berth import Client, CodeResult, Sandbox, Tool
from praisonaiagents.tools import python_tools, tool_proxy
from praisonaiagents.tools.injected import get_current_state
from praisonaiagents.tools.registry import ToolRegistry, get_registry
from praisonaiagents.tools.tool_proxy import serve_tool_call

__all__ = ["BerthBridge", "code_tool", "install"]

RESERVED = "tools"
MOST_OUTPUT = 16 << 20  # bytes of a stream that the daemon keeps at most

# The program that runs code in the container. It gives back a report as JSON text: the result as text, or the error,
# and the first refused call. Arguments and values of tools travel as JSON text, so that they arrive as they do in
# PraisonAI's own bridge. Code can change all of this, which gains it nothing: each call is decided outside.
PROGRAM = '''
def _berth(code, allowed):
    import ast, builtins, json, sys
    served = sys.modules.get("tools")
    report = {"result": None, "error": None, "refused": None}

    def caller(name):
        def call(*args, **kwargs):
            if name not in allowed:
                why = "tool " + repr(name) + " is not allowed from code"
                report["refused"] = report["refused"] or why
                raise RuntimeError("PermissionError: " + why)
            answer = json.loads(served[name](call=json.dumps({"args": args, "kwargs": kwargs})))
            if not answer["ok"]:
                raise RuntimeError(answer["error"])
            return answer["value"]
        call.__name__ = name
        return call

    class Tools:
        def __getattr__(self, name):
            if name.startswith("_"):
                raise AttributeError(name)
            return caller(name)

    if allowed and served is None:
        import tools as served
    sys.modules["tools"] = names = Tools()
    g = {"__name__": "__main__", "__builtins__": builtins, "tools": names}
    g.update((name, caller(name)) for name in allowed)
    try:
        tree, last = ast.parse(code), None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)
        exec(compile(tree, "<code>", "exec"), g)
        value = None if last is None else eval(compile(last, "<code>", "eval"), g)
        report["result"] = None if value is None else str(value)
    except BaseException as e:
        report["error"] = str(e)
    sys.stdout.flush()
    return json.dumps(report)

class _Report(str):
    __repr__ = str.__str__

_Report(_berth(%r, %r))
'''


class BerthBridge:
    """A BerthBridge runs code in containers of a berth daemon.

    Without keep, each run has a container of its own, which run_code deletes afterwards.
    """

    def __init__(
        self, url: Optional[str] = None, key: Optional[str] = None, *, image: str = "", keep: bool = False,
    ) -> None:
        """
        Args:
            url: The daemon's URL. The default is that of berth.Client: BERTH_URL of the environment.
            key: The API key. The default is that of berth.Client: BERTH_API_KEY of the environment.
            image: The image of the containers. The default is the daemon's default image.
            keep: Use one container, with its files, for all runs that allow the same tools. close deletes it.
        """
        self._client = Client(url, key)
        self._image, self._keep = image, keep
        self._kept: Dict[tuple, Sandbox] = {}
        self._turn = threading.Lock()

    def __enter__(self) -> "BerthBridge":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """close deletes the kept containers."""
        while self._kept:
            self._kept.popitem()[1].delete()

    def run_code(self, code: str, *, allowed_tools: Iterable[str] = (), registry: Optional[ToolRegistry] = None,
                 timeout: int = 30, max_output_size: int = 10000,
                 policy_hook: Optional[Callable[..., Any]] = None) -> Dict[str, Any]:
        """run_code implements CodeToolBridge. It returns a dict with result, stdout, stderr and success.

        If a call of a tool was refused, run_code raises the error of that call.
        """
        allowed = sorted({str(name) for name in allowed_tools})
        if RESERVED in allowed:
            raise ValueError(f"{RESERVED!r} is the name by which code finds all tools; no tool can have it")
        try:
            ast.parse(code)
        except (SyntaxError, ValueError):  # ValueError: it has a NUL byte
            return outcome(stderr="Syntax Error in provided code")
        registry = get_registry() if registry is None else registry
        refusals: List[BaseException] = []
        context = contextvars.copy_context()  # PraisonAI keeps approvals there
        tools = [proxy(name, allowed, registry, policy_hook, refusals, context) for name in allowed]
        with self._turn:  # only one run at a time may serve functions to a container
            sandbox = self._sandbox(tuple(allowed))
            try:
                if tools:
                    with sandbox.tools.serve(tools):
                        answer = self._run(sandbox, code, allowed, timeout, max_output_size)
                else:
                    answer = self._run(sandbox, code, allowed, timeout, max_output_size)
            finally:
                if not self._keep:
                    sandbox.delete()
        return verdict(answer, refusals, timeout, max_output_size)

    def _run(self, sandbox: Sandbox, code: str, allowed: List[str], timeout: int, longest: int) -> CodeResult:
        return sandbox.code.run(
            PROGRAM % (code, allowed), timeout_seconds=timeout,
            max_output_bytes=min(MOST_OUTPUT, max(1 << 20, 8 * longest)))

    def _sandbox(self, allowed: tuple) -> Sandbox:
        if allowed in self._kept:
            return self._kept[allowed]
        sandbox = Sandbox.create(client=self._client, image=self._image or None, code_tools=allowed or None)
        if self._keep:
            self._kept[allowed] = sandbox
        return sandbox


def proxy(name: str, allowed: List[str], registry: ToolRegistry, policy_hook: Optional[Callable[..., Any]],
          refusals: List[BaseException], context: contextvars.Context) -> Tool:
    """proxy returns a tool for code in a container that calls PraisonAI's gate. Its input and its result are JSON texts."""

    def call(call: str) -> str:
        asked = json.loads(call)
        try:
            value = context.copy().run(
                serve_tool_call, name, asked["args"], asked["kwargs"], allowed=allowed, registry=registry,
                policy_hook=policy_hook)
        except Exception as e:
            if isinstance(e, (PermissionError, NameError)):
                refusals.append(e)
            return json.dumps({"ok": False, "error": f"{type(e).__name__}: {e}"})
        try:
            return json.dumps({"ok": True, "value": value})
        except (TypeError, ValueError):
            return json.dumps({"ok": True, "value": str(value)})

    schema = {
        "type": "object", "properties": {"call": {"type": "string"}}, "required": ["call"],
        "additionalProperties": False,
    }
    return Tool(call, name, f"The tool {name} of a PraisonAI agent.", schema)


def outcome(result: Optional[str] = None, stdout: str = "", stderr: str = "", success: bool = False) -> Dict[str, Any]:
    return {"result": result, "stdout": stdout, "stderr": stderr, "success": success}


def verdict(answer: CodeResult, refusals: List[BaseException], timeout: int, longest: int) -> Dict[str, Any]:
    """verdict returns a result of code in PraisonAI's form. It raises a refusal even if the code caught it."""
    if answer.error and answer.error.name == "timeout":
        return outcome(stderr=f"Execution timed out after {timeout} seconds")
    try:
        report = json.loads(answer.outcome.results[-1] if answer.outcome.results else "")
    except ValueError:
        report = {}  # the interpreter ended before the program did
    if refusals:
        raise refusals[0]
    if report.get("refused"):
        raise PermissionError(report["refused"])
    stdout, stderr = answer.stdout, answer.stderr
    if len(stdout) > longest:
        tail = min(longest // 5, 500)
        stdout = stdout[:longest - tail] + f"\n...[{len(stdout):,} chars, truncated]...\n" + stdout[-tail:]
    if not report:
        return outcome(stdout=stdout, stderr=stderr or (answer.error.message if answer.error else "") or "the code ended without a result")
    if report.get("error") is not None:
        return outcome(stdout=stdout, stderr=stderr + "Error: " + report["error"])
    return outcome(report.get("result"), stdout, stderr, True)


def code_tool(tools: Iterable[Any], *, code_tools_allow: Optional[Iterable[str]] = None,
              bridge: Optional[BerthBridge] = None, timeout: int = 30,
              policy_hook: Optional[Callable[..., Any]] = None) -> Callable[[str], Dict[str, Any]]:
    """code_tool returns a tool for an Agent. The tool runs code that may call the listed tools.

    Without a list the code may call no tools. Each call passes what the agent has: its PolicyEngine, its permissions,
    its guardrails, its hooks before tools, and approvals. They may refuse the call or change its arguments.

    Args:
        tools: The tools of which some can be listed.
        code_tools_allow: Names of the tools that code may call.
        bridge: Where the code runs. The default is a BerthBridge from the environment.
        timeout: Maximum seconds of a run.
        policy_hook: A further check of each call, as of CodeToolBridge.run_code. It comes first.
    """
    allow = list(code_tools_allow or [])
    if RESERVED in allow:
        raise ValueError(f"{RESERVED!r} is the name by which code finds all tools; no tool can have it")
    tools = list(tools)
    registry = ToolRegistry(discovery_enabled=False)  # only these tools
    for t in tools:
        registry.register(t)
    runner = bridge or BerthBridge()

    def execute_code(code: str) -> Dict[str, Any]:
        """Runs Python code in a container and gives its output. The code may call the tools that it is allowed,
        by their names or as tools.name.

        Args:
            code: The code. The value of its last expression is the result.
        """
        hooks = [] if policy_hook is None else [policy_hook]
        hooks += [hook_of(agent, tools) for agent in agents_of(execute_code)]
        return runner.run_code(
            code, allowed_tools=allow, registry=registry, timeout=timeout, policy_hook=chain(hooks))

    return execute_code


def agents_of(execute_code: Callable[..., Any]) -> List[Any]:
    """agents_of returns the agents whose rules hold for a call of a tool: the one that calls it, or all that have it.

    PraisonAI tells a tool the name of its agent only. If several agents have that name, the rules of each hold.
    """
    from praisonaiagents import Agent

    state = get_current_state()
    # not isinstance, which asks weak proxies of objects that may be gone
    alive = [o for o in gc.get_objects() if issubclass(type(o), Agent)]
    having = [a for a in alive if any(t is execute_code for t in (getattr(a, "tools", None) or []))]
    if state is None:
        return having
    named = [a for a in having if a.name == state.agent_id] or [a for a in alive if a.name == state.agent_id]
    if not named:
        raise PermissionError(f"the agent {state.agent_id!r} that runs code was not found, so its policies cannot hold")
    return named


def hook_of(agent: Any, tools: List[Any]) -> Callable[[str, Dict[str, Any]], Any]:
    """hook_of returns the checks that an agent makes before it calls a tool itself, as a policy_hook."""

    def hook(name: str, arguments: Dict[str, Any]) -> Any:
        blocked, arguments = before_tool(agent, name, arguments)
        if blocked:
            return blocked, arguments
        if not agent._is_bypass_mode():
            denied = agent._check_permission_manager_deny(name, arguments)
            if isinstance(denied, dict):
                return denied.get("error", "denied by permission policy"), arguments
        checked = agent._check_tool_policy_and_guardrails(name, arguments, tools)
        if isinstance(checked, dict):
            return checked.get("error", "denied by policy"), arguments
        return None, checked[1]

    return hook


def before_tool(agent: Any, name: str, arguments: Dict[str, Any]) -> Any:
    """before_tool runs an agent's hooks before a tool. It returns why they block the call, or None, and the
    arguments."""
    from praisonaiagents.hooks import BeforeToolInput, HookEvent

    runner = getattr(agent, "_hook_runner", None)
    if runner is None or not runner.registry.has_hooks(HookEvent.BEFORE_TOOL):
        return None, arguments
    given = BeforeToolInput(
        session_id=getattr(agent, "_session_id", None) or "default", cwd=os.getcwd(), event_name=HookEvent.BEFORE_TOOL,
        timestamp=str(time.time()), agent_name=agent.name, tool_name=name, tool_input=arguments)
    results = runner.execute_sync(HookEvent.BEFORE_TOOL, given, target=name)
    if runner.is_blocked(results):
        return f"Execution of {name} was blocked by security policy.", arguments
    for r in results:
        if r.output and r.output.modified_input:
            arguments = {**arguments, **r.output.modified_input}
    return None, arguments


def chain(hooks: List[Callable[..., Any]]) -> Optional[Callable[..., Any]]:
    """chain returns a policy_hook that asks several. Each sees the arguments as the one before it left them."""
    if not hooks:
        return None

    def hook(name: str, arguments: Dict[str, Any]) -> Any:
        for h in hooks:
            said = h(name, arguments)
            reason = said[0] if isinstance(said, tuple) else said
            if isinstance(said, tuple) and len(said) > 1 and isinstance(said[1], dict):
                arguments = said[1]
            if reason is not None:
                return reason, arguments
        return None, arguments

    return hook


def install(bridge: Optional[BerthBridge] = None) -> None:
    """install makes containers the place where code that may call tools runs.

    Agents with ExecutionConfig(code_execution=True, code_tools=True) and code_mode "isolated" or "unsafe" use berth
    from then on, and so does execute_code_with_tools without a bridge. Their lists, policies and approvals stay.

    Args:
        bridge: Where the code runs. The default is a BerthBridge from the environment.
    """
    runner = bridge or BerthBridge()
    tool_proxy.LocalProcessBridge = lambda: runner
    run = getattr(python_tools.execute_code_with_tools, "__wrapped__", python_tools.execute_code_with_tools)

    def execute_code_with_tools(
        code: str, allowed_tools: Optional[List[str]] = None, registry: Optional[Any] = None, timeout: int = 30,
        max_output_size: int = 10000, bridge: Optional[Any] = None, policy_hook: Optional[Any] = None,
    ) -> Dict[str, Any]:
        return run(
            code, allowed_tools, registry, timeout, max_output_size, runner if bridge is None else bridge, policy_hook)

    execute_code_with_tools.__wrapped__ = run
    python_tools.execute_code_with_tools = execute_code_with_tools

"""PraisonAI's code mode in a berth container: code that a model wrote runs there, and calls the agent's tools here.

    from praisonaiagents.tools.python_tools import execute_code_with_tools
    from berth_praisonai import BerthBridge, code_tool

    with BerthBridge() as bridge:
        execute_code_with_tools("fetch('x')", allowed_tools=["fetch"], registry=registry, bridge=bridge)

    Agent(tools=[code_tool([fetch], code_tools_allow=["fetch"])])

A BerthBridge is a CodeToolBridge, PraisonAI's interface for code that runs elsewhere. Each call of a tool goes through
PraisonAI's own gate, serve_tool_call, which checks its list, its policies and its approval each time. Code in the
container can reach only the listed tools, and the daemon checks that too.
"""

import inspect
import json
import os
import threading
import urllib.error
import urllib.request
from typing import Any, Callable, Dict, Iterable, List, Optional

from berth_tools import Tool, serve, tool
from praisonaiagents.tools.registry import ToolRegistry, get_registry
from praisonaiagents.tools.tool_proxy import serve_tool_call

__all__ = ["BerthBridge", "code_tool"]

RESERVED = "tools"
MORE = 30.0  # seconds that a request may take beyond what the code may


class BerthBridge:
    """A BerthBridge runs code in containers of a berth daemon.

    Without keep, each run has a container of its own, which run_code deletes afterwards.
    """

    def __init__(
        self, base_url: Optional[str] = None, api_key: Optional[str] = None, *, image: str = "", keep: bool = False,
    ) -> None:
        """
        Args:
            base_url: The daemon's URL. The default is BERTH_HOST of the environment.
            api_key: The API key. The default is BERTH_API_KEY of the environment.
            image: The image of the containers. The default is the daemon's default image.
            keep: Use one container, with its files, for all runs that allow the same tools. close deletes it.
        """
        self._url = (base_url or os.environ.get("BERTH_HOST", "")).rstrip("/")
        self._key = api_key or os.environ.get("BERTH_API_KEY", "")
        self._image, self._keep = image, keep
        self._kept: Dict[tuple, str] = {}
        self._turn = threading.Lock()

    def __enter__(self) -> "BerthBridge":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """close deletes the kept containers."""
        while self._kept:
            self._delete(self._kept.popitem()[1])

    def run_code(self, code: str, *, allowed_tools: Iterable[str] = (), registry: Optional[ToolRegistry] = None,
                 timeout: int = 30, max_output_size: int = 10000,
                 policy_hook: Optional[Callable[..., Any]] = None) -> Dict[str, Any]:
        """run_code implements CodeToolBridge. It returns a dict with result, stdout, stderr and success.

        If a call of a tool was refused, run_code raises the error of that call.
        """
        allowed = sorted({str(name) for name in allowed_tools})
        if RESERVED in allowed:
            raise ValueError(f"{RESERVED!r} is the name by which code finds all tools; no tool can have it")
        registry = get_registry() if registry is None else registry
        refusals: List[BaseException] = []
        tools = [
            proxy(name, allowed, registry, policy_hook, refusals)
            for name in allowed if registry.get(name) is not None
        ]
        with self._turn:  # only one run at a time may serve functions to a container
            container = self._container(tuple(allowed))
            try:
                if tools:
                    with serve(container, tools, base_url=self._url, api_key=self._key):
                        answer = self._run(container, code, timeout, max_output_size)
                else:
                    answer = self._run(container, code, timeout, max_output_size)
            finally:
                if not self._keep:
                    self._delete(container)
        return verdict(answer, refusals, max_output_size)

    def _run(self, container: str, code: str, timeout: int, longest: int) -> Dict[str, Any]:
        body = {
            "container": container, "code": code, "language": "python",
            "timeout_seconds": timeout, "max_output_bytes": max(1, longest),
        }
        return self._ask("POST", "/v1/run_code", body, timeout + MORE)

    def _container(self, allowed: tuple) -> str:
        if allowed in self._kept:
            return self._kept[allowed]
        body: Dict[str, Any] = {"code_tools": {"allow": list(allowed)}} if allowed else {}
        if self._image:
            body["image"] = self._image
        id = self._ask("POST", "/v1/containers", body)["id"]
        if self._keep:
            self._kept[allowed] = id
        return id

    def _delete(self, container: str) -> None:
        try:
            self._ask("DELETE", f"/v1/containers/{container}")
        except RuntimeError:
            pass  # the container is gone, or its lease will end it

    def _ask(
        self, method: str, path: str, body: Optional[Dict[str, Any]] = None, timeout: float = MORE,
    ) -> Dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._url + path, data, {"X-Api-Key": self._key, "Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as e:
            raise RuntimeError(said(e)) from None


def said(e: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(e.read())["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the daemon answered with status {e.code}"


def proxy(name: str, allowed: List[str], registry: ToolRegistry, policy_hook: Optional[Callable[..., Any]],
          refusals: List[BaseException]) -> Tool:
    """proxy returns a registered tool for berth_tools: it has the real tool's parameters and calls PraisonAI's gate."""
    real = registry.get(name)
    described = tool(
        plain(real), name=name, description=str(getattr(real, "description", None) or inspect.getdoc(real) or ""))

    def call(**keywords: Any) -> Any:
        try:
            return serve_tool_call(name, (), keywords, allowed=allowed, registry=registry, policy_hook=policy_hook)
        except (PermissionError, NameError) as e:
            refusals.append(e)
            raise

    return Tool(call, name, described.description, described.input_schema)


def plain(real: Any) -> Callable[..., Any]:
    """plain returns the function of a tool. The tool may be an object with a method run."""
    real = inspect.unwrap(real) if callable(real) else real
    return real if inspect.isroutine(real) else getattr(real, "run", real)


def verdict(answer: Dict[str, Any], refusals: List[BaseException], longest: int) -> Dict[str, Any]:
    """verdict returns an answer of run_code in PraisonAI's form. It raises a refusal even if the code caught it."""
    if refusals:
        raise refusals[0]
    failed = answer.get("error_detail") or {}
    message = failed.get("message", "")
    if failed.get("name") == "PermissionError" and "tools that code in this container may call" in message:
        raise PermissionError(message)
    if failed.get("name") == "NameError" and message.startswith("no client serves the tool"):
        raise NameError(message)
    logs = answer.get("logs") or {}
    results = answer.get("results") or []
    stderr = "".join(logs.get("stderr") or [])
    if failed:
        stderr += f"Error: {message or failed.get('name')}"
    return {
        "result": results[-1][:longest] if results else None,
        "stdout": "".join(logs.get("stdout") or [])[:longest],
        "stderr": stderr[:longest],
        "success": not failed,
    }


def code_tool(tools: Iterable[Any], *, code_tools_allow: Optional[Iterable[str]] = None,
              bridge: Optional[BerthBridge] = None, timeout: int = 30) -> Callable[[str], Dict[str, Any]]:
    """code_tool returns a tool for an Agent. The tool runs code that may call the listed tools of the agent.

    Without a list the code may call no tools.

    Args:
        tools: The agent's tools. Only these can be listed.
        code_tools_allow: Names of the tools that code may call.
        bridge: Where the code runs. The default is a BerthBridge from the environment.
        timeout: Maximum seconds of a run.
    """
    allow = list(code_tools_allow or [])
    if RESERVED in allow:
        raise ValueError(f"{RESERVED!r} is the name by which code finds all tools; no tool can have it")
    registry = ToolRegistry(discovery_enabled=False)  # only the agent's own tools
    for t in tools:
        registry.register(t)
    runner = bridge or BerthBridge()

    def execute_code(code: str) -> Dict[str, Any]:
        """Runs Python code in a container and gives its output. The code may call the tools that it is allowed,
        by their names or as tools.name.

        Args:
            code: The code. The value of its last expression is the result.
        """
        return runner.run_code(code, allowed_tools=allow, registry=registry, timeout=timeout)

    return execute_code

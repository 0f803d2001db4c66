"""Makes a JSON Schema of a function's parameters from its signature and its docstring."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

PLAIN: dict[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean",
    list: "array", tuple: "array", set: "array", dict: "object", type(None): "null",
}


@dataclasses.dataclass(frozen=True)
class Tool:
    """A Tool is a function with its name, description and schemas."""

    call: Callable[..., Any]
    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None

    def spec(self) -> dict[str, Any]:
        """Returns the tool's description for the daemon."""
        out = {"name": self.name, "description": self.description, "input_schema": self.input_schema}
        return out if self.output_schema is None else {**out, "output_schema": self.output_schema}

    def run(self, input: Mapping[str, Any]) -> Any:
        """Calls the function with an input. For a coroutine function it returns the coroutine."""
        given = dict(input)
        first: list[Any] = []
        for p in inspect.signature(self.call).parameters.values():
            if p.kind is p.POSITIONAL_ONLY and p.name in given:
                first.append(given.pop(p.name))
        return self.call(*first, **given)


def tool(call: Tool | Callable[..., Any], *, name: str | None = None, description: str | None = None,
         input_schema: dict[str, Any] | None = None, output_schema: dict[str, Any] | None = None) -> Tool:
    """Makes a Tool of a function. The defaults come from the function's name, docstring and signature."""
    if isinstance(call, Tool):
        return call
    if not callable(call):
        raise TypeError(f"{call!r} is no function")
    text, parameters = documented(inspect.getdoc(call) or "")
    name = name or str(getattr(call, "__name__", ""))
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
        raise ValueError(f"{name!r} is no name for a tool; give one, with tool(function, name=...)")
    return Tool(
        call, name, text if description is None else description, input_schema or schema(call, parameters),
        output_schema)


def schema(call: Callable[..., Any], described: Mapping[str, str]) -> dict[str, Any]:
    """Returns the JSON Schema of a function's parameters."""
    try:
        hints = typing.get_type_hints(call)
    except Exception:  # ignore annotations that cannot be resolved
        hints = {}
    properties: dict[str, Any] = {}
    out: dict[str, Any] = {"type": "object", "properties": properties, "required": [], "additionalProperties": False}
    for p in inspect.signature(call).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            raise ValueError(
                f"{call.__name__}(*{p.name}): a tool takes its arguments by name; give input_schema, or name them")
        if p.kind is p.VAR_KEYWORD:
            out["additionalProperties"] = True
            continue
        one = of(hints.get(p.name, Any))
        if p.name in described:
            one["description"] = described[p.name]
        if p.default is p.empty:
            out["required"].append(p.name)
        elif is_json(p.default):
            one["default"] = p.default
        properties[p.name] = one
    return out


def is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
        return True
    except (TypeError, ValueError):
        return False


def of(hint: Any) -> dict[str, Any]:
    """Returns the schema of one annotation. For an annotation that it does not know, the schema allows any value."""
    origin: Any = typing.get_origin(hint)
    args = typing.get_args(hint)
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    if origin in (typing.Union, types.UnionType):
        return union(args)
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin is typing.Annotated:
        return of(args[0])
    if inspect.isclass(hint) and issubclass(hint, enum.Enum):
        return {"enum": [e.value for e in hint]}
    if typing.is_typeddict(hint):
        return {
            "type": "object",
            "properties": {k: of(v) for k, v in typing.get_type_hints(hint).items()},
            "required": sorted(typing.cast(Any, hint).__required_keys__),
        }
    if not inspect.isclass(origin):
        return {}
    if hasattr(origin, "keys"):
        return {"type": "object", "additionalProperties": of(args[1])} if len(args) == 2 else {"type": "object"}
    if hasattr(origin, "__iter__"):
        return {"type": "array", "items": of(args[0])} if args else {"type": "array"}
    return {}


def union(args: tuple[Any, ...]) -> dict[str, Any]:
    parts = [of(a) for a in args]
    if all(set(p) == {"type"} and isinstance(p["type"], str) for p in parts):
        return {"type": [p["type"] for p in parts]}
    return {"anyOf": parts}


def documented(text: str) -> tuple[str, dict[str, str]]:
    """Returns a docstring's description of the function and of each parameter, in Google or Sphinx style."""
    about: list[str] = []
    parameters: dict[str, str] = {}
    section = last = ""
    for line in text.splitlines():
        field = re.match(r"\s*:param\s+(?:[\w\[\], ]+\s)?(\w+):\s*(.*)", line)
        begins = re.fullmatch(r"(Args|Arguments|Parameters|Returns?|Raises|Yields|Examples?|Notes?):\s*", line)
        if field:
            section, last = "field", field[1]
            parameters[last] = field[2]
        elif begins:
            section, last = begins[1], ""
        elif section in ("Args", "Arguments", "Parameters"):
            one = re.match(r"( {2,8}|\t)\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)", line)
            if one and (not last or len(one[1]) <= 4):
                last = one[2]
                parameters[last] = one[3]
            elif line.strip() and last:
                parameters[last] += " " + line.strip()
        elif section in ("", "Example", "Examples", "Note", "Notes") and not re.match(
                r"\s*:(returns?|rtype|raises)\b", line):
            about.append(line)
    return "\n".join(about).strip(), parameters

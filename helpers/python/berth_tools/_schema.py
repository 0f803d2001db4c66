"""Makes a JSON Schema of a function's parameters from its signature and its docstring."""

import dataclasses
import enum
import inspect
import json
import re
import types
import typing
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

PLAIN = {
    str: "string", int: "integer", float: "number", bool: "boolean",
    list: "array", tuple: "array", set: "array", dict: "object", type(None): "null",
}


@dataclasses.dataclass(frozen=True)
class Tool:
    """A Tool is a function with its name, description and schemas."""

    call: Callable[..., Any]
    name: str
    description: str
    input_schema: Dict[str, Any]
    output_schema: Optional[Dict[str, Any]] = None

    def spec(self) -> Dict[str, Any]:
        """spec returns the tool's description for the daemon."""
        out = {"name": self.name, "description": self.description, "input_schema": self.input_schema}
        return out if self.output_schema is None else {**out, "output_schema": self.output_schema}

    def run(self, input: Mapping[str, Any]) -> Any:
        """run calls the function with an input. For a coroutine function it returns the coroutine."""
        given = dict(input)
        first = []
        for p in inspect.signature(self.call).parameters.values():
            if p.kind is p.POSITIONAL_ONLY and p.name in given:
                first.append(given.pop(p.name))
        return self.call(*first, **given)


def tool(call: Callable[..., Any], *, name: Optional[str] = None, description: Optional[str] = None,
         input_schema: Optional[Dict[str, Any]] = None, output_schema: Optional[Dict[str, Any]] = None) -> Tool:
    """tool makes a Tool of a function. The defaults come from the function's name, docstring and signature."""
    if isinstance(call, Tool):
        return call
    if not callable(call):
        raise TypeError(f"{call!r} is no function")
    text, parameters = documented(inspect.getdoc(call) or "")
    name = name or getattr(call, "__name__", "")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
        raise ValueError(f"{name!r} is no name for a tool; give one, with tool(function, name=...)")
    return Tool(
        call, name, text if description is None else description, input_schema or schema(call, parameters),
        output_schema)


def schema(call: Callable[..., Any], described: Mapping[str, str]) -> Dict[str, Any]:
    """schema returns the JSON Schema of a function's parameters."""
    try:
        hints = typing.get_type_hints(call)
    except Exception:  # ignore annotations that cannot be resolved
        hints = {}
    properties: Dict[str, Any] = {}
    out: Dict[str, Any] = {"type": "object", "properties": properties, "required": [], "additionalProperties": False}
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


def of(hint: Any) -> Dict[str, Any]:
    """of returns the schema of one annotation. For an annotation that it does not know, the schema allows any value."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    if origin is typing.Union or origin is getattr(types, "UnionType", ()):
        return union(args)
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin is getattr(typing, "Annotated", ()):
        return of(args[0])
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [e.value for e in hint]}
    if isinstance(origin, type) and origin is not dict and PLAIN.get(
            origin, "array" if hasattr(origin, "__iter__") and not hasattr(origin, "keys") else "") == "array":
        return {"type": "array", "items": of(args[0])} if args else {"type": "array"}
    if isinstance(origin, type) and hasattr(origin, "keys"):
        return {"type": "object", "additionalProperties": of(args[1])} if len(args) == 2 else {"type": "object"}
    if typing.is_typeddict(hint) if hasattr(typing, "is_typeddict") else False:
        return {
            "type": "object",
            "properties": {k: of(v) for k, v in typing.get_type_hints(hint).items()},
            "required": sorted(hint.__required_keys__),
        }
    return {}


def union(args: Tuple[Any, ...]) -> Dict[str, Any]:
    parts = [of(a) for a in args]
    if all(set(p) == {"type"} and isinstance(p["type"], str) for p in parts):
        return {"type": [p["type"] for p in parts]}
    return {"anyOf": parts}


def documented(text: str) -> Tuple[str, Dict[str, str]]:
    """documented returns a docstring's description of the function and of each parameter, in Google or Sphinx style."""
    about, parameters, section, last = [], {}, "", ""
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

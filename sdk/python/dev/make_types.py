"""Writes src/berth/types.py from the OpenAPI document of a daemon.

    python dev/make_types.py openapi.json            writes the types
    python dev/make_types.py --check openapi.json    says where the types that are written differ from the document

The check allows schemas and fields that the types do not have: a newer daemon may send more.
"""

from __future__ import annotations

import ast
import json
import keyword
import pathlib
import sys
import textwrap
from typing import Any

TARGET = pathlib.Path(__file__).parent.parent / "src" / "berth" / "types.py"

# What the methods answer, and what their arguments may hold. Types that these name come along.
ROOTS = """
Approval AllowedTool Build BuildCache BuildEvent CodeContext CodeTools Commit Container ContainerStats
DaemonMessage Exec ExecResult FeedEvent FileEvent FileInfo FoundFiles FoundLines Image ImageLine Info JobSummary Key
KeyAndSecret KeyStatus LeaseRequest Limits Manifest Network NetworkSecret NewWebhook Outcome Port PortURL Progress
PublicPorts PublishedPorts Published Quota QuotaChange Registry Shell Snapshot Stats Tool ToolCall ToolConfiguration
ToolRun ToolVariable Webhook WindowSize Workspace
""".split()

PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
HEAD = '''"""Types of the API: what methods answer, and what some of their arguments hold.

Made by dev/make_types.py from the daemon's OpenAPI document; do not edit. Times are in UTC. A field that is None was left
out by the daemon, and is left out of a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

'''


def reference(schema: dict[str, Any]) -> str | None:
    for part in [schema, *schema.get("allOf", [])]:
        if "$ref" in part:
            return str(part["$ref"].rsplit("/", 1)[1])
    return None


def annotation(schema: dict[str, Any], used: set[str]) -> str:
    """The Python type of a schema, as text."""
    name = reference(schema)
    if name is not None:
        used.add(name)
        return name
    kind = schema.get("type")
    if isinstance(kind, list):
        rest = [k for k in kind if k != "null"]
        if len(rest) != 1:
            return "Any"
        inner = annotation({**schema, "type": rest[0]}, used)
        return f"{inner} | None"
    if kind == "string":
        if "enum" in schema:
            values = [v for v in schema["enum"] if v]
            return f"Literal[{', '.join(map(json.dumps, values))}]" if values else "str"
        if schema.get("format") == "date-time":
            return "datetime"
        return "bytes" if schema.get("contentEncoding") == "base64" else "str"
    if kind == "array":
        items = schema.get("items")
        return f"list[{annotation(items, used)}]" if isinstance(items, dict) else "list[Any]"
    if kind == "object" and "properties" not in schema:
        more = schema.get("additionalProperties")
        return f"dict[str, {annotation(more, used)}]" if isinstance(more, dict) else "dict[str, Any]"
    options = [o for key in ("oneOf", "anyOf") for o in schema.get(key, [])]
    if options:
        kinds = [annotation(o, used) for o in options if o.get("type") != "null"]
        merged = list(dict.fromkeys(kinds))
        null = " | None" if any(o.get("type") == "null" for o in options) else ""
        return (merged[0] if len(merged) == 1 else "Any") + null
    return PLAIN.get(str(kind), "Any")


def properties(schema: dict[str, Any], schemas: dict[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """The properties of an object with those of the schemas that it extends, and the required ones."""
    props: dict[str, Any] = {}
    required: set[str] = set()
    for part in schema.get("allOf", []):
        name = reference(part)
        inner, needs = properties(schemas[name] if name else part, schemas)
        props.update(inner)
        required |= needs
    props.update(schema.get("properties", {}))
    return props, required | set(schema.get("required", []))


def fields(schema: dict[str, Any], schemas: dict[str, Any], used: set[str]) -> list[tuple[str, str, str, str]]:
    """Name, type, default and description of each field, required ones first."""
    props, required = properties(schema, schemas)
    out: list[tuple[str, str, str, str]] = []
    for name in sorted(props, key=lambda n: (n not in required, n != "id", n)):
        # The document lists the classes that this one daemon has; another may have more.
        kind = "str" if name == "runtime_class" else annotation(props[name], used)
        safe = name + "_" if keyword.iskeyword(name) else name
        if name in required and "| None" not in kind:
            default = ""
        elif "| None" in kind or kind == "Any":
            default = "None"
        else:
            kind, default = f"{kind} | None", "None"
        out.append((safe, kind, default, props[name].get("description", "")))
    return out


def docstring(text: str) -> str:
    """An indented docstring of lines of at most 118 columns."""
    text = " ".join(text.split()).replace("\\", "\\\\").replace('"""', "'''")
    doc = textwrap.fill(text, 118, initial_indent=' ' * 4 + '"""', subsequent_indent=" " * 4,
                        break_long_words=False, break_on_hyphens=False)
    if len(doc.splitlines()[-1]) > 115 or doc.endswith('"'):
        return doc + '\n    """'
    return doc + '"""'


def generate(document: dict[str, Any]) -> str:
    schemas = document["components"]["schemas"]
    missing = [r for r in ROOTS if r not in schemas]
    if missing:
        sys.exit(f"the document has no schema {', '.join(missing)}; change ROOTS in {__file__}")
    waiting, made = list(ROOTS), dict[str, str]()
    while waiting:
        name = waiting.pop()
        if name in made:
            continue
        used: set[str] = set()
        schema = schemas[name]
        lines = ["@dataclass(kw_only=True, slots=True)", f"class {name}:", docstring(schema.get("description", name)), ""]
        listed = fields(schema, schemas, used)
        for safe, kind, default, about in listed:
            line = f"    {safe}: {kind}" + (f" = {default}" if default else "")
            if len(line) > 118 and "Literal[" in line:
                start, rest = line.split("Literal[", 1)
                values, end = rest.rsplit("]", 1)
                inner = textwrap.fill(values, 112, initial_indent=" " * 8, subsequent_indent=" " * 8)
                line = f"{start}Literal[\n{inner}\n    ]{end}"
            lines.append(line)
            if about:
                lines.append(docstring(about))
        if not listed:
            lines.append("    pass")
        made[name] = "\n".join(lines)
        waiting += sorted(used)
    names = sorted(made)
    exported = textwrap.fill(", ".join(json.dumps(n) for n in names), 116, initial_indent="    ",
                             subsequent_indent="    ")
    return HEAD + f"__all__ = [\n{exported},\n]\n\n\n" + "\n\n\n".join(made[n] for n in names) + "\n"


def outline(source: str) -> dict[str, dict[str, str]]:
    """The fields of each class of a module with their types."""
    out: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            out[node.name] = {
                n.target.id: ast.unparse(n.annotation) for n in node.body
                if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
            }
    return out


def differences(written: str, wanted: str) -> list[str]:
    """Where the written types say something that the document does not."""
    have, want, out = outline(written), outline(wanted), list[str]()
    for name, listed in have.items():
        for one, kind in listed.items():
            now = want.get(name, {}).get(one)
            if now != kind:
                out.append(f"{name}.{one} is {kind}; the document says {now or 'nothing of it'}")
    return out


def main() -> None:
    check = "--check" in sys.argv
    document = json.loads(pathlib.Path(sys.argv[-1]).read_text())
    text = generate(document)
    if not check:
        TARGET.write_text(text)
    elif found := differences(TARGET.read_text(), text):
        sys.exit("\n".join([*found, f"run `python {sys.argv[0]} openapi.json` with the daemon's document"]))


if __name__ == "__main__":
    main()

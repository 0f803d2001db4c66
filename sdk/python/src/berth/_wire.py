"""Turns JSON of the API into the dataclasses of `berth.types`, and back."""

from __future__ import annotations

import base64
import dataclasses
import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, TypeVar

T = TypeVar("T")

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)")


def parse_time(text: str) -> datetime:
    """Parses RFC 3339 with up to nanoseconds, of which six digits are kept; Python 3.10 itself knows no Z."""
    m = _TIME.fullmatch(text)
    if m is None:
        raise ValueError(f"{text!r} is not a time of RFC 3339")
    fraction = (m[2] or "0")[:6].ljust(6, "0")
    return datetime.fromisoformat(f"{m[1]}.{fraction}{'+00:00' if m[3] == 'Z' else m[3]}")


def format_time(t: datetime) -> str:
    """Formats a time for the API. A time without a zone is local time, as everywhere in Python."""
    return t.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")


def decode(kind: type[T], value: Any) -> T:
    """Makes a value of this type from JSON. Fields that the type does not have are ignored: a newer daemon has more."""
    return typing.cast(T, _decoder(kind)(value))


def decode_list(kind: type[T], values: Any) -> list[T]:
    """Works like decode, for a list; null is an empty one."""
    one = _decoder(kind)
    listed: list[Any] = values or []
    return [typing.cast(T, one(v)) for v in listed]


def _same(value: Any) -> Any:
    return value


_decoders: dict[Any, Callable[[Any], Any]] = {}


def _decoder(kind: Any) -> Callable[[Any], Any]:
    """Returns the function that makes values of a type. It is made once for each type."""
    known = _decoders.get(kind)
    if known is None:
        known = _decoders[kind] = _make_decoder(kind)
    return known


def _make_decoder(kind: Any) -> Callable[[Any], Any]:
    if kind is datetime:
        return parse_time
    if kind is bytes:
        return base64.b64decode
    if dataclasses.is_dataclass(kind):
        return _object(typing.cast(Any, kind))
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        one = _decoder(args[0])

        def listed(value: Any) -> list[Any]:
            values: list[Any] = value or []
            return [one(v) for v in values]

        return listed
    if origin is dict:
        each = _decoder(args[1])

        def mapped(value: Any) -> dict[str, Any]:
            values: dict[str, Any] = value or {}
            return {k: each(v) for k, v in values.items()}

        return mapped
    if origin in (typing.Union, types.UnionType):
        known = [a for a in args if a is not type(None)]
        if len(known) == 1:
            some = _decoder(known[0])
            return lambda value: None if value is None else some(value)
    return _same


def _object(kind: Any) -> Callable[[Any], Any]:
    hints = typing.get_type_hints(kind)
    # A list: types may be recursive, so the decoders are made when they are first needed.
    names = [f.name for f in dataclasses.fields(kind)]
    made: dict[str, Callable[[Any], Any]] = {}

    def make(value: Any) -> Any:
        given: dict[str, Any] = {}
        for name in names:
            if name.rstrip("_") in value:
                if name not in made:
                    made[name] = _decoder(hints[name])
                given[name] = made[name](value[name.rstrip("_")])
        return kind(**given)

    return make


def encode(value: Any) -> Any:
    """Makes JSON of a value of a request. Fields that are None are left out: the API takes no null."""
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name.rstrip("_"): getattr(value, f.name) for f in dataclasses.fields(value)}
        return {k: encode(v) for k, v in fields.items() if v is not None}
    if isinstance(value, Mapping):
        given = typing.cast("Mapping[str, Any]", value)
        return {k: encode(v) for k, v in given.items() if v is not None}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [encode(v) for v in typing.cast("list[Any]", value)]
    return value


def body(**fields: Any) -> dict[str, Any]:
    """Returns the fields of a request that are given, as JSON."""
    return {k: encode(v) for k, v in fields.items() if v is not None}

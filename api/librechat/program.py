"""Runs a program whose functions are tools of the client: argv has the file, and the tools as JSON."""
# Variables of this file are the program's, except for what it removes at its end.
import ast
import asyncio
import json
import os
import sys

import tools as _tools


class ToolExecutionError(Exception):
    """A tool failed, or the client did not answer in time."""


def _function(name, order):
    async def run(*args, **given):
        if len(args) > len(order):
            raise TypeError("%s takes at most %d positional arguments" % (name, len(order)))
        given = {**dict(zip(order, args)), **given}
        try:
            text = await _tools[name]({k: v for k, v in given.items() if v is not None})
        except Exception as e:
            raise ToolExecutionError(str(e)) from None
        return json.loads(text)

    run.__name__ = run.__qualname__ = name
    return run


def _compiled(path, source):
    """_compiled is the program as code that may await at its top. One with a return there is a function's body."""
    tree = ast.parse(source, path)
    try:
        return compile(tree, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), None
    except SyntaxError as e:
        if "'return' outside function" not in str(e):
            raise
    whole = ast.parse("async def __user_main__(): pass", path)
    whole.body[0].body = tree.body
    return compile(whole, path, "exec"), "__user_main__"


def _run(path, specs):
    with open(path, encoding="utf-8") as f:
        source = f.read()
    space = {"__name__": "__main__", "__file__": path, "asyncio": asyncio, "json": json, "os": os, "sys": sys,
             "ToolExecutionError": ToolExecutionError}
    for name, order in json.loads(specs):
        space[name] = _function(name, order)
    sys.argv = [path]
    code, main = _compiled(path, source)
    waiting = eval(code, space)
    if main:
        waiting = space[main]()
    if asyncio.iscoroutine(waiting):
        asyncio.run(waiting)


_run(*sys.argv[1:])

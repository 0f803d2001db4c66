"""Serve local functions as tools to code that runs in a berth container.

    from berth_tools import serve

    def fetch(u: str) -> str:
        "Fetches a page."
        ...

    with serve(container_id, [fetch]):
        ...  # code in the container calls tools.fetch("https://example.com")

The container was created with code_tools that allow these names. Nothing else is reachable, and the daemon checks each call.
"""

from ._schema import Tool, tool
from ._serve import Server, serve

__all__ = ["Server", "Tool", "serve", "tool"]

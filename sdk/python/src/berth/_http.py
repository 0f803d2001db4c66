"""The HTTP library: httpx2, the maintained continuation of httpx, which serves Python 3.10 with the same names."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    import httpx2 as httpx
else:
    import httpx

__all__ = ["httpx"]

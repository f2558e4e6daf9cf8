"""Event loop of agents and executors: uvloop, or asyncio's own where uvloop has no wheel."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_on_uvloop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as `asyncio.run` does, on the faster loop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)

"""Parts of users' functions, which may be functions, methods, classes or objects that can be called."""

import inspect
from types import CodeType
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class _Named(Protocol):
    __name__: str


@runtime_checkable
class _HasCode(Protocol):
    __code__: CodeType


def name_of(function: object, default: str) -> str:
    """Return the name with which a function or class was defined; the default for an object without one."""
    return function.__name__ if isinstance(function, _Named) else default


def code_of(function: object) -> CodeType | None:
    """Return the code of a function or method written in Python; None for other callables."""
    return function.__code__ if isinstance(function, _HasCode) else None


def unwrapped(function: Any) -> Any:
    """Return the function that decorators made with `functools.wraps` call."""
    return inspect.unwrap(function)

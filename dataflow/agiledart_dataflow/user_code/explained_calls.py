"""Plain errors for calls with wrong arguments: the line, the wrong keyword or missing argument, and the likely intention."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from agiledart_dataflow.user_code.callsite import call_site

C = TypeVar("C", bound=type)


def explained(kind: C) -> C:
    """Wrap the public methods and `__init__` of a class: a call with wrong arguments raises `TopologyError`, not TypeError."""
    for name, member in list(vars(kind).items()):
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(kind, name, _explained(member, kind.__name__ if name == "__init__" else name))
    return kind


F = TypeVar("F", bound=Callable[..., Any])


def explained_function(function: F) -> F:
    """Wrap a function as `explained` wraps methods."""
    return _explained(function, function.__name__, first=0)


def _explained(method: F, verb: str, first: int = 1) -> F:
    @wraps(method)
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            return method(*arguments, **keywords)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # the method was never entered
                why = call_error(method, arguments, keywords, first) or str(error)
                raise call_site().error(f"{verb}() {why}") from None
            raise

    return call  # type: ignore[return-value]  # it takes what the method takes


def call_error(method: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any], first: int = 1) -> str:
    """Return the reason that a method cannot be called with these arguments; empty when it is unknown.

    `first`: number of its first parameters that the user does not write.
    """
    parameters = list(inspect.signature(method).parameters.values())[first:]
    names = [
        parameter.name
        for parameter in parameters
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    takes = f"It takes {', '.join(names)}."
    if unknown := [word for word in keywords if word not in names]:
        from difflib import get_close_matches

        close = get_close_matches(unknown[0], names, 1)
        return f"has no argument {unknown[0]!r}{f': did you mean {close[0]}?' if close else '.'} {takes}"
    by_place = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    given = len(arguments) - first
    if given > len(by_place):
        return f"takes {len(by_place)} arguments without a name, and here are {given}. {takes}"
    if twice := [name for name in by_place[:given] if name in keywords]:
        return f"is given {twice[0]!r} twice."
    has = {*by_place[:given], *keywords}
    needs = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    missing = [
        parameter.name
        for parameter in parameters
        if parameter.kind in needs and parameter.default is parameter.empty and parameter.name not in has
    ]
    return f"needs {' and '.join(missing)}. {takes}" if missing else ""

"""Inference of the row type that a user's function returns: from annotations, or a lambda's instructions. No user code is
called."""

import collections.abc
import types
from collections.abc import Callable
from types import MethodType
from typing import Any, Union, get_args, get_origin, get_type_hints

from agiledart_dataflow.data.lambda_types import UnknownTypeError, type_of_lambda
from agiledart_dataflow.user_code.callables import code_of, name_of

__all__ = [
    "UnknownTypeError",
    "element_type",
    "is_lambda",
    "optional_stripped",
    "return_annotation",
    "traced_type",
]

_MANY = (
    list,
    tuple,
    collections.abc.Iterable,
    collections.abc.Iterator,
    collections.abc.Generator,
    collections.abc.Sequence,
    collections.abc.Collection,
)


def is_lambda(function: Callable[..., Any]) -> bool:
    """Return whether a function has no name of its own."""
    return name_of(function, "<lambda>") == "<lambda>"


def return_annotation(function: Callable[..., Any]) -> Any:
    """Return the annotated return type of a function, method or callable object. Raises `UnknownTypeError`."""
    target: Any = function
    if code_of(function) is None and not isinstance(function, MethodType):
        if isinstance(function, type):
            return function  # calling a class returns an instance of it
        target = type(function).__call__
    try:
        hints = get_type_hints(target)
    except (NameError, TypeError) as error:
        raise UnknownTypeError(f"its annotations cannot be read ({error})") from None
    if "return" not in hints:
        raise UnknownTypeError("it has no return annotation")
    return hints["return"]


def element_type(annotation: Any) -> tuple[Any, bool]:
    """Return (X, True when there may be several) for the return type of a `flat_map`:

    X | None, Iterable[X], list[X], tuple[X, ...] …
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        left = [part for part in arguments if part is not type(None)]
        if len(left) == len(arguments):
            raise UnknownTypeError("it returns neither `X | None` nor an iterable of X")
        return (left[0] if len(left) == 1 else Union[tuple(left)]), False  # noqa: UP007  built at run time
    if origin in _MANY:
        if origin is tuple and (len(arguments) != 2 or arguments[1] is not ...):
            raise UnknownTypeError(
                "a tuple of fixed length is one row, not several; return a list of rows, or `row | None`"
            )
        return arguments[0], True
    raise UnknownTypeError("it returns neither `X | None` nor an iterable of X")


def optional_stripped(annotation: Any) -> Any:
    """Return X of `X | None`, other types as they are."""
    arguments = get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType) and type(None) in arguments:
        left = [part for part in arguments if part is not type(None)]
        return left[0] if len(left) == 1 else Union[tuple(left)]  # noqa: UP007  built at run time
    return annotation


def traced_type(function: Callable[[Any], Any], row_type: Any) -> Any:
    """Return the type that a function returns for rows of a type. Raises `UnknownTypeError`.

    An annotation wins; the instructions of a lambda are read (`lambda_types`). No code is called.
    """
    if not is_lambda(function) or not isinstance(function, types.FunctionType):
        return return_annotation(function)
    return type_of_lambda(function, row_type, return_annotation)

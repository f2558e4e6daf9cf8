"""Which rows a user's function returns:

From its annotations, or by calling a lambda on an object that knows only field types.
"""

import collections.abc
import types
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin, get_type_hints

from agiledart_dataflow.data.schema import SchemaError, fields_of, is_named_tuple

_MANY = (
    list,
    tuple,
    collections.abc.Iterable,
    collections.abc.Iterator,
    collections.abc.Generator,
    collections.abc.Sequence,
    collections.abc.Collection,
)


class CannotTellError(Exception):
    """The type does not follow from the function; the user has to write `returns=`."""


def is_lambda(function: Callable[..., Any]) -> bool:
    """True for a function without a name of its own."""
    return getattr(function, "__name__", "<lambda>") == "<lambda>"


def return_annotation(function: Callable[..., Any]) -> Any:
    """The annotated return type of a function, method or callable object. Raises `CannotTellError`."""
    target: Any = function
    if not hasattr(function, "__code__") and not hasattr(function, "__func__"):
        if isinstance(function, type):
            return function  # calling a class makes one of its instances
        target = type(function).__call__
    try:
        hints = get_type_hints(target)
    except (NameError, TypeError) as error:
        raise CannotTellError(f"its annotations cannot be read ({error})") from None
    if "return" not in hints:
        raise CannotTellError("it has no return annotation")
    return hints["return"]


def element_type(annotation: Any) -> tuple[Any, bool]:
    """(X, True when there may be several) of what a `flat_map` returns:

    X | None, Iterable[X], list[X], tuple[X, ...] …
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        left = [part for part in arguments if part is not type(None)]
        if len(left) == len(arguments):
            raise CannotTellError("it returns neither `X | None` nor an iterable of X")
        return (left[0] if len(left) == 1 else Union[tuple(left)]), False  # noqa: UP007  built at run time
    if origin in _MANY:
        if origin is tuple and (len(arguments) != 2 or arguments[1] is not ...):
            raise CannotTellError(
                "a tuple of fixed length is one row, not several; return a list of rows, or `row | None`"
            )
        return arguments[0], True
    raise CannotTellError("it returns neither `X | None` nor an iterable of X")


def optional_stripped(annotation: Any) -> Any:
    """X of `X | None`, other types as they are."""
    arguments = get_args(annotation)
    if get_origin(annotation) in (Union, types.UnionType) and type(None) in arguments:
        left = [part for part in arguments if part is not type(None)]
        return left[0] if len(left) == 1 else Union[tuple(left)]  # noqa: UP007  built at run time
    return annotation


class _Probe:
    """Stands for a value of a type:

    Gives its fields as probes, refuses everything whose outcome would need the value.
    """

    __slots__ = ("_kind",)

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def __getattr__(self, name: str) -> "_Probe":
        for field in fields_of(object.__getattribute__(self, "_kind")):
            if field.name == name:
                return _Probe(field.type)
        raise CannotTellError(f"it uses .{name}")

    def __getitem__(self, index: Any) -> "_Probe":
        kind = self._kind
        fields = fields_of(kind)
        if fields and is_named_tuple(get_origin(kind) or kind) and isinstance(index, int):
            return _Probe(fields[index].type)
        arguments = get_args(kind)
        if get_origin(kind) is tuple and isinstance(index, int) and ... not in arguments:
            return _Probe(arguments[index])
        raise CannotTellError("it looks something up")

    def __str__(self) -> str:
        return ""

    def __format__(self, how: str) -> str:
        return ""

    def _refuse(self, *_: object) -> Any:
        raise CannotTellError("it computes with the value")

    __bool__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __ne__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __mod__ = __neg__ = __abs__ = __round__ = __int__ = __float__ = __index__ = __len__ = _refuse
    __iter__ = __contains__ = __call__ = _refuse
    __hash__ = object.__hash__


def traced_type(function: Callable[[Any], Any], row_type: Any) -> Any:
    """The type that a function returns for rows of a type. Raises `CannotTellError`.

    An annotation wins; a lambda is called once with a probe, which answers for field access, tuples of fields and texts
    made of them.
    """
    if not is_lambda(function):
        return return_annotation(function)
    try:
        result = function(_Probe(row_type))
    except CannotTellError:
        raise
    except SchemaError as error:
        raise CannotTellError(str(error)) from None
    except Exception as error:  # noqa: BLE001  a user's lambda may do anything with a probe; then it has to be told
        raise CannotTellError(f"it cannot be tried out ({type(error).__name__}: {error})") from None
    return _type_of(result)


def _type_of(result: Any) -> Any:
    if isinstance(result, _Probe):
        return object.__getattribute__(result, "_kind")
    if is_named_tuple(type(result)):
        return type(result)
    if isinstance(result, tuple):
        return tuple[tuple(_type_of(part) for part in result)]  # type: ignore[misc]  # built at run time
    if isinstance(result, str | int | float | bool | bytes):
        return type(result)
    raise CannotTellError(f"it returns a {type(result).__name__}")

"""Row types: their fields, and a text of their structure that is equal on every node.

Rows are NamedTuples, dataclasses, or plain scalars and tuples. Types are needed because rows cross processes, where
MessagePack alone would bring back lists.
"""

import dataclasses
import types
import typing
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    NewType,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

import msgspec

ReadTime = NewType("ReadTime", int)
"""Wall time (ns since 1970) at which a record was read. No column of the data: the source fills it in. A sink writes it
as the milliseconds since then, and counts it as a latency."""

Topic = NewType("Topic", str)
"""The topic of the message that a row came in: sources with topics fill it."""

Retained = NewType("Retained", bool)
"""Flag of a row whose message a broker had retained: sources with topics fill it."""

_SCALARS = (str, int, float, bool, bytes, datetime, date, time, timedelta, Decimal, type(None))


class SchemaError(Exception):
    """Error: a type cannot be that of a row.

    The text names the type and the reason. The builder turns it into a `TopologyError` with file and line.
    """


@dataclass(frozen=True)
class Field:
    """A named, typed field of a row."""

    name: str
    type: Any

    @property
    def is_read_time(self) -> bool:
        """True for a `ReadTime`."""
        return self.type is ReadTime


@runtime_checkable
class _NamedTupleClass(Protocol):
    _fields: tuple[str, ...]


def type_parameters(kind: Any) -> tuple[Any, ...]:
    """Return the type variables of a generic class or of its form with arguments; () for other types."""
    parameters: tuple[Any, ...] = getattr(kind, "__parameters__", ())
    return parameters


def _metadata(hint: Any) -> tuple[Any, ...]:
    """Return what `Annotated` adds to a type."""
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def is_named_tuple(kind: Any) -> bool:
    """Return whether this is a NamedTuple class."""
    return isinstance(kind, type) and issubclass(kind, tuple) and isinstance(kind, _NamedTupleClass)


def fields_of(row_type: Any) -> tuple[Field, ...]:
    """Return the fields of a NamedTuple or dataclass, type variables filled in; () for other types."""
    origin = get_origin(row_type) or row_type
    if is_named_tuple(origin):
        names = list(origin._fields)
    elif dataclasses.is_dataclass(origin) and isinstance(origin, type):
        names = [field.name for field in dataclasses.fields(origin)]
    else:
        return ()
    try:
        hints = get_type_hints(origin)
    except NameError as error:
        raise SchemaError(f"the annotations of {origin.__name__} cannot be read: {error}") from None
    if any(name not in hints for name in names):
        raise SchemaError(f"{origin.__name__} has fields without a type; make it a typing.NamedTuple or a dataclass")
    filled = dict(zip(type_parameters(origin), get_args(row_type), strict=False))
    return tuple(Field(name, substituted(hints[name], filled)) for name in names)


def is_dict(row_type: Any) -> bool:
    """Return whether rows are plain dicts: any JSON object."""
    return row_type is dict or get_origin(row_type) is dict


@dataclass(frozen=True)
class Alias:
    """Other names under which a field may come: `celsius: Annotated[float, Alias("temperature", "temp_c")]`."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


@dataclass(frozen=True)
class Format:
    """Form of a time that comes as a text, as `datetime.strptime` has it: `at: Annotated[datetime, Format("%d.%m.%Y %H:%M")]`."""

    pattern: str


class Loose:
    """Mark of a field that also takes a number as a text (`"20.5"`), and a whole float for an int: `Annotated[int, Loose]`."""


def is_loose(markers: tuple[Any, ...]) -> bool:
    """Return whether the marks of a field hold `Loose`."""
    return any(marker is Loose or isinstance(marker, Loose) for marker in markers)


@lru_cache(maxsize=256)
def markers_of(row_type: Any) -> dict[str, tuple[Any, ...]]:
    """Return field → the marks of its `Annotated[…]`, for fields that have any."""
    origin = get_origin(row_type) or row_type
    try:
        hints = get_type_hints(origin, include_extras=True) if fields_of(row_type) else {}
    except NameError:
        return {}
    markers = {
        name: tuple(marker for part in (hint, *get_args(hint)) for marker in _metadata(part))
        for name, hint in hints.items()
    }
    return {name: given for name, given in markers.items() if given}


def aliases_of(row_type: Any) -> dict[str, tuple[str, ...]]:
    """Return field → other names under which it may come, for fields that have any."""
    aliases = {
        name: tuple(alias for marker in markers if isinstance(marker, Alias) for alias in marker.names)
        for name, markers in markers_of(row_type).items()
    }
    return {name: names for name, names in aliases.items() if names}


def substituted(kind: Any, filled: dict[Any, Any]) -> Any:
    """Return a type with its type variables replaced."""
    if isinstance(kind, TypeVar):
        return filled.get(kind, kind)
    parameters = type_parameters(kind)
    if not filled or not parameters:
        return kind
    return kind[tuple(filled.get(parameter, parameter) for parameter in parameters)]


def type_text(kind: Any) -> str:
    """Return the structure of a type as text, without the names of modules.

    Raises `SchemaError` for a type that cannot travel.
    """
    return _text(kind, ())


def _text(kind: Any, within: tuple[Any, ...]) -> str:
    if kind is ReadTime:
        return "ReadTime"
    if isinstance(kind, NewType):
        return _text(kind.__supertype__, within)
    if kind is Any or kind is object or isinstance(kind, TypeVar):
        raise SchemaError(f"the type {kind} is unspecific; annotate the type of the rows")
    if kind in _SCALARS:
        return "None" if kind in (None, type(None)) else str(kind.__name__)
    origin, arguments = get_origin(kind), get_args(kind)
    named = origin or kind
    if is_named_tuple(named) or (dataclasses.is_dataclass(named) and isinstance(named, type)):
        # A recursive type would have an endless text.
        if kind in within:
            raise SchemaError(f"{named.__name__} contains itself")
        parts = [f"{field.name}: {_text(field.type, (*within, kind))}" for field in fields_of(kind)]
        return f"{named.__name__}({', '.join(parts)})"
    # Sorted, since the order of a union's members does not matter and the text must be equal on every node.
    if origin in (Union, types.UnionType):
        return " | ".join(sorted(_text(part, within) for part in arguments))
    if origin is tuple:
        return f"tuple[{', '.join('...' if part is ... else _text(part, within) for part in arguments)}]"
    if origin is dict and arguments[1] is Any:
        return f"dict[{_text(arguments[0], within)}, Any]"
    if origin in (list, dict, set, frozenset):
        return f"{origin.__name__}[{', '.join(_text(part, within) for part in arguments)}]"
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"{kind.__name__}({', '.join(f'{member.name}={member.value!r}' for member in kind)})"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        parts = [f"{field.name}: {_text(field.type, (*within, kind))}" for field in msgspec.structs.fields(kind)]
        return f"{kind.__name__}({', '.join(parts)})"
    raise SchemaError(
        f"{kind!r} cannot be (part of) a row: use NamedTuples, dataclasses, numbers, texts, datetimes, tuples, lists"
    )


def check_travels(kind: Any) -> str:
    """Return `type_text` of a type whose rows MessagePack can restore. Raises `SchemaError`."""
    text = type_text(kind)
    try:
        msgspec.msgpack.Decoder(list[kind])
    except TypeError as error:
        raise SchemaError(f"rows of {text} cannot travel between processes: {error}") from None
    return text


def check_key(kind: Any) -> None:
    """Raise `SchemaError` for a type whose values cannot be keys."""
    check_travels(kind)
    origin = get_origin(kind) or kind
    if origin in (list, dict, set):
        raise SchemaError(f"a {origin.__name__} can change and cannot be a key; use a tuple")
    if origin in (frozenset, time) or (isinstance(origin, type) and issubclass(origin, msgspec.Struct)):
        raise SchemaError(
            f"a {origin.__name__} cannot be a key; use numbers, texts, tuples of them or frozen dataclasses"
        )
    if dataclasses.is_dataclass(origin) and isinstance(origin, type) and origin.__hash__ is None:
        raise SchemaError(f"{origin.__name__} can change and cannot be a key; make it @dataclass(frozen=True)")
    parts = [field.type for field in fields_of(kind)] or [part for part in get_args(kind) if part is not ...]
    if origin is not typing.Literal:
        for part in parts:
            check_key(part)


def read_time_index(row_type: Any) -> int | None:
    """Return the index of a row's `ReadTime` field, or None."""
    for index, field in enumerate(fields_of(row_type)):
        if field.is_read_time:
            return index
    return None


def generic(origin: Any, *arguments: Any) -> Any:
    """Return `origin[arguments]` for types that are known only at run time."""
    return origin[arguments]

"""`RowShape`: rows whose fields come by name. A decoder in C fills a stand-in for the row's type; from that the row is made.

msgspec reads named tuples from arrays only, knows one name a field and no times as numbers. The stand-in is a `Struct` with the
fields under all of their names; text generated once for each type makes the row of it.
"""

import dataclasses
import types
from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import Any, Final, NewType, Union, get_args, get_origin

import msgspec

from agiledart_connectors.codecs.loose_values import formatted_time, loose_value
from agiledart_connectors.codecs.malformed_examples import FIELD, TIME, TYPE, MalformedError, bounded_repr
from agiledart_connectors.codecs.remembered_times import RememberedTimes
from agiledart_dataflow.data.inference import optional_stripped
from agiledart_dataflow.data.schema import (
    Format,
    Retained,
    Topic,
    aliases_of,
    fields_of,
    generic,
    is_loose,
    is_named_tuple,
    markers_of,
)
from agiledart_dataflow.data.utc_times import utc_time
from agiledart_kernel.errors import ConfigurationError

Make = Callable[[Any, int], Any]
"""(what came, wall time) → the value."""

_CONSTANTS: Final = (type(None), bool, int, float, str, bytes)
"""Types of defaults that a struct may give by itself."""


def naive_time(value: Any, zone: tzinfo | None = None) -> datetime:
    """Return a time without zone, like `utc_time`. Raises `MalformedError`."""
    try:
        return utc_time(value, zone)
    except ValueError:
        form = " like 2013-01-31T08:00:00Z" if type(value) is str else ""
        reason = TIME if type(value) in (str, int, float) else TYPE
        raise MalformedError(reason, f"{bounded_repr(value)} is no time{form}") from None


class RowShape:
    """Rule for decoding values of a type.

    Args:
        kind: the type.
        zone: of times that state none; None: UTC.

    Attributes:
        comes: type that msgspec is to decode.
        make: decoded value → value of the type; None: they are the same.

    Raises:
        ConfigurationError: such a type cannot be read by name.
    """

    __slots__ = ("comes", "make")

    def __init__(self, kind: Any, zone: tzinfo | None = None) -> None:
        self.comes, self.make = _shape(kind, zone)


def _base_of(kind: Any) -> Any:
    """Return the type that a NewType stands for; other types as they are."""
    return kind.__supertype__ if isinstance(kind, NewType) else kind


def _shape(kind: Any, zone: tzinfo | None) -> tuple[Any, Make | None]:
    kind = _base_of(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is datetime:
        return Any, lambda value, _: naive_time(
            value, zone
        )  # msgspec would round texts, and not name a wrong one's value
    if fields_of(kind):
        return _record(kind, zone)
    if origin in (Union, types.UnionType):
        return _union(kind, arguments, zone)
    if origin in (list, set, frozenset) or (origin is tuple and len(arguments) == 2 and arguments[1] is ...):
        comes, make = _shape(arguments[0], zone)
        if make is None:
            return kind, None
        made, build = make, origin
        return generic(list, comes), lambda values, wall_ns: build([made(value, wall_ns) for value in values])
    if origin is dict:
        comes, make = _shape(arguments[1], zone)
        if make is None:
            return kind, None
        convert = make
        return generic(dict, arguments[0], comes), lambda values, wall_ns: {
            name: convert(value, wall_ns) for name, value in values.items()
        }
    if origin is tuple:
        parts = [_shape(argument, zone) for argument in arguments]
        if all(make is None for _, make in parts):
            return kind, None
        makes = [make for _, make in parts]
        return generic(tuple, *(comes for comes, _ in parts)), lambda values, wall_ns: tuple(
            value if make is None else make(value, wall_ns) for value, make in zip(values, makes, strict=True)
        )
    return kind, None


def _marked(kind: Any, markers: tuple[Any, ...], zone: tzinfo | None) -> tuple[Any, Make | None]:
    """The shape of a field whose annotation says how its values come."""
    form = next((marker for marker in markers if isinstance(marker, Format)), None)
    inner = optional_stripped(kind)
    if form is not None and inner is datetime:
        time_of = formatted_time(form, zone)

        def formatted(value: Any, _: int) -> Any:
            try:
                return None if value is None and inner is not kind else time_of(value)
            except MalformedError:
                raise
            except ValueError:
                raise MalformedError(TIME, f"{bounded_repr(value)} is no time of the format {form.pattern}") from None

        return Any, formatted
    if is_loose(markers):
        convert = loose_value(_base_of(inner))
        return Any, lambda value, _: None if value is None and inner is not kind else convert(value)
    return _shape(kind, zone)


def _union(kind: Any, arguments: tuple[Any, ...], zone: tzinfo | None) -> tuple[Any, Make | None]:
    left = [argument for argument in arguments if argument is not type(None)]
    shapes = [_shape(argument, zone) for argument in left]
    if all(make is None for _, make in shapes):
        return kind, None
    if len(left) > 1:
        raise ConfigurationError(f"{kind}: nothing tells which of these a value is; write one type, or `type | None`")
    comes, make = shapes[0]
    assert make is not None
    present = make
    return generic(Union, comes, type(None)), lambda value, wall_ns: None if value is None else present(value, wall_ns)


def _record(kind: Any, zone: tzinfo | None) -> tuple[Any, Make]:
    """A struct with the fields of a named tuple or dataclass, and the text that makes one of it."""
    origin = get_origin(kind) or kind
    aliases, defaults, marks = aliases_of(kind), _defaults(origin), markers_of(kind)
    struct: list[Any] = []
    rename: dict[str, str] = {}
    scope: dict[str, Any] = {"new": tuple.__new__, "kind": origin, "UNSET": msgspec.UNSET, "first": _first}
    values: list[str] = []
    for number, field in enumerate(fields_of(kind)):
        if field.is_read_time:
            values.append("wall_ns")
            continue
        if field.type in (Topic, Retained):
            values.append("''" if field.type is Topic else "False")  # the reader that knows the value fills it in
            continue
        comes, make = _marked(field.type, marks.get(field.name, ()), zone)
        names = (field.name, *aliases.get(field.name, ()))
        default = defaults.get(field.name, (None,) if type(None) in get_args(field.type) else ())
        keys = [f"f{number}_{i}" for i in range(len(names))]
        rename |= dict(zip(keys, names, strict=True))
        scope |= {
            f"make{number}": make and _naming(field.name, make),
            f"default{number}": default,
            f"names{number}": names,
        }
        if len(keys) == 1 and (not default or type(default[0]) in _CONSTANTS):
            struct.append((keys[0], comes, *default))
            value = f"s.{keys[0]}"
        else:
            kinds = generic(Union, comes, msgspec.UnsetType)
            struct += [(key, kinds, msgspec.UNSET) for key in keys]
            candidates = "".join(f"s.{key}, " for key in keys)
            value = f"first(({candidates}), default{number}, names{number})"
        text = value if make is None else f"make{number}({value}, wall_ns)"
        if field.type is datetime and value == f"s.{keys[0]}" and field.name not in marks:
            scope[f"times{number}"] = RememberedTimes(_time_of_field(field.name, zone))
            text = f"(times{number}[{value}] if type({value}) is str else {text})"
        values.append(text)
    comes = msgspec.defstruct("Row", struct, rename=rename, gc=False, kw_only=True)
    made = ", ".join(values)
    text = f"new(kind, ({made},))" if is_named_tuple(origin) else f"kind({made})"
    return comes, eval(f"lambda s, wall_ns: {text}", scope)


def _time_of_field(name: str, zone: tzinfo | None) -> Callable[[str], datetime]:
    """Return a function text → time, whose errors name the field."""

    def time(text: str) -> datetime:
        try:
            return utc_time(text, zone)
        except ValueError:
            raise MalformedError(TIME, f"{name}: {bounded_repr(text)} is no time like 2013-01-31T08:00:00Z") from None

    return time


def _naming(name: str, make: Make) -> Make:
    """Return the same function, with the field's name added to its errors."""

    def named(value: Any, wall_ns: int) -> Any:
        try:
            return make(value, wall_ns)
        except MalformedError as error:
            join = "." if error.reason == FIELD else ": "
            raise MalformedError(error.reason, f"{name}{join}{error.text}") from None

    return named


def _first(values: tuple[Any, ...], default: tuple[Any, ...], names: tuple[str, ...]) -> Any:
    """The value under the first name that came; the default when none did."""
    for value in values:
        if value is not msgspec.UNSET:
            return value
    if not default:
        raise MalformedError(FIELD, f"{names[0]} is missing (also as {', '.join(names[1:])})")
    return default[0]() if callable(default[0]) else default[0]


def _defaults(origin: Any) -> dict[str, tuple[Any, ...]]:
    """Field → its default, as a tuple of one; a callable makes one."""
    if is_named_tuple(origin):
        given = origin._field_defaults
        return {name: ((lambda value=value: value),) if callable(value) else (value,) for name, value in given.items()}
    defaults: dict[str, tuple[Any, ...]] = {}
    for field in dataclasses.fields(origin):
        if field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = (field.default_factory,)
        elif field.default is not dataclasses.MISSING:
            defaults[field.name] = (field.default,)
    return defaults

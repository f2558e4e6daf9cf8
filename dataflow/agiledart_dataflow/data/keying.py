"""`Keying`: how rows find the instance that owns their key. And the guard against NaN in keys."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import wraps
from types import UnionType
from typing import Any, NewType, Union, get_args, get_origin

from agiledart_dataflow.data.inline_text import InlineText
from agiledart_dataflow.data.partitioning import canonical, not_nan
from agiledart_dataflow.data.schema import fields_of, is_named_tuple


@dataclass(frozen=True)
class Keying:
    """Rule by which rows reach a keyed step: row → key, and the key's type."""

    function: Callable[[Any], Any]
    key_type: Any


def without_nan(key_of: Callable[[Any], Any], key_type: Any) -> Callable[[Any], Any]:
    """Return the key function, made to raise TypeError for a key that contains NaN, as routing by that key does.

    An operator looks keys up in a dictionary, where NaN would be a new key each time, and one that no snapshot can place. Key types
    that contain no float cost nothing; a `KeyExpression` checks by itself.
    """
    if isinstance(key_of, InlineText) or not _may_hold_nan(key_type):
        return key_of
    checked = _check_of(key_type)

    @wraps(key_of)
    def function(row: Any) -> Any:
        return checked(key_of(row))

    return function


def _check_of(kind: Any) -> Callable[[Any], Any]:
    if _plain(kind) is float:
        return not_nan
    parts = [field.type for field in fields_of(kind)] if is_named_tuple(get_origin(kind) or kind) else []
    if get_origin(kind) is tuple and ... not in get_args(kind):
        parts = list(get_args(kind))
    risky = [number for number, part in enumerate(parts) if _may_hold_nan(part)]
    if not all(_plain(parts[number]) is float for number in risky) or not risky:
        return _checked

    def without_nan_in_parts(key: Any) -> Any:
        for number in risky:
            not_nan(key[number])
        return key

    return without_nan_in_parts


def _checked(key: Any) -> Any:
    canonical(key)  # about ten times as slow; only for keys within keys
    return key


def _plain(kind: Any) -> Any:
    while isinstance(kind, NewType):
        kind = kind.__supertype__
    given = [part for part in get_args(kind) if part is not type(None)]
    return _plain(given[0]) if get_origin(kind) in (Union, UnionType) and len(given) == 1 else kind


def _may_hold_nan(kind: Any) -> bool:
    kind = _plain(kind)
    return (
        kind in (float, Decimal)
        or any(_may_hold_nan(field.type) for field in fields_of(kind))
        or any(_may_hold_nan(part) for part in get_args(kind))
    )

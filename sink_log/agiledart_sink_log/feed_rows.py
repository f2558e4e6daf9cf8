"""Rows of feeds as agents and sources read them: a schema as data, and a decoder of its rows.

The form is that of `row_form`. A schema comes from a writer outside, so each part of it is checked.
"""

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec

from agiledart_kernel.errors import OperationFailed

MAX_FIELDS: Final = 512
MAX_DEPTH: Final = 8
"""Levels of nested types."""

_SCALARS: Final[dict[str, Any]] = {
    "string": str,
    "int": int,
    "float": float,
    "bool": bool,
    "bytes": bytes,
    "datetime": datetime,
    "date": date,
    "time": time,
    "timedelta": timedelta,
    "decimal": Decimal,
    "read_time": int,
    "json": str,
}


class _Field(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Field of a schema, or a part of a nested type."""

    type: Any
    name: str = ""
    nullable: bool = False


_FIELDS: Final = msgspec.json.Decoder(list[_Field])


def parse_fields(schema: bytes) -> list[dict[str, object]]:
    """Return the fields of a writer's schema. Raises `OperationFailed` when it describes no rows."""
    try:
        fields = _FIELDS.decode(schema)
        names = [field.name for field in fields]
        if not 0 < len(fields) <= MAX_FIELDS or not all(names) or len(set(names)) < len(names):
            raise ValueError(f"it needs 1 to {MAX_FIELDS} fields with different names")
        described = [{"name": field.name, "type": field.type, "nullable": field.nullable} for field in fields]
        row_decoder(described)
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise OperationFailed(f"The schema of the rows is not valid: {error}") from None
    return described


def schema_text(fields: Sequence[dict[str, object]]) -> str:
    """Return a schema as text, equal for equal fields."""
    return msgspec.json.encode(fields).decode()


def schema_words(fields: Sequence[dict[str, object]]) -> str:
    """Return a schema for people: `route: string, seconds: float`."""
    return ", ".join(f"{field['name']}: {type_words(field['type'])}" for field in fields)


def type_words(kind: object) -> str:
    """Return a type of a field for people."""
    return kind if isinstance(kind, str) else "/".join(kind) if isinstance(kind, dict) else "?"


def row_decoder(fields: Sequence[dict[str, object]]) -> "msgspec.msgpack.Decoder[list[tuple[Any, ...]]]":
    """Return a decoder of stored batches: lists of tuples, one value for each field. Raises `ValueError` for an unknown type."""
    several: Any = list
    row: Any = tuple
    kinds = tuple(_decoded(field["type"], bool(field["nullable"]), 0) for field in fields)
    return msgspec.msgpack.Decoder(several[row[kinds]])


def _decoded(kind: object, nullable: bool, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValueError(f"a type has more than {MAX_DEPTH} levels")
    python_type = _nested(kind, depth) if isinstance(kind, dict) else _SCALARS.get(str(kind))
    if python_type is None:
        raise ValueError(f"{str(kind)[:100]} is no type of a field")
    return python_type | None if nullable else python_type


def _nested(kind: dict[str, Any], depth: int) -> Any:
    (name, parts), *rest = kind.items() or (("", None),)
    if rest:
        return None
    makers: dict[str, Any] = {"struct": tuple, "list": list, "map": dict}
    described = [parts] if name == "list" else parts
    if (
        name not in makers
        or not isinstance(described, list)
        or not described
        or (name == "map" and len(described) != 2)
    ):
        return None
    return makers[name][tuple(_decoded(part["type"], bool(part["nullable"]), depth + 1) for part in described)]

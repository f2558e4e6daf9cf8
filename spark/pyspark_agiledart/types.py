"""Types of a log's fields, read from the schema of its agent (docs/reference/sink-log.md)."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from agiledart_kernel.errors import OperationFailed

SCALARS: Final = (
    *("string", "int", "float", "bool", "bytes", "datetime", "date", "time", "timedelta", "decimal", "read_time"),
    "json",
)
MAX_DEPTH: Final = 32


@dataclass(frozen=True)
class FieldType:
    """Type of a field.

    Attributes:
        name: one of `SCALARS`, or `struct`, `list`, `map`.
        parts: (name, type) of a struct's fields; of a list's element or a map's key and value the names are "".
    """

    name: str
    nullable: bool = False
    parts: tuple[tuple[str, "FieldType"], ...] = ()


Fields = tuple[tuple[str, FieldType], ...]
"""(name, type) of each field of a log's rows."""


def parse_schema(document: bytes) -> Fields:
    """Return the fields of a schema. Raises `OperationFailed` for an unknown schema: of a newer agent, or damaged."""
    try:
        document_fields = msgspec.json.decode(document)
        return tuple(_field(field, 0) for field in document_fields["fields"])
    except (msgspec.MsgspecError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise OperationFailed(
            f"The schema of the log is not understood ({error}). Is the agent newer than this package?"
        ) from None


def _field(field: Any, depth: int) -> tuple[str, FieldType]:
    return str(field.get("name", "")), _type(field["type"], bool(field.get("nullable", False)), depth)


def _type(kind: Any, nullable: bool, depth: int) -> FieldType:
    if depth > MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    if isinstance(kind, str) and kind in SCALARS:
        return FieldType(kind, nullable)
    if isinstance(kind, dict) and len(kind) == 1:
        [(name, inner)] = kind.items()
        if name == "struct" and inner:
            return FieldType("struct", nullable, tuple(_field(field, depth + 1) for field in inner))
        if name == "list":
            return FieldType("list", nullable, (_field(inner, depth + 1),))
        if name == "map" and len(inner) == 2:
            return FieldType("map", nullable, tuple(_field(part, depth + 1) for part in inner))
    raise ValueError(f"no type {str(kind)[:80]}")

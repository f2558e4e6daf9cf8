"""Nodes of an expression, before and after its types are known."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from agiledart_dataflow.data.column_schema import ColumnKind
from agiledart_dataflow.user_code.callables import name_of


@dataclass(frozen=True)
class FieldNode:
    """The value of a field of the row."""

    name: str


@dataclass(frozen=True)
class Literal:
    """A value from the user's code."""

    value: Any


@dataclass(frozen=True)
class CallNode:
    """A function of values; `options` are plain values from the user's code."""

    name: str
    arguments: "tuple[Node, ...]"
    options: tuple[Any, ...] = ()


@dataclass(frozen=True)
class When:
    """The value of the first branch whose condition is True, else `otherwise`."""

    branches: "tuple[tuple[Node, Node], ...]"
    otherwise: "Node"


Node: TypeAlias = FieldNode | Literal | CallNode | When


@dataclass(frozen=True)
class ValueType:
    """The type of a value.

    Attributes:
        kind: of its column.
        optional: True when it may be None.
        type: the Python type, without None.
    """

    kind: ColumnKind
    optional: bool
    type: Any

    @property
    def annotation(self) -> Any:
        """The type as the annotation of a row's field."""
        return self.type | None if self.optional else self.type

    def __str__(self) -> str:
        name = name_of(self.type, str(self.type))
        return f"{name} or None" if self.optional else str(name)


@dataclass(frozen=True, eq=False)
class TypedField:
    """A field that the row has."""

    name: str
    type: ValueType


@dataclass(frozen=True, eq=False)
class TypedLiteral:
    """A value of a known type; None has the type of the value beside it."""

    value: Any
    type: ValueType


@dataclass(frozen=True, eq=False)
class TypedCall:
    """A function with arguments of types that it takes."""

    name: str
    arguments: "tuple[Typed, ...]"
    options: tuple[Any, ...]
    type: ValueType


@dataclass(frozen=True, eq=False)
class TypedWhen:
    """Branches of one type."""

    branches: "tuple[tuple[Typed, Typed], ...]"
    otherwise: "Typed"
    type: ValueType


Typed: TypeAlias = TypedField | TypedLiteral | TypedCall | TypedWhen

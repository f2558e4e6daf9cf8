"""Types of columns in SQL and YAML, and typed expressions as Python code."""

import ast
from dataclasses import dataclass
from typing import Final, Literal

TypeName = Literal["int", "float", "text", "bool", "time", "span"]

PYTHON_TYPES: Final[dict[TypeName, str]] = {
    "int": "int",
    "float": "float",
    "text": "str",
    "bool": "bool",
    "time": "datetime",
    "span": "timedelta",
}

NUMBERS: Final = ("int", "float")


@dataclass(frozen=True)
class ColumnType:
    """Type of a column.

    Attributes:
        name: of the type.
        nullable: whether values may be NULL.
    """

    name: TypeName
    nullable: bool = True

    def __str__(self) -> str:
        return self.name.upper()

    def annotation(self) -> ast.expr:
        """Return the annotation of a field of this type."""
        name = ast.Name(PYTHON_TYPES[self.name], ast.Load())
        return ast.BinOp(name, ast.BitOr(), ast.Constant(None)) if self.nullable else name


@dataclass(frozen=True)
class TypedCode:
    """Python code of an expression of columns; `type` is None for NULL itself."""

    code: ast.expr
    type: ColumnType | None

    @property
    def nullable(self) -> bool:
        """True when the value may be NULL."""
        return self.type is None or self.type.nullable

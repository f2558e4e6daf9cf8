"""Functions of rows that also have another form: text for a generated loop, or a computation over columns."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class InlineText(Protocol):
    """Function that can stand in a generated loop as text."""

    def python(self, row: str, names: Any) -> str:
        """Return a Python expression over the variable `row`, in one line; `names` binds objects to names."""
        ...


@runtime_checkable
class ColumnFunction(Protocol):
    """Function that can take all rows of a batch at once."""

    def columns(self, columns: Any) -> Any:
        """Return its results for a batch in columns."""
        ...

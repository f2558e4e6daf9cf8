"""`.running("totals", trips=count(), fares=col("fare").sum())`: the parts of a step with named running values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agiledart_dataflow.aggregation.aggregators import Aggregator
from agiledart_dataflow.aggregation.named_aggregates import NamedResults, aggregate_part
from agiledart_dataflow.aggregation.pane_values import KeptValues, kept_values
from agiledart_dataflow.aggregation.running_loop import state_names
from agiledart_dataflow.data.column_schema import schema_of
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.expressions.nodes import FieldNode
from agiledart_dataflow.expressions.row_expression import RowExpression, made_row_type
from agiledart_dataflow.user_code.callsite import CallSite


@dataclass(frozen=True)
class NamedRunning:
    """Parts of a step with named running values.

    Attributes:
        values_kept: values and results.
        fields: fields of the rows that enter, as expressions.
        enters: type of the rows that enter.
        row_type: type of the rows that leave: the same fields, then the results.
    """

    values_kept: KeptValues
    fields: tuple[RowExpression, ...]
    enters: Any
    row_type: Any

    @property
    def values(self) -> tuple[RowExpression, ...]:
        """Return the expressions whose values are kept."""
        return self.values_kept.values  # type: ignore[return-value]  # named results are made of expressions

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of the values."""
        return [value.type.kind for value in self.values]

    @property
    def state_type(self) -> Any:
        """Return the type of the result of `to_plain`."""
        types = [None if name == "n" else self.values[int(name[1:])].type for name in state_names(self.values_kept)]
        return generic(
            tuple,
            *[int | str if value_type is None or value_type.kind == "int" else value_type.type for value_type in types],
        )

    @staticmethod
    def to_plain(state: tuple[Any, ...]) -> list[Any]:
        """Return a key's state for a snapshot. MessagePack has no ints beyond 64 bits, so these become text."""
        return [hex(number) if type(number) is int and not -(2**63) <= number < 2**63 else number for number in state]

    @staticmethod
    def from_plain(plain: Sequence[Any]) -> tuple[Any, ...]:
        """Return the state that `to_plain` described."""
        return tuple(int(number, 16) if type(number) is str else number for number in plain)


def named_running(name: str, row_type: Any, named: Mapping[str, Any], where: CallSite) -> NamedRunning:
    """Check named running values against the rows of a step. Raises `TopologyError`."""
    fields = {field.name: field.type for field in schema_of(row_type).fields}
    values: dict[str, RowExpression] = {}
    parts: list[Aggregator[Any, Any, Any]] = []
    results: dict[str, Any] = {}
    for field, aggregate in named.items():
        if field in fields:
            raise where.error(
                f"{name}: there is a field {field!r} already ({', '.join(fields)}); give the result another name"
            )
        part, kind = aggregate_part(field, aggregate, row_type, values, where)
        parts.append(part)
        results[field] = kind
    values_kept = kept_values(NamedResults(tuple(parts)))
    assert values_kept is not None  # all named results are built in
    whole = tuple(RowExpression(FieldNode(field), row_type, where) for field in fields)
    return NamedRunning(values_kept, whole, row_type, made_row_type(name, fields | results, where))

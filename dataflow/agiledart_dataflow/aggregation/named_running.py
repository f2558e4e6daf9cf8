"""`.running("totals", trips=count(), fares=col("fare").sum())`: what a step with named running values is made of."""

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
    """What a step with named running values is made of.

    Attributes:
        kept: values and results.
        fields: of the rows that enter, as expressions.
        enters: type of the rows that enter.
        row_type: of those that leave: the same fields, then the results.
    """

    kept: KeptValues
    fields: tuple[RowExpression, ...]
    enters: Any
    row_type: Any

    @property
    def values(self) -> tuple[RowExpression, ...]:
        """The expressions whose values are kept."""
        return self.kept.values  # type: ignore[return-value]  # named results are made of expressions

    @property
    def kinds(self) -> list[str]:
        """Of the values."""
        return [value.type.kind for value in self.values]

    @property
    def state_type(self) -> Any:
        """Of what `to_plain` gives."""
        types = [None if name == "n" else self.values[int(name[1:])].type for name in state_names(self.kept)]
        return generic(tuple, *[int | str if one is None or one.kind == "int" else one.type for one in types])

    @staticmethod
    def to_plain(state: tuple[Any, ...]) -> list[Any]:
        """A key's state for a snapshot: MessagePack has no ints beyond 64 bits, so these are text."""
        return [hex(one) if type(one) is int and not -(2**63) <= one < 2**63 else one for one in state]

    @staticmethod
    def from_plain(plain: Sequence[Any]) -> tuple[Any, ...]:
        """The state that `to_plain` described."""
        return tuple(int(one, 16) if type(one) is str else one for one in plain)


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
    kept = kept_values(NamedResults(tuple(parts)))
    assert kept is not None  # named results are built-in ones
    whole = tuple(RowExpression(FieldNode(field), row_type, where) for field in fields)
    return NamedRunning(kept, whole, row_type, made_row_type(name, fields | results, where))

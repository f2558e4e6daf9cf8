"""Which sources deliver columns, and which fields anybody behind them looks at.

Columns when all that the source feeds begins with vectorised steps; rows when a function of rows comes first. The fields are
a hint: a text that is not among them is read when it is asked for after all.
"""

from agiledart_dataflow.aggregation.named_running import NamedRunning
from agiledart_dataflow.expressions.row_expression import KeyExpression, RowBuilder, RowExpression
from agiledart_dataflow.graph.graph import Graph
from agiledart_dataflow.plan.overload import BLOCK
from agiledart_dataflow.plan.step import Step


def wants_columns(graph: Graph, source: Step) -> bool:
    """Does a source best give columns?"""
    parts = source.source
    assert parts is not None  # the caller asked
    plain = (
        parts.times_of_columns is not None
        and not parts.check
        and not parts.max_out_of_order_ms
        and parts.overload.policy == BLOCK
        and source.connector is not None
        and not source.connector.option("speed")
    )
    consumers = [step for step in graph.steps if source.index in step.inputs]
    return plain and bool(consumers) and all(map(_begins_vectorised, consumers))


def _begins_vectorised(step: Step) -> bool:
    if step.traits.columnar:
        return True
    if _named_running(step) is not None:
        return step.keying is not None and isinstance(step.keying.function, KeyExpression)
    named = None if step.window is None else step.window.named
    return named is not None and named.key is not None


def _named_running(step: Step) -> NamedRunning | None:
    """Its operator, of a step of named running values."""
    return step.state.operator if step.state is not None and isinstance(step.state.operator, NamedRunning) else None


def fields_wanted(graph: Graph, step: Step) -> frozenset[str] | None:
    """Fields of a step's rows that somebody behind it looks at; None: all of them."""
    wanted: set[str] = set()
    for consumer in graph.steps:
        if step.index in consumer.inputs:
            fields = _taken(graph, consumer)
            if fields is None:
                return None
            wanted |= fields
    return frozenset(wanted)


def _taken(graph: Graph, step: Step) -> frozenset[str] | None:
    """Fields of the rows that enter a step that it, or somebody behind it, looks at; all where they travel to its place."""
    if any(graph.steps[before].at != step.at for before in step.inputs if step.at):
        return None
    inline = None if step.rows is None else step.rows.inline
    if isinstance(inline, RowExpression):
        behind = fields_wanted(graph, step)
        return None if behind is None else behind | inline.fields
    if isinstance(inline, RowBuilder):
        behind = fields_wanted(graph, step)
        taken = [
            value.fields
            for name, value in inline.values.items()
            if value.field is None or behind is None or name in behind
        ]
        return frozenset().union(*taken)
    running = _named_running(step)
    if running is not None and step.keying is not None and isinstance(step.keying.function, KeyExpression):
        behind = fields_wanted(graph, step)
        taken = [part.fields for part in (*step.keying.function.parts, *running.values)]
        kept = {field.field for field in running.fields}
        return None if behind is None else frozenset().union(behind & kept, *taken)
    named = None if step.window is None else step.window.named
    if named is not None and isinstance(named.key, KeyExpression):
        values = [part.value_of for part in named.aggregator.parts if hasattr(part, "value_of")]
        return frozenset().union(*(part.fields for part in (*named.key.parts, *values)))
    if step.traits.stage == "sink" and step.connector is not None and step.connector.kind == "null":
        return frozenset()
    return None

"""Planning of columns: the sources that deliver columns, and the fields that later steps read.

A source delivers columns when every step that it feeds begins with vectorised steps; it delivers rows when a function of rows
comes first. The fields are a hint: a text outside them is still read when a step asks for it.
"""

from typing import Any

from agiledart_dataflow.aggregation.aggregators import ReadsValue
from agiledart_dataflow.aggregation.named_running import NamedRunning
from agiledart_dataflow.expressions.row_expression import KeyExpression, RowBuilder, RowExpression
from agiledart_dataflow.graph.graph import Graph
from agiledart_dataflow.plan.overload import BLOCK
from agiledart_dataflow.plan.step import Step


def wants_columns(graph: Graph, source: Step) -> bool:
    """Report whether a source should deliver columns."""
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
    """Return the operator of a step of named running values; None for other steps."""
    return step.state.operator if step.state is not None and isinstance(step.state.operator, NamedRunning) else None


def fields_wanted(graph: Graph, step: Step) -> frozenset[str] | None:
    """Return the fields of a step's rows that later steps read; None: all of them."""
    wanted: set[str] = set()
    for consumer in graph.steps:
        if step.index in consumer.inputs:
            fields = _taken(graph, consumer)
            if fields is None:
                return None
            wanted |= fields
    return frozenset(wanted)


def _taken(graph: Graph, step: Step) -> frozenset[str] | None:
    """Return the fields of its input that a step or a later step reads; None (all) where the rows travel to its node."""
    if any(graph.steps[before].at != step.at for before in step.inputs if step.at):
        return None
    inline = None if step.rows is None else step.rows.inline
    if isinstance(inline, RowExpression):
        fields_read_later = fields_wanted(graph, step)
        return None if fields_read_later is None else fields_read_later | inline.fields
    if isinstance(inline, RowBuilder):
        fields_read_later = fields_wanted(graph, step)
        taken = [
            value.fields
            for name, value in inline.values.items()
            if value.field is None or fields_read_later is None or name in fields_read_later
        ]
        return frozenset().union(*taken)
    running = _named_running(step)
    if running is not None and step.keying is not None and isinstance(step.keying.function, KeyExpression):
        fields_read_later = fields_wanted(graph, step)
        taken = [part.fields for part in (*step.keying.function.parts, *running.values)]
        field_names = {field.field for field in running.fields}
        return None if fields_read_later is None else frozenset().union(fields_read_later & field_names, *taken)
    named = None if step.window is None else step.window.named
    if named is not None and isinstance(named.key, KeyExpression):
        values: list[Any] = [part.value_of for part in named.aggregator.parts if isinstance(part, ReadsValue)]
        return frozenset().union(*(part.fields for part in (*named.key.parts, *values)))
    if step.traits.stage == "sink" and step.connector is not None and step.connector.kind == "null":
        return frozenset()
    return None

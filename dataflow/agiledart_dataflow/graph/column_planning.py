"""Which sources deliver columns, and which fields anybody behind them looks at.

Columns when all that the source feeds begins with vectorised steps; rows when a function of rows comes first. The fields are
a hint: a text that is not among them is read when it is asked for after all.
"""

from agiledart_dataflow.expressions.row_expression import KeyExpression, RowBuilder, RowExpression
from agiledart_dataflow.graph.graph import Graph
from agiledart_dataflow.plan.overload import BLOCK
from agiledart_dataflow.plan.step import Step

_VECTORISED = ("where", "with_columns", "select", "map_batches")


def wants_columns(graph: Graph, source: Step) -> bool:
    """Does a source best give columns?"""
    make = source.make
    plain = (
        make.get("times_of_columns") is not None
        and not make.get("check")
        and not make.get("max_out_of_order_ms")
        and make["overload"].policy == BLOCK
        and source.connector is not None
        and not source.connector.option("speed")
    )
    consumers = [step for step in graph.steps if source.index in step.inputs]
    return plain and bool(consumers) and all(map(_begins_vectorised, consumers))


def _begins_vectorised(step: Step) -> bool:
    if step.kind in _VECTORISED:
        return True
    if step.kind == "running-values":
        return step.keying is not None and isinstance(step.keying.function, KeyExpression)
    named = step.make.get("named")
    return named is not None and named.key is not None


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
    inline = step.make.get("inline")
    if step.kind == "where" and isinstance(inline, RowExpression):
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
    if step.kind == "running-values" and step.keying is not None and isinstance(step.keying.function, KeyExpression):
        behind = fields_wanted(graph, step)
        running = step.make["operator"]
        taken = [part.fields for part in (*step.keying.function.parts, *running.values)]
        kept = {field.field for field in running.fields}
        return None if behind is None else frozenset().union(behind & kept, *taken)
    named = step.make.get("named")
    if named is not None and isinstance(named.key, KeyExpression):
        values = [part.value_of for part in named.aggregator.parts if hasattr(part, "value_of")]
        return frozenset().union(*(part.fields for part in (*named.key.parts, *values)))
    if step.kind == "sink" and step.connector is not None and step.connector.kind == "null":
        return frozenset()
    return None

"""Event times that a step behind a source makes: `source(…).map(parse, event_time="at")`.

The steps from the source to that step run in the source's own instance, before its rows get their times. So sorting, late rows,
idle sources, watermarks and rewinding work as for times that the source reads itself.
"""

from dataclasses import replace
from typing import Any, Final

from agiledart_dataflow.event_time.event_times import event_times, no_time
from agiledart_dataflow.graph.graph import Graph, Rows
from agiledart_dataflow.plan.specification import AT_SOURCE
from agiledart_dataflow.plan.step import Step
from agiledart_dataflow.user_code.callsite import CallSite

_OPTION: Final = ((AT_SOURCE, "yes"),)


def with_times(made: Rows, event_time: Any, where: CallSite) -> Rows:
    """Return the rows of a step, whose times its source takes from here; unchanged when no event time is given.

    Raises:
        TopologyError: other steps than those of single rows stand between the source and the step, another step reads the rows
            before it, or the source has event times already.
    """
    if event_time is None:
        return made
    graph, step = made.graph, made.step
    chain = _steps_to_source(graph, step, where)
    source = chain[0]
    if source.function is not no_time:
        raise where.error(
            f"the rows of source {source.name!r} have event times already: give event_time= at the source, or at"
            f" {step.name!r}, once"
        )
    time_of, _ = event_times(event_time, step.row_type, where)
    assert source.source is not None  # the chain begins with a source
    graph.steps[source.index] = replace(source, function=time_of, source=replace(source.source, times_of_columns=None))
    for of_source in chain[1:]:
        graph.steps[of_source.index] = replace(of_source, options=tuple(sorted((*of_source.options, *_OPTION))))
    return Rows(graph, graph.steps[step.index])


def _steps_to_source(graph: Graph, step: Step, where: CallSite) -> list[Step]:
    """Return the steps from the source to this one, in order."""
    chain = [step]
    while chain[0].source is None:
        if chain[0].traits.loop is None:
            raise where.error(
                f"event_time= at {step.name!r} makes times too late: {chain[0].name!r} ({chain[0].kind}) comes before it, and its"
                " rows need them; only steps of single rows may stand between the source and event_time="
            )
        before = graph.steps[chain[0].inputs[0]]
        others = [
            other.name
            for other in graph.steps
            if before.index in other.inputs and other is not chain[0] and ("tag", "errors") not in other.options
        ]
        if others:
            raise where.error(
                f"event_time= at {step.name!r}: {others[0]!r} reads the rows of {before.name!r} too, and they would have no"
                f" times; let it read the rows of {step.name!r}"
            )
        chain.insert(0, before)
    return chain


def timed_source(graph: Graph, step: Step) -> Step | None:
    """Return the source whose rows get their times from this step, which is not the source itself; else None."""
    if not step.is_at_source or any(other.is_at_source for other in graph.steps if step.index in other.inputs):
        return None
    while step.source is None:
        step = graph.steps[step.inputs[0]]
    return step

"""Steps at which rows of one live source wait for another one that may be silent.

A merge by position releases rows up to the least watermark of its inputs, and the watermark of a live source stands still while the
source is silent. `idle_timeout=` lets it pass by the clock then.
"""

from typing import Final, NamedTuple

from agiledart_dataflow.plan.specification import Specification, StepSpecification
from agiledart_dataflow.plan.stages import plan_stages

_ENDING: Final = frozenset({"batches", "call", "csv", "generator", "jsonl", "lines", "list", "parquet"})
"""Kinds of sources that come to an end by themselves; files do so unless they are followed."""


class WaitingInputs(NamedTuple):
    """Step that takes rows of several live sources in order.

    Attributes:
        step: its name.
        sources: names of the live sources.
        without_timeout: those of them for whose rows the others may wait without bound.
    """

    step: str
    sources: list[str]
    without_timeout: list[str]


def inputs_that_may_wait(specification: Specification) -> list[WaitingInputs]:
    """Return the first steps at which live sources wait for each other; none for those behind such a step."""
    plan = plan_stages(specification)
    live: dict[int, dict[str, StepSpecification]] = {}  # stage → live sources of its rows
    warned: set[int] = set()
    waiting: list[WaitingInputs] = []
    for stage in plan.stages:
        head = specification.steps[stage.steps[0]]
        incoming = plan.incoming(stage.index)
        live[stage.index] = {head.name: head} if stage.kind == "source" and _is_live(head) else {}
        for edge in incoming:
            live[stage.index] |= live[edge.source]
        sources = live[stage.index]
        without = [name for name, source in sources.items() if not source.option("idle_timeout_ms")]
        merges = len(incoming) > 1 and incoming[0].carries == "positions"
        if any(edge.source in warned for edge in incoming):
            warned.add(stage.index)
        elif merges and len(sources) > 1 and without:
            warned.add(stage.index)
            waiting.append(WaitingInputs(head.name, list(sources), without))
    return waiting


def _is_live(source: StepSpecification) -> bool:
    connector = source.connector
    return connector is not None and (
        connector.kind not in _ENDING or dict(connector.options).get("follow", "0") not in ("", "0")
    )

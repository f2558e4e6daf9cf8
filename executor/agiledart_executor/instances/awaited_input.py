"""The input for which the rows of an instance wait: which sources have been silent, and since when."""

from collections.abc import Iterator
from typing import Any

from agiledart_dataflow.data.position import Position
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.runtime.instance import Instance


class AwaitedInput:
    """Observer of one instance that merges inputs by position; looked at before each report of figures.

    A merge releases rows up to the least watermark of its inputs. The input with that watermark holds back the rows of the others.
    """

    __slots__ = ("_channel", "_since_ns", "_watermark")

    def __init__(self) -> None:
        self._channel: tuple[int, int] | None = None
        self._watermark: Position = ()
        self._since_ns = 0

    def figures(self, instance: Instance, now_ns: int, wall_ns: int) -> dict[str, Any] | None:
        """Return the input for which rows wait here, as plain data; None while no row waits for an input.

        Args:
            instance: the observed instance.
            now_ns, wall_ns: the same moment, monotonic and since 1970.

        Returns:
            `sources`: names of the sources that the input comes from; `since_ms`: since when it has been silent, in ms since
            1970 and to the half second of two reports; `rows`: how many rows wait.
        """
        awaited = instance.awaited_input()
        if awaited is None:
            self._channel = None
            return None
        channel, watermark = awaited
        if (channel, watermark) != (self._channel, self._watermark):
            self._channel, self._watermark, self._since_ns = channel, watermark, now_ns
        sender = instance.plan.edges[channel[0]].source
        return {
            "sources": list(dict.fromkeys(_sources(instance.plan, sender))),
            "since_ms": (wall_ns - now_ns + self._since_ns) // 1_000_000,
            "rows": instance.queued_rows,
        }


def _sources(plan: StagePlan, stage: int) -> Iterator[str]:
    """Yield the names of the sources whose rows come through a stage."""
    incoming = plan.incoming(stage)
    if not incoming:
        yield plan.stages[stage].name
    for edge in incoming:
        yield from _sources(plan, edge.source)

"""The input for which the rows of an instance wait: which sources have been silent, and since when."""

from collections.abc import Iterable
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
            `sources`: names of the sources that the input comes from; `held`: names of those whose rows wait; `since_ms`: since
            when the input has been silent, in ms since 1970 and to the half second of two reports; `silent_ms`: for how long;
            `rows`: how many rows wait.
        """
        awaited = instance.awaited_input()
        if awaited is None:
            self._channel = None
            return None
        if (awaited.channel, awaited.watermark) != (self._channel, self._watermark):
            self._channel, self._watermark, self._since_ns = awaited.channel, awaited.watermark, now_ns
        return {
            "sources": _sources(instance.plan, [awaited.channel]),
            "held": _sources(instance.plan, awaited.holding),
            "since_ms": (wall_ns - now_ns + self._since_ns) // 1_000_000,
            "silent_ms": (now_ns - self._since_ns) // 1_000_000,
            "rows": instance.queued_rows,
        }


def _sources(plan: StagePlan, channels: Iterable[tuple[int, int]]) -> list[str]:
    """Return the names of the sources whose rows come through these channels."""
    names: dict[str, None] = {}
    stages = [plan.edges[edge].source for edge, _ in channels]
    while stages:
        stage = stages.pop(0)
        stages += (edge.source for edge in plan.incoming(stage))
        if not plan.incoming(stage):
            names[plan.stages[stage].name.split("+")[0]] = None
    return list(names)

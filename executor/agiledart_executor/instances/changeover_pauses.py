"""Pauses of rows when a stage that an instance sends to begins a new generation, measured at the sender by one clock.

| event | what the sender then knows |
|---|---|
| the barrier that brings the generation has left | the previous generation still works off its queue |
| all frames to one of its instances are acknowledged | that instance has stopped: it acknowledges before it saves itself |
| the first rows have left by a channel of the new generation | since when rows wait for that generation |
| the first acknowledgement comes by that channel | the pause: since the stop, or since rows waited, whichever was later |

The longest pause of all channels counts, because the key groups of each stood still for that time. Without rows nothing stands
still; then the barrier of the next epoch is what waits. One case cannot be measured: the sender's own stage begins a new generation
at the same barrier. Then no sender sees both generations, and other senders of the run report the pause.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.runtime.channels import SendingChannel

MAX_REPORTED_STAGES = 64
"""Stages that one instance reports; it sends to no more."""


class SendingEnd(Protocol):
    """Upstream end of a channel; `is_old` when it leads to a generation that has ended."""

    channel: SendingChannel
    is_old: bool


SendingEnds = Mapping[tuple[int, int], SendingEnd]


@dataclass(slots=True)
class _ChangeoverWatch:
    """Measurement on one edge, from the barrier to the first acknowledgement of each instance of the new generation.

    Attributes:
        stage, generation: the target stage and its new generation.
        began_ns: when the barrier left.
        waits: targets that have not acknowledged yet.
        stopped_ns: when the first instance of the previous generation stopped; 0 while none has.
        first_ns: when the first rows, or a barrier, left, by target.
        longest_ns: longest pause so far.
    """

    stage: int
    generation: int
    began_ns: int
    waits: dict[int, None]
    stopped_ns: int = 0
    first_ns: dict[int, int] = field(default_factory=dict)
    longest_ns: int = 0


class ChangeoverPauses:
    """Pauses that one instance sees.

    Args:
        clock: monotonic, in nanoseconds.

    Attributes:
        watches: True while a pause is being measured.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self.watches = False
        self._open: dict[int, _ChangeoverWatch] = {}
        self._longest_pauses: dict[int, tuple[int, int]] = {}

    def plan_changed(self, plan: StagePlan, outputs: SendingEnds, left: Mapping[tuple[int, int], None]) -> None:
        """Start measuring after a barrier has brought a plan.

        Args:
            plan: the new plan.
            outputs: of the instance, including those to previous generations.
            left: outputs that carry no more rows since the barrier.
        """
        now = self._clock()
        for edge in dict.fromkeys(edge for edge, _ in left):
            stage = plan.stages[plan.edges[edge].target]
            targets = [target for number, target in outputs if number == edge and not outputs[number, target].is_old]
            self._close(edge)
            self._open[edge] = _ChangeoverWatch(stage.index, stage.generation, now, dict.fromkeys(targets))
        for edge, target in left:
            self._look_at_old(self._open[edge], outputs[edge, target], now)
        self.watches = bool(self._open)
        self.look(outputs)

    def look(self, outputs: SendingEnds) -> None:
        """Record when the first rows left by each new channel."""
        for edge, watch in self._open.items():
            for target in watch.waits:
                end = outputs.get((edge, target))
                if (
                    target not in watch.first_ns
                    and end is not None
                    and (end.channel.frames_sent or end.channel.has_more)
                ):
                    watch.first_ns[target] = self._clock()

    def acknowledged(self, edge: int, target: int, end: SendingEnd) -> None:
        """Use an acknowledgement: the old target has stopped, or the new target's pause is over."""
        watch = self._open.get(edge)
        if watch is None:
            return
        now, channel = self._clock(), end.channel
        if end.is_old:
            self._look_at_old(watch, end, now)
        elif target in watch.waits and channel.frames_sent > channel.in_flight:
            del watch.waits[target]
            since = max(watch.stopped_ns or watch.began_ns, watch.first_ns.get(target, 0))
            watch.longest_ns = max(watch.longest_ns, now - since)
            if not watch.waits:
                self._close(edge)
                self.watches = bool(self._open)

    def report(self, *, has_ended: bool = False) -> tuple[tuple[int, int, int], ...]:
        """Return (stage, generation, nanoseconds) of each stage's last change that is fully measured.

        Args:
            has_ended: the instance sends no more rows, so open measurements end here.
        """
        if has_ended:
            for edge in tuple(self._open):
                self._close(edge)
            self.watches = False
        return tuple((stage, generation, pause_ns) for stage, (generation, pause_ns) in self._longest_pauses.items())[
            -MAX_REPORTED_STAGES:
        ]

    @staticmethod
    def _look_at_old(watch: _ChangeoverWatch, end: SendingEnd, now: int) -> None:
        """Record that the old target has stopped, once it owes nothing but the barrier, which is no row."""
        if not watch.stopped_ns and not end.channel.rows_waiting and end.channel.in_flight <= 1:
            watch.stopped_ns = now

    def _close(self, edge: int) -> None:
        watch = self._open.pop(edge, None)
        if watch is not None and watch.longest_ns:
            generation, pause_ns = self._longest_pauses.get(watch.stage, (0, 0))
            self._longest_pauses[watch.stage] = (
                watch.generation,
                max(watch.longest_ns, pause_ns if generation == watch.generation else 0),
            )

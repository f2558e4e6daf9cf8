"""How long rows stood still when a stage that an instance sends to took a new term: measured at the sender, by one clock.

| what happens | what is known then |
|---|---|
| the barrier that brings the term has left | the term before works off what it has |
| all that went to one instance of it is acknowledged | that one has stopped: it says so before it saves itself |
| the first rows have left by a channel of the new term | since when somebody has waited for it |
| the first acknowledgement comes by that channel | the gap: since the stop, or since rows waited, where that was later |

The longest gap of all channels counts, since the groups of each stood still for as long. Where no row comes, nothing stands still:
the barrier of the next epoch is then what waits. The awkward case: the sender's own stage takes a new term at the same barrier;
then no sender sees both terms, and others of the run tell how long it was.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.runtime.channels import SendingChannel

MAX_REPORTED_STAGES = 64
"""Stages of which one instance tells: it sends to no more."""


class SendingEnd(Protocol):
    """The upstream end of a channel; `is_old`: to a term that has ended."""

    channel: SendingChannel
    is_old: bool


SendingEnds = Mapping[tuple[int, int], SendingEnd]


@dataclass(slots=True)
class _ChangeoverWatch:
    """One edge, from the barrier to the first acknowledgement of each instance of the new term.

    Attributes:
        began_ns: when the barrier left; `stopped_ns`: when the first instance of the term before stopped, 0: none has.
        first_ns: when rows, or a barrier, left first, by target; `waits`: targets of which nothing has come back.
    """

    stage: int
    generation: int
    began_ns: int
    waits: dict[int, None]
    stopped_ns: int = 0
    first_ns: dict[int, int] = field(default_factory=dict)
    longest_ns: int = 0


class ChangeoverPauses:
    """The gaps that one instance sees.

    Attributes:
        watches: whether one is being measured.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self.watches = False
        self._open: dict[int, _ChangeoverWatch] = {}
        self._longest_pauses: dict[int, tuple[int, int]] = {}

    def plan_changed(self, plan: StagePlan, outputs: SendingEnds, left: Mapping[tuple[int, int], None]) -> None:
        """A barrier has brought a plan.

        Args:
            outputs: of the instance, those of the terms before among them.
            left: outputs by which nothing follows since then.
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
        """Something may have left."""
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
        """The other end of an output has taken frames."""
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
        """(stage, term, nanoseconds) of each stage's last change, as far as all channels are heard of, or nothing more follows."""
        if has_ended:
            for edge in tuple(self._open):
                self._close(edge)
            self.watches = False
        return tuple((stage, generation, gap) for stage, (generation, gap) in self._longest_pauses.items())[
            -MAX_REPORTED_STAGES:
        ]

    @staticmethod
    def _look_at_old(watch: _ChangeoverWatch, end: SendingEnd, now: int) -> None:
        """The barrier itself may still be under way: it is no row."""
        if not watch.stopped_ns and not end.channel.rows_waiting and end.channel.in_flight <= 1:
            watch.stopped_ns = now

    def _close(self, edge: int) -> None:
        watch = self._open.pop(edge, None)
        if watch is not None and watch.longest_ns:
            generation, gap = self._longest_pauses.get(watch.stage, (0, 0))
            self._longest_pauses[watch.stage] = (
                watch.generation,
                max(watch.longest_ns, gap if generation == watch.generation else 0),
            )

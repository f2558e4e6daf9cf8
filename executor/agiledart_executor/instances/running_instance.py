"""One instance of an executor with its channels: what waits at its inputs and outputs, its pace, its figures."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from agiledart_connectors.emitted_row_count import EmittedRowCount
from agiledart_dataflow.counts.interval_measures import MEASURES, CountSample, IntervalMeasures, SampleWindow
from agiledart_dataflow.counts.key_sample import KeySample
from agiledart_dataflow.counts.statistics import InstanceStatistics
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.plan.connectors import SinkWriter
from agiledart_dataflow.plan.stage_plan import generation_of, index_of
from agiledart_dataflow.runtime.channels import ReceivingChannel, SendingChannel
from agiledart_dataflow.runtime.instance import WORK_BUDGET, Instance
from agiledart_dataflow.runtime.outbox import Emit
from agiledart_dataflow.runtime.receive_rate import ReceiveRate
from agiledart_dataflow.runtime.resending import EarlyFrames
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_executor.instances.changeover_pauses import ChangeoverPauses
from agiledart_executor.instances.latency_log import LatencyLog
from agiledart_executor.wire.agent_messages import InstanceName

WORK_SLICE_NS = 5_000_000
"""How long instances may work before sockets are looked at again."""

SOURCE_ROWS = 750
"""Rows that a source reads in one go at most."""


class DeliverFrame(Protocol):
    """Carries frames of one channel to wherever its target runs."""

    def __call__(self, batch: Batch, first_row: int, channel: SendingChannel) -> None:
        """Send one frame."""
        ...


MAX_STATUS_CHARS = 300
"""Characters of what a source or sink says of its connection."""


MAX_REPORTED_ROUTES = 16
"""Of one instance, in each of its reports."""


@dataclass(eq=False)
class OutputEnd:
    """Upstream end of a channel and its way out; `ready` says whether that takes a frame now (None: always), `trouble` what is
    wrong with it, `passage` by way of whom it goes, both in words, and `route` figures of the way.
    """

    channel: SendingChannel
    deliver: DeliverFrame
    ready: Callable[[], bool] | None = None
    trouble_text: Callable[[], str] | None = None
    relay_text: Callable[[], str] | None = None
    route: Callable[[], dict[str, Any]] | None = None
    is_old: bool = False

    def close(self) -> None:
        """Nothing more goes this way."""

    @property
    def waits_for(self) -> str:
        """Whom it waits for, in words, because the way there does not work; empty while nothing waits."""
        return self.trouble_text() if self.trouble_text is not None and not self.channel.idle else ""

    @property
    def frames_resent(self) -> int:
        """Frames that went again over another link."""
        return 0

    def emit(self, edge: int, target: int, batch: Batch) -> None:
        """An `Emit` for this channel alone: send a batch at once where nothing waits before it; else it waits for `flush`."""
        channel = self.channel
        first_row = channel.rows_sent
        if (self.ready is None or self.ready()) and channel.passes(batch):
            self.deliver(batch, first_row, channel)
        else:
            channel.put(batch)

    def acknowledged(self, frames: int, watermarks: int, frame_rows: int = 0) -> None:
        """The other end has taken frames, and says of how many rows; raises RemoteProtocolError for more than were sent."""
        self.channel.acknowledge(frames, watermarks, frame_rows)

    def flush(self) -> None:
        """Send all that may go now."""
        channel = self.channel
        while (self.ready is None or self.ready()) and channel.has_more:
            first_row = channel.rows_sent
            batch = channel.next_frame()
            if batch is None:
                return
            self.deliver(batch, first_row, channel)


@dataclass(eq=False)
class InputEnd:
    """Downstream end of a channel: what came, what the operator has taken of it, whom to tell. `waiting`: what came before a
    barrier has told of the channel's term, or before its instance has begun; it is not acknowledged, so it is a window at most.
    """

    acknowledge: Callable[[int, int], None] | None = None
    channel: ReceivingChannel = field(default_factory=ReceivingChannel)
    early: EarlyFrames = field(default_factory=EarlyFrames)
    rows_or_watermark: deque[bool] = field(default_factory=deque)
    waiting: list[Batch] | None = None
    batches_taken: int = 0
    frames_taken: int = 0

    def taken(self, batches: int, *, finished: bool, may_wait: int = 0) -> None:
        """The operator has now taken so many batches in all, punctuations among them; at its end all is
        acknowledged. `may_wait`: rows from here that may wait before it; 0: any number.
        """
        while self.batches_taken < batches:
            self.batches_taken += 1
            self.frames_taken += self.rows_or_watermark.popleft()
        if self.acknowledge is not None:
            if may_wait:
                self.channel.limit_rows_in_flight(may_wait)
            due = self.channel.due(self.frames_taken, all_of_it=finished)
            if due is not None:
                self.acknowledge(*due)

    def repeat_acknowledgement(self) -> None:
        """Repeat the last acknowledgement: it may have been lost."""
        if self.acknowledge is not None:
            self.acknowledge(*self.channel.last_acknowledged)


@dataclass(eq=False)
class RunningInstance:
    """One instance with its channels.

    Attributes:
        index: its number, as channels name it (`stage_plan.member`).
        ended: whether it is at the end of its input, as of the last time it worked.
        barrier: the epoch whose barrier it has passed last; `wanted`: the one that a source is to let in.
        owned: figures of the key groups that it owns; empty where its stage has one instance and can have no more.
        change: the epoch and the name of the plan that a source's barrier is to bring.
        holds: a source reads nothing more, because the run is to end at this barrier with its state kept.
        has_old: some outputs lead to instances of terms that have ended; nothing follows there. Or a gap is being measured.
        leaving: channels of terms that have ended and from which something may wait, or be under way.
        needs_life: it is broken because a change of its stage cannot go on, or what its sink had written is gone.
        has_begun: False for an instance of a term to come; `has_handed_over`: its term has ended, and it has handed over.
        keys: looks at key groups of some rows that come; None: they have none, or it is of no use.
        by_epoch: a sink that stays open at the end of its input: the last epoch is committed later.
        unsaved: why it could not be saved at its last barrier; empty: it was.
        shown: of a sink that takes no rows back: what it was given.
    """

    stage: int
    index: int
    name: str
    outputs: dict[tuple[int, int], OutputEnd] = field(default_factory=dict)
    emit: Emit = field(init=False)
    inputs: dict[tuple[int, int], InputEnd] = field(default_factory=dict)
    instance: Instance | None = None
    source: SourceInstance | None = None
    writer: SinkWriter | None = None
    latencies: LatencyLog | None = None
    queued: bool = False
    reported: bool = False
    broken: bool = False
    ended: bool = False
    barrier: int = 0
    wanted: int = 0
    change: tuple[int, bytes] = (0, b"")
    holds: bool = False
    leaving: list[tuple[int, int]] = field(default_factory=list)
    has_old: bool = False
    needs_restart: bool = False
    has_begun: bool = True
    has_handed_over: bool = False
    owned: dict[str, object] = field(default_factory=dict)
    keys: KeySample | None = None
    by_epoch: bool = False
    unsaved: str = ""
    emitted_rows: EmittedRowCount | None = None
    timer: asyncio.TimerHandle | None = None
    timer_ns: int = 0
    watched: int | None = None
    budget: int = 1
    busy_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0
    window: SampleWindow = field(default_factory=SampleWindow)

    def __post_init__(self) -> None:
        self.sink_ready: Callable[[], bool] | None = None
        self.takes = ReceiveRate()
        self.changeover_pauses = ChangeoverPauses()
        self.take_outputs()

    def take_outputs(self) -> None:
        """From now on emit to the outputs that are here: to an only one directly."""
        self.sink_ready = getattr(self.writer, "ready", None)
        outputs = self.outputs

        def emit(edge: int, target: int, batch: Batch) -> None:
            outputs[edge, target].emit(edge, target, batch)

        self.emit = next(iter(outputs.values())).emit if len(outputs) == 1 else emit

    @property
    def instance_name(self) -> InstanceName:
        """As the agent knows it."""
        return InstanceName(self.stage, index_of(self.index), generation_of(self.index))

    @property
    def done(self) -> bool:
        """At the end of its input, and all of its output delivered."""
        return self.ended and all(end.channel.idle for end in self.outputs.values())

    @property
    def blocked(self) -> bool:
        """An output has no room, or the sink takes nothing now."""
        if self.sink_ready is not None and not self.sink_ready():
            return True
        for end in self.outputs.values():  # noqa: SIM110  asked several times a batch: without a generator
            if end.channel.rows_waiting and end.channel.blocked:
                return True
        return False

    def adapt_budget(self, rows: int, ns: int) -> None:
        """Learn from a call that treated so many rows how many the next may: a step of 20 ms a row is slow, not stuck,
        so nobody may have to wait for thousands of rows of it. Begins with one row and doubles.
        """
        if ns > 4 * WORK_SLICE_NS:
            self.budget = max(1, min(self.budget, rows) // 2)
        elif rows >= self.budget and ns < WORK_SLICE_NS:
            self.budget = min(2 * self.budget, SOURCE_ROWS if self.source is not None else WORK_BUDGET)

    @property
    def free_rows(self) -> int:
        """About so many rows may leave before an output has no room for more."""
        free_rows = WORK_BUDGET
        for end in self.outputs.values():
            free_rows = min(free_rows, end.channel.free_rows)
        return free_rows

    def may_wait(self) -> int:
        """So many rows may wait at each of its inputs."""
        return max(1, self.takes.shared(time.monotonic_ns(), [end.channel.rows for end in self.inputs.values()]))

    def release_watermarks(self) -> None:
        """Send what outputs have promised and kept to themselves because nobody minds it: for the figures downstream."""
        for end in self.outputs.values():
            if not end.channel.rows_waiting:  # else it goes with them
                end.channel.release_watermark()
                end.flush()

    def report(self) -> dict[str, object]:
        """Figures as plain data: `statistics` in its wire form, and what only the host knows."""
        part = self.instance if self.instance is not None else self.source
        assert part is not None
        statistics = part.statistics()
        if self.emitted_rows is not None:
            statistics.duplicates = self.emitted_rows.counts
        if statistics.source is not None and self.source is not None:
            statistics.source.lost_behind = getattr(self.source.reader, "lost_behind", None)
        measures = self._measures(statistics)
        return {
            "statistics": msgspec.to_builtins(statistics),
            "busy_ns": self.busy_ns,
            "queued_rows": self.instance.queued_rows if self.instance is not None else 0,
            "waiting_rows": sum(end.channel.rows_waiting for end in self.outputs.values()),
            "blocked": self.blocked,
            "waits_for": _joined_texts(end.waits_for for end in self.outputs.values()),
            "relayed_by": _joined_texts(
                end.relay_text() for end in self.outputs.values() if end.relay_text is not None
            ),
            "routes": self._routes(),
            "frames_resent": sum(end.frames_resent for end in self.outputs.values()),
            "frames_doubled": sum(end.early.duplicate_frames for end in self.inputs.values()),
            "first_ms": _wall_ms(self.first_ns),
            "last_ms": _wall_ms(self.last_ns),
            **self.owned,
            **({} if measures is None else {MEASURES: msgspec.to_builtins(measures)}),
            **({} if self.latencies is None else {"latency_samples": self.latencies.figures()}),
            **({"standing": connection_status} if (connection_status := self._connection_status()) else {}),
            **({"unsaved": self.unsaved[:MAX_STATUS_CHARS]} if self.unsaved else {}),
        }

    def _routes(self) -> list[dict[str, Any]]:
        """Of the ways to other processes, with the edges and instances that they are for."""
        ends = [(place, end.route) for place, end in self.outputs.items() if end.route is not None]
        return [{"edge": edge, "target": target, **route()} for (edge, target), route in ends[:MAX_REPORTED_ROUTES]]

    def _connection_status(self) -> str:
        """How the source's or sink's way to the outer world stands, where that is not well."""
        outer = self.writer if self.source is None else self.source.reader
        ask = getattr(outer, "connection_status", None)
        return str(ask())[:MAX_STATUS_CHARS] if ask is not None else ""

    def _measures(self, statistics: InstanceStatistics) -> IntervalMeasures | None:
        """Of the interval that ends now."""
        source = statistics.source
        sent: dict[int, int] = {}
        for edge, _, rows in statistics.sent:
            sent[edge] = sent.get(edge, 0) + rows
        leaving: dict[int, int] = {}
        for (edge, _), end in self.outputs.items():
            leaving[edge] = leaving.get(edge, 0) + end.channel.rows_waiting
        queued = statistics.queued_rows  # received, and not worked off
        taken = sum(rows for _, _, rows in statistics.received) - queued if source is None else source.records
        waiting = queued if source is None else source.waiting + source.spooled
        offered = 0 if source is None else source.lines - source.late - source.malformed_records
        now = time.monotonic_ns()
        self.window.add(CountSample(now, taken, self.busy_ns, self.blocked, waiting, offered, sent, leaving))
        measures = self.window.measures()
        if measures is None or self.keys is None:
            return measures
        return msgspec.structs.replace(measures, groups=self.keys.counts(now))

    def close(self) -> None:
        """Give back files and connections; what a sink was given is in its file then."""
        try:
            if self.writer is not None:
                self.writer.close()
            if self.source is not None:
                self.source.close()
        finally:
            if self.latencies is not None:
                self.latencies.close()


def _joined_texts(texts: Iterable[str]) -> str:
    """Those that say something, each once."""
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _wall_ms(monotonic_ns: int) -> int:
    """When that was, in milliseconds since 1970; 0: never."""
    return (time.time_ns() - time.monotonic_ns() + monotonic_ns) // 1_000_000 if monotonic_ns else 0

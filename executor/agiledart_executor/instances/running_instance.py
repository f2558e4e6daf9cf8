"""One instance of an executor with its channels: queues at its inputs and outputs, its budget, its figures."""

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
from agiledart_dataflow.counts.statistics import PASSED_ROWS, InstanceStatistics
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.plan.connector_abilities import ReaderAbilities, TransactionalSink, WriterAbilities
from agiledart_dataflow.plan.connectors import SinkWriter, SourceReader
from agiledart_dataflow.plan.stage_plan import Stage, generation_of, index_of
from agiledart_dataflow.runtime.channels import ReceivingChannel, SendingChannel
from agiledart_dataflow.runtime.increments import Increments
from agiledart_dataflow.runtime.instance import WORK_BUDGET, Instance
from agiledart_dataflow.runtime.outbox import Emit
from agiledart_dataflow.runtime.overtaken_rows import WaitingOutput
from agiledart_dataflow.runtime.receive_rate import ReceiveRate
from agiledart_dataflow.runtime.resending import EarlyFrames
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_executor.instances.awaited_input import AwaitedInput
from agiledart_executor.instances.changeover_pauses import ChangeoverPauses
from agiledart_executor.instances.latency_log import LatencyLog
from agiledart_executor.instances.waiting_figures import WaitingFigures
from agiledart_executor.wire.agent_messages import InstanceName
from agiledart_kernel.errors import OperationFailed

WORK_SLICE_NS = 5_000_000
"""Nanoseconds for which instances may work before the event loop looks at sockets again."""

SOURCE_ROWS = 750
"""Most rows that a source reads at once."""


class DeliverFrame(Protocol):
    """Function that carries frames of one channel to its target, in this process or another one."""

    def __call__(self, batch: Batch, first_row: int, channel: SendingChannel) -> None:
        """Send one frame."""
        ...


MAX_STATUS_CHARS = 300
"""Longest status text of a source's or sink's connection, in characters."""


MAX_REPORTED_ROUTES = 16
"""Most routes of one instance in a report."""


_NO_READER = ReaderAbilities()


@dataclass(eq=False)
class OutputEnd:
    """Upstream end of a channel, and the function that carries its frames.

    Attributes:
        channel: counts and queue of the channel.
        deliver: sends one frame.
        ready: returns True when a frame can be sent now; None when it always can.
        trouble_text: returns what is wrong with the route, as text; None or empty without trouble.
        relay_text: returns the relay that the route uses, as text.
        route: returns figures of the route.
        is_old: the channel leads to a generation that has ended.
    """

    channel: SendingChannel
    deliver: DeliverFrame
    ready: Callable[[], bool] | None = None
    trouble_text: Callable[[], str] | None = None
    relay_text: Callable[[], str] | None = None
    route: Callable[[], dict[str, Any]] | None = None
    is_old: bool = False

    def close(self) -> None:
        """Release the route: no more frames follow."""

    @property
    def waits_for(self) -> str:
        """Text that names the node that frames wait for because its route does not work; empty while no frame waits."""
        return self.trouble_text() if self.trouble_text is not None and not self.channel.idle else ""

    @property
    def frames_resent(self) -> int:
        """Number of frames that were sent again over another link."""
        return 0

    def emit(self, edge: int, target: int, batch: Batch) -> None:
        """Send a batch at once where no frame waits before it, else queue it for `flush`; an `Emit` for this channel alone."""
        channel = self.channel
        first_row = channel.rows_sent
        if (self.ready is None or self.ready()) and channel.passes(batch):
            self.deliver(batch, first_row, channel)
        else:
            channel.put(batch)

    def acknowledged(self, frames: int, watermarks: int, frame_rows: int = 0) -> None:
        """Credit frames that the other end has taken; raises RemoteProtocolError for more than were sent.

        Args:
            frames: total of acknowledged frames.
            watermarks: total of acknowledged watermark frames.
            frame_rows: rows that the other end allows per frame; 0 when it sets no limit.
        """
        self.channel.acknowledge(frames, watermarks, frame_rows)

    def flush(self) -> None:
        """Send all frames that can be sent now."""
        channel = self.channel
        while (channel.has_barrier or self.ready is None or self.ready()) and channel.has_more:
            first_row = channel.rows_sent
            batch = channel.next_frame()
            if batch is None:
                return
            self.deliver(batch, first_row, channel)


@dataclass(eq=False)
class InputEnd:
    """Downstream end of a channel: received batches, how many the operator has taken, and the function that acknowledges them.

    Attributes:
        acknowledge: sends the totals of frames and watermarks to the upstream end.
        channel: counts of the channel.
        early: frames that came before their turn.
        rows_or_watermark: for each batch in the queue, True for rows or a barrier, False for a watermark alone.
        waiting: batches that came before the barrier of the channel's generation, or before the instance began. They are not
            acknowledged, so the window bounds them. None while batches go to the operator.
        batches_taken, frames_taken: totals that the operator has taken.
        read: number of the read of a socket that brought its last frame with rows.
    """

    acknowledge: Callable[[int, int], None] | None = None
    channel: ReceivingChannel = field(default_factory=ReceivingChannel)
    early: EarlyFrames = field(default_factory=EarlyFrames)
    rows_or_watermark: deque[bool] = field(default_factory=deque)
    waiting: list[Batch] | None = None
    batches_taken: int = 0
    frames_taken: int = 0
    read: int = 0

    def taken(self, batches: int, *, finished: bool, may_wait: int = 0) -> None:
        """Acknowledge the batches that the operator has taken.

        Args:
            batches: total that it has taken, including watermarks.
            finished: the operator is at its end, so all of it is acknowledged.
            may_wait: rows of this channel that may wait before the operator; 0 for any number.
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
        ended: True when it was at the end of its input the last time it worked.
        barrier: the epoch whose barrier it has passed last.
        wanted: the epoch whose barrier a source must send.
        owned: figures of the key groups that it owns; empty for a stage that can have only one instance.
        change: the epoch and the name of the plan that a source's barrier must bring.
        holds: the source reads nothing more, because the run ends at this barrier with its state kept.
        has_old: some outputs lead to instances of ended generations and carry no more rows, or a pause is being measured.
        leaving: input channels of ended generations from which frames may still wait or be in flight.
        needs_restart: it is broken because a change of its stage cannot go on, or because its sink has lost written rows.
        has_begun: False for an instance of the next generation that waits for its state.
        has_handed_over: its generation has ended, and it has handed its state over.
        keys: samples the key groups of incoming rows; None where there are none or the sample has no use.
        sink: abilities of its writer.
        by_epoch: a sink that stays open at the end of its input, because the last epoch is committed later.
        unsaved: why it could not be saved at its last barrier; empty when it was saved.
        emitted_rows: count of the rows given to a sink that cannot abort them.
        rewind: (reader at the beginning, lines) → a source's reader that stands behind so many lines; None: it skips them.
        rows_read, read_ns: rows that a source has read since it waited for input, and when it had read some before that.
        rests_until_ns: instant before which a source does not read.
        lost_behind: number of lines behind which a source continued without the later ones, which are lost; None: it lost none.
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
    slo_ms: dict[str, float] = field(default_factory=dict)
    keys: KeySample | None = None
    by_epoch: bool = False
    unsaved: str = ""
    emitted_rows: EmittedRowCount | None = None
    rewind: Callable[[SourceReader, int], SourceReader] | None = None
    lost_behind: int | None = None
    timer: asyncio.TimerHandle | None = None
    timer_ns: int = 0
    rows_read: int = 0
    read_ns: int = 0
    rests_until_ns: int = 0
    watched: int | None = None
    budget: int = 1
    busy_ns: int = 0
    first_ns: int = 0
    last_ns: int = 0
    window: SampleWindow = field(default_factory=SampleWindow)
    waiting_figures: WaitingFigures = field(default_factory=WaitingFigures)

    def __post_init__(self) -> None:
        self.use_writer(self.writer)
        self.takes = ReceiveRate()
        self.changeover_pauses = ChangeoverPauses()
        self._awaited_input = AwaitedInput()
        self.take_outputs()

    def use_writer(self, writer: SinkWriter | None) -> None:
        """Write to this writer from now on, and look up what it can do."""
        self.writer = writer
        self.sink = WriterAbilities.of(writer)
        self.sink_ready = None if self.sink.limits is None else self.sink.limits.ready

    def open_transaction(self) -> TransactionalSink | None:
        """Return the sink if its rows are committed by epoch; it stays open until the last epoch is committed."""
        self.by_epoch = self.sink.transactional is not None or self.sink.delivery is not None
        return self.sink.transactional

    @property
    def reader_abilities(self) -> ReaderAbilities:
        """Abilities of the reader of a source; none for other instances."""
        return _NO_READER if self.source is None else self.source.reader_abilities

    @property
    def plan_stage(self) -> Stage:
        """Stage in the instance's own plan, which stays the old one when its generation ends at a barrier."""
        part = self.instance or self.source
        assert part is not None
        return part.plan.stages[self.stage]

    def save_increments(self) -> None:
        """Let the instance save increments, from its second committed snapshot on."""
        if self.instance is not None:
            self.instance.increments = Increments(self.instance.state)

    def take_outputs(self) -> None:
        """Use the present outputs from now on; a single output is called directly."""
        outputs = self.outputs

        def emit(edge: int, target: int, batch: Batch) -> None:
            outputs[edge, target].emit(edge, target, batch)

        self.emit = next(iter(outputs.values())).emit if len(outputs) == 1 else emit

    @property
    def instance_name(self) -> InstanceName:
        """Name of the instance in messages to the agent."""
        return InstanceName(self.stage, index_of(self.index), generation_of(self.index))

    @property
    def done(self) -> bool:
        """True when its input has ended and all of its output is delivered."""
        return self.ended and all(end.channel.idle for end in self.outputs.values())

    @property
    def has_sent_end(self) -> bool:
        """True when all its channels carry nothing more."""
        return all(end.channel.has_ended for end in self.outputs.values())

    @property
    def is_caught_up(self) -> bool:
        """True when a change of a stage may begin as far as it is concerned: it can bring or pass on the barrier of one."""
        if self.instance is not None:
            return self.instance.is_caught_up
        return self.source is None or not self.source.finished

    @property
    def blocked(self) -> bool:
        """True when an output has no free window, or the sink takes no rows now."""
        if self.sink_ready is not None and not self.sink_ready():
            return True
        for end in self.outputs.values():  # noqa: SIM110  called several times a batch, so without the cost of a generator
            if end.channel.rows_waiting and end.channel.blocked:
                return True
        return False

    def adapt_budget(self, rows: int, ns: int) -> None:
        """Adapt the budget of the next call to a call that took `ns` nanoseconds for `rows` rows.

        A step of 20 ms a row is slow, not stuck, so other instances must not wait for thousands of its rows. The budget begins
        with one row and doubles.
        """
        if ns > 4 * WORK_SLICE_NS:
            self.budget = max(1, min(self.budget, rows) // 2)
        elif rows >= self.budget and ns < WORK_SLICE_NS:
            self.budget = min(2 * self.budget, SOURCE_ROWS if self.source is not None else WORK_BUDGET)

    @property
    def free_rows(self) -> int:
        """Approximate number of rows that may leave before an output blocks."""
        free_rows = WORK_BUDGET
        for end in self.outputs.values():
            free_rows = min(free_rows, end.channel.free_rows)
        return free_rows

    def may_wait(self) -> int:
        """Return how many rows may wait at each of its inputs."""
        return max(1, self.takes.shared(time.monotonic_ns(), [end.channel.rows for end in self.inputs.values()]))

    def waiting_output(self) -> list[WaitingOutput]:
        """Send what may go now, and return the rows that a barrier would overtake then, by channel."""
        waiting = []
        for (edge, target), end in self.outputs.items():
            if not end.is_old:
                end.flush()
                if (overtaken := end.channel.overtaken()) is not None:
                    waiting.append(WaitingOutput(edge, target, *overtaken))
        return waiting

    def resume_outputs(self) -> None:
        """Send the rows again that the barrier overtook from which a restored instance begins.

        Where it had ended, an output without such rows had carried the end before the barrier, and carries nothing more.

        Raises:
            OperationFailed: the present plan has no channel for them.
        """
        part = self.instance or self.source
        if part is None:
            return
        outputs = dict(self.outputs)
        for edge, target, batches, watermark in part.take_unsent():
            # Another run that begins from a checkpoint counts its generations anew.
            end = outputs.pop((edge, target), None) or outputs.pop((edge, index_of(target)), None)
            if end is None:
                raise OperationFailed(f"{self.name}: its snapshot has rows for an instance that the plan does not have")
            end.channel.resume(batches, watermark)
        if (sent_end := part.sent_end) is not None:
            for end in outputs.values():
                end.channel.resume_behind(sent_end)

    def release_watermarks(self) -> None:
        """Send the watermarks that lazy outputs hold back, so that the figures downstream are current."""
        for end in self.outputs.values():
            if not end.channel.rows_waiting:  # else the rows carry the watermark
                end.channel.release_watermark()
                end.flush()

    def report(self) -> dict[str, object]:
        """Return figures as plain data: `statistics` in its wire form, and figures that only the host knows."""
        part = self.instance if self.instance is not None else self.source
        assert part is not None
        statistics = part.statistics()
        if self.emitted_rows is not None:
            statistics.duplicates = self.emitted_rows.counts
        if statistics.source is not None:
            lossy = self.reader_abilities.lossy
            statistics.source.lost_behind = self.lost_behind if lossy is None else lossy.lost_behind
        measures = self._measures(statistics)
        awaited = self.instance and self._awaited_input.figures(self.instance, time.monotonic_ns(), time.time_ns())
        waiting = self._waiting(statistics)
        return {
            "statistics": msgspec.to_builtins(statistics),
            PASSED_ROWS: sum(counts.rows_in + counts.rows_out for counts in statistics.steps.values()),
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
            **waiting,
            **self.owned,
            **({"awaited_input": awaited} if awaited else {}),
            **({} if measures is None else {MEASURES: msgspec.to_builtins(measures)}),
            **({} if self.latencies is None else {"latency_samples": self.latencies.figures()}),
            **({"connection_status": connection_status} if (connection_status := self.connection_status()) else {}),
            **({"slo_ms": self.slo_ms} if self.slo_ms else {}),
            **({"unsaved": self.unsaved[:MAX_STATUS_CHARS]} if self.unsaved else {}),
        }

    def _waiting(self, statistics: InstanceStatistics) -> dict[str, object]:
        """Return for how long it has waited, and for what."""
        part = self.instance or self.source
        assert part is not None
        receivers = [
            (part.plan.edges[edge].target, index_of(target))
            for (edge, target), end in self.outputs.items()
            if end.channel.rows_waiting and end.channel.blocked
        ]
        is_full = self.sink_ready is not None and not self.sink_ready()
        source = statistics.source
        reads = source is not None and not (statistics.finished or receivers or source.waiting or source.spooled)
        progress = (source.lines, statistics.event_time) if source is not None and reads else None
        return self.waiting_figures.look(time.monotonic_ns(), receivers, is_sink_full=is_full, progress=progress)

    def _routes(self) -> list[dict[str, Any]]:
        """Return figures of the routes to other processes, with the edge and target instance of each."""
        ends = [(place, end.route) for place, end in self.outputs.items() if end.route is not None]
        return [{"edge": edge, "target": target, **route()} for (edge, target), route in ends[:MAX_REPORTED_ROUTES]]

    def connection_status(self) -> str:
        """Return the status text of the source's or sink's external connection; empty when it is well."""
        connection = self.sink.connection if self.source is None else self.reader_abilities.connection
        return "" if connection is None else str(connection.connection_status())[:MAX_STATUS_CHARS]

    def _measures(self, statistics: InstanceStatistics) -> IntervalMeasures | None:
        """Return the measures of the interval that ends now; None when it is too short."""
        source = statistics.source
        sent: dict[int, int] = {}
        for edge, _, rows in statistics.sent:
            sent[edge] = sent.get(edge, 0) + rows
        leaving: dict[int, int] = {}
        row_bytes: dict[int, int] = {}
        for (edge, _), end in self.outputs.items():
            leaving[edge] = leaving.get(edge, 0) + end.channel.rows_waiting
            row_bytes[edge] = max(row_bytes.get(edge, 0), round(end.channel.row_bytes))
        queued = statistics.queued_rows  # received, but not processed
        taken = sum(rows for _, _, rows in statistics.received) - queued if source is None else source.records
        ahead = 0 if self.reader_abilities.ahead is None else self.reader_abilities.ahead.lines_ahead
        waiting = queued if source is None else source.waiting + source.spooled + ahead
        offered = 0 if source is None else source.lines + ahead - source.late - source.malformed_records
        now = time.monotonic_ns()
        self.window.add(CountSample(now, taken, self.busy_ns, self.blocked, waiting, offered, sent, leaving, row_bytes))
        measures = self.window.measures()
        if measures is None or self.keys is None:
            return measures
        return msgspec.structs.replace(measures, groups=self.keys.counts(now))

    def close(self) -> None:
        """Close files and connections; a sink writes the rows that it was given first."""
        try:
            if self.writer is not None:
                self.writer.close()
            if self.source is not None:
                self.source.close()
        finally:
            if self.latencies is not None:
                self.latencies.close()


def _joined_texts(texts: Iterable[str]) -> str:
    """Join the texts that are not empty, each once."""
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _wall_ms(monotonic_ns: int) -> int:
    """Convert a monotonic instant to milliseconds since 1970; 0 stays 0, which means never."""
    return (time.time_ns() - time.monotonic_ns() + monotonic_ns) // 1_000_000 if monotonic_ns else 0

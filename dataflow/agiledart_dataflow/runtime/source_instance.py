"""`SourceInstance`: rows from a reader → positions.

It rejects malformed, late and early rows once, for all queries. Each row is checked in this order: the reader's own reasons, the
step's `check`, then lateness: a row is late if its event time lies more than `max_out_of_order` before the newest seen. The
remaining rows are sorted within that tolerance and numbered.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

import msgspec

from agiledart_dataflow.counts.statistics import InstanceStatistics, SourceCounts, StepCounts
from agiledart_dataflow.data.batch import Batch, Held, as_rows, listed
from agiledart_dataflow.data.position import (
    BEFORE_ALL_MS,
    END,
    RECORD,
    START,
    Position,
    end_of_time,
    final_watermark,
    is_final,
    reached,
)
from agiledart_dataflow.data.rows import DeadLetter
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.event_time.event_clock import EventClock, Late, separated
from agiledart_dataflow.event_time.pacer import Pacer, stamper
from agiledart_dataflow.operators.keyed_step import LATE
from agiledart_dataflow.plan.connector_abilities import ReaderAbilities
from agiledart_dataflow.plan.connectors import Reading, SourceReader
from agiledart_dataflow.plan.stage_plan import ERRORS, StagePlan
from agiledart_dataflow.runtime.intake import Intake
from agiledart_dataflow.runtime.outbox import Emit, Outbox
from agiledart_dataflow.runtime.overtaken_rows import (
    OvertakenRows,
    SentState,
    WaitingOutput,
    decoded_rows,
    encoded_rows,
)
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.runtime.read_ahead_limiter import IDLE_NS, MAX_ROWS_AHEAD, ReadAheadLimiter
from agiledart_dataflow.runtime.record_numbers import RecordNumbers
from agiledart_dataflow.runtime.source_steps import SourceSteps
from agiledart_dataflow.runtime.source_validator import SourceValidator
from agiledart_dataflow.runtime.stage_steps import RowTap
from agiledart_kernel.limits import MAX_BATCH_ROWS


class Polled(msgspec.Struct, frozen=True, gc=False):
    """Result of one `poll`.

    Attributes:
        batch: records and watermark to send, or None.
        wait_until_ns: do not poll before this instant (None: at once).
        finished: True with the batch that carries END_OF_INPUT; never poll again.
        wait_for: a file descriptor that becomes readable when the reader has data, or None; then poll at once.
    """

    batch: Batch | None
    wait_until_ns: int | None
    finished: bool
    wait_for: int | None = None


_OF_FILES = ("csv", "file", "jsonl", "lines", "parquet")


class SourceInstance:
    """Only instance of a source's stage.

    Attributes:
        file: path of the file that it reads; "": none.
        waiting_output: returns what waits in its channels; a barrier may overtake it.

    Args:
        program: the compiled topology.
        stage: the source's stage.
        reader: carries out its connector.
        intake: holds rows while outputs are blocked; None: then it does not read.

    Raises:
        UserCodeError: from `poll`, when `event_time` or `check` raised.
        OperationFailed: from `poll`, when the reader failed; names the step.
        ConfigurationError: the connector's `speed` is not a number above zero.
    """

    def __init__(self, program: Program, stage: int, reader: SourceReader, intake: Intake | None = None) -> None:
        step = program.steps(stage)[0]
        assert step.connector is not None
        assert step.source is not None
        self.stage, self.index, self.finished = stage, 0, False
        self.file = step.connector.path if step.connector.kind in _OF_FILES else ""
        self._name = step.name
        self._row_type = program.output_type(stage)
        self._reader, self._abilities = reader, ReaderAbilities.of(reader)
        self._intake = intake
        self._number = [source_step.index for source_step in program.specification.sources].index(step.index)
        self._codec = program.codec
        self.waiting_output: Callable[[], list[WaitingOutput]] = list
        self._unsent: list[OvertakenRows] = []  # rows that the barrier overtook from which it was restored
        self._outbox = Outbox(program.plan, stage, 0, program.key_functions(stage))
        self._numbers = RecordNumbers(program.plan.carries(stage), self._number, has_lateness=program.lateness_ms > 0)
        self._clock = EventClock(
            step.source.max_out_of_order_ms,
            lateness_ms=program.lateness_ms,
            keeps_late=self._outbox.edge_of(f"{step.name}/{LATE}") is not None,
            **step.source.clock,
        )
        if self._abilities.event_clock is not None:
            self._abilities.event_clock.use_event_clock(self._clock)
        self._pacer = Pacer(step.name, step.connector.option("speed"))
        has_letters = self._outbox.edge_of(f"{step.name}/{ERRORS}") is not None
        has_steps = len(program.steps(stage)) > 1
        self._steps = SourceSteps(program, stage, self._outbox, stamps=reader.stamps) if has_steps else None
        self._last_step = program.steps(stage)[-1].name
        self._validator = SourceValidator(
            step,
            reader,
            self._abilities,
            self._clock,
            paces=self._pacer.paces,
            has_letters=has_letters,
            steps=self._steps,
        )
        self._ahead = ReadAheadLimiter(self._pacer, self._validator)
        waits = self._pacer.paces or self._clock.sorts
        self._stamp = stamper(self._row_type) if waits or not (reader.stamps or has_steps) else None
        needs_care = waits or self._clock.advances_by_clock or self._validator.has_check or has_letters or has_steps
        self._is_plain = not needs_care and self._stamp is None and intake is None
        self._counts = SourceCounts(paced=self._pacer.paces)
        self._exhausted = self._resends_watermark = False
        self._watermark: Position = START
        self._tap: RowTap | None = None
        self._may_be_late = program.lateness_ms > 0 or self._clock.keeps_late

    @property
    def reader(self) -> SourceReader:
        """Return its reader."""
        return self._reader

    @reader.setter
    def reader(self, reader: SourceReader) -> None:
        self._reader, self._abilities = reader, ReaderAbilities.of(reader)
        self._validator.replace_reader(reader)

    @property
    def reader_abilities(self) -> ReaderAbilities:
        """Return the abilities of its reader."""
        return self._abilities

    @property
    def lines(self) -> int:
        """Return the number of lines that it has read."""
        return self._validator.lines

    @property
    def watermark(self) -> Position:
        """Return the position up to which it is complete."""
        return self._watermark

    @property
    def reads_on(self) -> bool:
        """Report whether it wants `take_in` while its outputs are blocked: its policy is not to wait."""
        ahead = self._abilities.ahead
        return (self._intake is not None or (ahead is not None and ahead.reads_ahead)) and not self.finished

    def take_in(self, now_ns: int, wall_ns: int, max_rows: int = MAX_BATCH_ROWS) -> int | None:
        """Read on while nothing can be sent; return the instant before which it need not be called again (None: at once)."""
        if self._intake is None:
            assert self._abilities.ahead is not None  # see `reads_on`
            return self._ahead.read(self._abilities.ahead, self._clock.newest, now_ns, wall_ns, max_rows)
        if not self._intake.has_space():
            return now_ns + IDLE_NS
        held, times, wait, read_nothing = self._arrived(now_ns, wall_ns, max_rows)
        self._intake.put(list(zip(listed(times), as_rows(held), strict=True)))
        if wait is None and not len(held) and (read_nothing or self._exhausted):
            wait = now_ns + IDLE_NS
        return wait

    def poll(self, now_ns: int, wall_ns: int, max_rows: int = MAX_BATCH_ROWS) -> Polled:
        """Read, validate, sort, pace and number rows.

        Args:
            now_ns: monotonic; paces by `speed`.
            wall_ns: since 1970; fills fields of type `ReadTime`.
            max_rows: maximum number of records returned.
        """
        intake = self._intake
        reading: Reading | None = None
        if self._is_plain and not self._clock.due and not self._exhausted:
            reading = self._validator.read(max_rows, wall_ns)
            if (polled := self._at_once(reading, max_rows, now_ns)) is not None:
                return polled
        if intake is None or intake.has_space():
            held, times, wait, read_nothing = self._arrived(now_ns, wall_ns, max_rows, reading)
        else:
            held, times, wait, read_nothing = [], [], None, False
        if intake is not None:
            intake.put(list(zip(listed(times), as_rows(held), strict=True)))
            taken = intake.take(max_rows)
            times, held = [time_ms for time_ms, _ in taken], [row for _, row in taken]
            wait = None if len(held) else wait
        # Rows get their numbers only now, so that rows which the intake dropped leave no gap.
        count = len(held)
        order = self._numbers.of(times, held)
        self._counts.records += count
        if self._may_be_late and count:
            held, order, late = _put_late_aside(self._outbox, f"{self._name}/{LATE}", as_rows(held), listed(order))
            self._counts.records -= late
            self._counts.late += late
        self.finished = self._exhausted and not self._clock.due and (intake is None or intake.is_empty)
        letters: list[tuple[str, DeadLetter[Any]]] = [
            (f"{self._name}/{ERRORS}", letter) for letter in self._validator.bad.take_letters()
        ]
        self._counts.dead_letters += len(letters)
        if self._steps is not None:
            letters += self._steps.take_letters()
        if letters:
            watermark = self._put_letters_aside(letters, int(times[-1]) if count else None)
        else:
            watermark = self._complete(int(times[-1]) if count else None)
        if wait is None and read_nothing and not count and not self.finished:
            wait = now_ns + IDLE_NS
        if not count and watermark <= self._watermark and not self._resends_watermark:
            waits = read_nothing and not self._clock.due and not self._clock.advances_by_clock
            return Polled(None, wait, self.finished, self._fileno() if waits else None)
        self._watermark, self._resends_watermark = watermark, False
        return Polled(Batch(held, order, watermark, 0, None, b"", True), wait, self.finished)

    def _fileno(self) -> int | None:
        """Return the descriptor that becomes readable when the reader has input, if there is one now."""
        waitable = self._abilities.waitable
        return None if waitable is None else waitable.fileno()

    def _at_once(self, reading: Reading, max_rows: int, now_ns: int) -> Polled | None:
        """Treat the usual reading of a plain source, with as little work as possible; return None for any other."""
        rows = reading.rows
        count = len(rows)
        if not count or (count > max_rows and type(rows) is list) or reading.exhausted:
            return None
        times = self._validator.times_if_ordered(rows)
        if times is None:
            return None
        last_ms = int(times[-1])
        order = self._numbers.of(times, rows)
        self._counts.records += count
        self._watermark = watermark = (last_ms, RECORD, self._number, self._numbers.sequence - 1, END)
        if reading.drained and (number := self._fileno()) is not None:
            return Polled(Batch(rows, order, watermark, 0, None, b"", True), now_ns + IDLE_NS, False, number)
        return Polled(Batch(rows, order, watermark, 0, None, b"", True), None, False)

    def _arrived(
        self, now_ns: int, wall_ns: int, max_rows: int, reading: Reading | None = None
    ) -> tuple[Held, Any, int | None, bool]:
        """Return (rows that are due, their times, the instant of the next ones, whether the reader had no data)."""
        read_nothing = False
        wanted = max_rows if not self._pacer.paces else min(max_rows, MAX_ROWS_AHEAD)
        held: Held = []
        times: Any = []
        while not self._exhausted and len(self._clock.due) < wanted:
            if reading is None:
                reading = self._validator.read(wanted - len(self._clock.due), wall_ns)
            read_nothing = not reading.lines
            held, times = self._validator.validated(reading.rows, reading.came_ns or wall_ns)
            if type(held) is list and len(held) > max_rows:  # more than were requested
                self._clock.due.extend(zip(times, held, strict=True))
                held = []
            if reading.exhausted:
                self._exhausted = True
                self._clock.release(END)
            if not (self._pacer.paces and self._clock.replays):
                break
            reading = None  # a row that was read ahead at its time is a reading of its own
        wait: int | None = None
        if not len(held):
            if self._clock.replays and not self._pacer.has_begun:  # another run read it: its time has come once
                count = min(len(self._clock.due), max_rows)
            else:
                count, wait = self._pacer.ready(self._clock.due, now_ns, wall_ns, max_rows)
            taken = [self._clock.due.popleft() for _ in range(count)]
            times, held = [time_ms for time_ms, _ in taken], [row for _, row in taken]
        if self._clock.advances_by_clock and not self._exhausted:
            self._clock.pass_time(now_ns, wall_ns // 1_000_000, has_read=not read_nothing)
        if self._stamp is not None and len(held):
            held = [_stamped(row, self._stamp, wall_ns) for row in as_rows(held)]
        return held, times, wait, read_nothing

    def send(self, batch: Batch, emit: Emit) -> None:
        """Hand a polled batch to the channels that leave this instance."""
        if self._tap is not None and len(batch):
            self._tap(batch.rows, listed(batch.order))
        self._outbox.pass_on(batch, emit)

    @property
    def plan(self) -> StagePlan:
        """Return the plan that it follows now."""
        return self._outbox.plan

    def send_barrier(self, barrier: int, emit: Emit, change: bytes = b"", program: Program | None = None) -> bytes:
        """Begin a checkpoint here, between two polls; return the snapshot of this instance, its position in the input.

        Args:
            change: name of the plan that holds behind the barrier; `program`: the topology with it.
        """
        self._outbox.send_sides(emit)
        snapshot = self.snapshot(() if change else encoded_rows(self.waiting_output(), self._codec))
        self._outbox.send_barrier(barrier, emit, change)
        if program is not None:
            self._outbox.retarget(program.plan)
        return snapshot

    def show(self, taps: Mapping[str, RowTap]) -> None:
        """Give the rows that leave this step to its tap from now on; to none when `taps` has none for it."""
        self._tap = taps.get(self._last_step)
        if self._steps is not None:
            self._steps.show({name: tap for name, tap in taps.items() if name != self._last_step})

    def take_messages(self, *, at_end: bool = False) -> list[str]:
        """Return new messages for users about the input: malformed records, a header."""
        texts = self._validator.bad.take() + (self._validator.bad.rest(self._validator.lines) if at_end else [])
        if self._steps is not None:
            texts += self._steps.reports.take() + (self._steps.reports.rest() if at_end else [])
        return texts

    def drain(self) -> None:
        """Act as if the input had ended here. Rows already read still go out, at once, so the ledger adds up."""
        self._pacer.stop()
        if not self._exhausted:
            self._exhausted = True
            self._clock.release(END)

    def close(self) -> None:
        """Release the resources of the reader and the intake."""
        if self._intake is not None:
            self._intake.close()
        self._reader.close()

    def statistics(self) -> InstanceStatistics:
        """Return the counts so far."""
        counts = self._counted(len(self._clock.due) + len(self._clock.sorting))
        if self._intake is not None:
            self._intake.add_counts_to(counts)
        return InstanceStatistics(
            stage=self.stage,
            index=0,
            steps={self._name: StepCounts(counts.lines, counts.records, 0), **counts.steps},
            source=counts,
            queued_rows=counts.waiting,
            event_time=reached(self._watermark),
            finished=self.finished,
            sent=self._outbox.sent(),
        )

    def snapshot(self, overtaken: Sequence[OvertakenRows] = ()) -> bytes:
        """Encode its progress: lines read, sequence numbers, rows read and not sent, and the pacer's position.

        Args:
            overtaken: rows that the barrier of the snapshot overtakes in its channels.

        The pacer's position lets repeated rows come at once. Spooled rows are not included: a spool does not survive a restart
        yet.
        """
        counts = self._counted(0)
        waiting_rows = [] if self._intake is None else self._intake.waiting_in_memory()
        if self._intake is not None:
            self._intake.add_shed_to(counts)
        due = [*waiting_rows, *self._clock.due]
        lates = [(i, row.by_ms, row.aside) for i, (_, row) in enumerate(due) if type(row) is Late]
        plain = [(time_ms, row.row if type(row) is Late else row) for time_ms, row in due]
        waiting = plain, sorted(self._clock.sorting), lates
        return _ENCODER.encode(
            (
                counts,
                self._clock.newest,
                self._numbers.sequence,
                self._clock.arrivals,
                waiting,
                self._watermark,
                (*self._outbox.snapshot(), overtaken) if overtaken else self._outbox.snapshot(),
                self._pacer.reached,
            )
        )

    def restore(self, snapshot: bytes) -> None:
        """Restore a snapshot; the reader must stand behind the lines that were read then."""
        sent = self._restore_all_but_outbox(snapshot)
        self._outbox.restore(sent.counts)
        self._unsent = sent.overtaken

    def take_unsent(self) -> list[WaitingOutput]:
        """Return, once, the rows that the barrier overtook from which it was restored. Its channels send them first."""
        unsent, self._unsent = self._unsent, []
        return decoded_rows(unsent, self._codec)

    @property
    def sent_end(self) -> Position | None:
        """Return the end that its outputs were given; None: rows may follow."""
        return self._outbox.end

    def _restore_all_but_outbox(self, snapshot: bytes) -> SentState:
        """Restore everything but the outbox, and return the outbox's part."""
        read = _progress_decoder(self._row_type).decode(snapshot)
        (
            counts,
            self._clock.newest,
            self._numbers.sequence,
            self._clock.arrivals,
            (due, sorting, lates),
            self._watermark,
            sent,
        ) = read[:7]
        self._pacer.reached = read[7]
        self._counts, self._validator.lines, self._validator.bad.reasons = (
            counts,
            counts.lines + counts.before,
            counts.malformed,
        )
        if self._steps is not None:
            self._steps.restore(counts.steps)
        self._clock.early, counts.early = counts.early, 0
        for index, by_ms, aside in lates:
            due[index] = (due[index][0], Late(due[index][1], by_ms, aside))
        self._clock.due, self._clock.sorting = deque(due), sorting  # sorted, so a heap
        self.finished = self._exhausted = is_final(self._watermark)
        state: SentState = sent
        return state

    def resume(self, snapshot: bytes, *, anew: bool) -> None:
        """Continue where the source of another run stood; its pacer begins anew.

        Args:
            anew: no step downstream knows its rows: counts begin at zero, and its watermark is sent again.
        """
        sent = self._restore_all_but_outbox(snapshot)
        self._pacer.reached = None
        if anew:
            before = self._validator.lines - len(self._clock.due) - len(self._clock.sorting)
            self._counts = SourceCounts(paced=self._pacer.paces, before=max(0, before))
            self._validator.bad.reasons = {}
            if self._steps is not None:
                self._steps.restore({})
            self._clock.early = 0
            self.finished, self._resends_watermark = False, True
        else:
            self._outbox.restore(sent.counts)
            self._unsent = sent.overtaken

    def _counted(self, waiting: int) -> SourceCounts:
        return msgspec.structs.replace(
            self._counts,
            late=self._counts.late + self._clock.late,
            early=self._clock.early,
            lines=self._validator.lines - self._counts.before,
            malformed=dict(self._validator.bad.reasons),
            waiting=waiting,
            steps={} if self._steps is None else {n: msgspec.structs.replace(c) for n, c in self._steps.counts.items()},
        )

    def _put_letters_aside(self, letters: list[tuple[str, DeadLetter[Any]]], last_ms: int | None) -> Position:
        """Put dead letters behind the records that were sent before them, at their time; return the new watermark."""
        last_ms = max(end_of_time(self._watermark)[0], BEFORE_ALL_MS) if last_ms is None else last_ms
        order = self._numbers.of([last_ms] * len(letters), letters)
        for (side, letter), at in zip(letters, repeat(None) if order is None else order, strict=False):
            self._outbox.put_aside(side, [letter], [at])
        return self._complete(last_ms)

    def _complete(self, last_ms: int | None) -> Position:
        """Return the watermark after records whose last one has this time (None: no records)."""
        if self.finished:
            return final_watermark(reached(self._watermark) if last_ms is None else last_ms)
        watermark = (
            self._watermark if last_ms is None else (last_ms, RECORD, self._number, self._numbers.sequence - 1, END)
        )
        if self._clock.advances_by_clock and (self._intake is None or self._intake.is_empty):
            return max(watermark, self._clock.promise() or watermark)
        return watermark


def _progress_decoder(row: Any) -> "msgspec.msgpack.Decoder[Any]":
    """Return the decoder of a snapshot of a source with rows of this type."""
    waiting = generic(
        tuple, generic(list, generic(tuple, int, row)), generic(list, generic(tuple, int, int, row)), _LATES
    )
    reached = tuple[int, int] | None
    kind = generic(tuple, SourceCounts, int | None, int, int, waiting, Position, SentState, reached)
    return msgspec.msgpack.Decoder(kind)


def _stamped(row: Any, stamp: Callable[[Any, int], Any], wall_ns: int) -> Any:
    """Return a row, late or not, with the time at which it was read."""
    return row._replace(row=stamp(row.row, wall_ns)) if type(row) is Late else stamp(row, wall_ns)


def _put_late_aside(outbox: Outbox, side: str, rows: list[Any], order: Any) -> tuple[list[Any], Any, int]:
    """Return the rows without those that go to the side output of late ones, what goes with them, and the number of these."""
    if not any(type(row) is Late for row in rows):
        return rows, order, 0
    rows, order, aside, aside_order = separated(rows, order)
    outbox.put_aside(side, aside, aside_order)
    return rows, order, len(aside)


_ENCODER = msgspec.msgpack.Encoder()
_LATES = list[tuple[int, int, bool]]

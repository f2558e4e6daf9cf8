"""Optional abilities of readers and writers, each declared as a protocol; an opened connector is asked once what it can do.

`SourceReader` and `SinkWriter` are what every connector must have. A connector that can do more has the methods of one of these
protocols, under exactly these names; it need not inherit from them. `ReaderAbilities.of` and `WriterAbilities.of` look them up when
the connector is opened, and nothing asks again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

from agiledart_dataflow.event_time.event_clock import EventClock
from agiledart_dataflow.plan.connectors import Reading
from agiledart_kernel.errors import AgileDartError

DeliveryCallback = Callable[[AgileDartError | None], None]

# ---- readers


@runtime_checkable
class WaitableReader(Protocol):
    """Reader that has a descriptor to wait for; without one it is asked again after a few milliseconds."""

    def fileno(self) -> int | None:
        """Return the descriptor that becomes readable when there is input; None: there is none at present."""
        ...


@runtime_checkable
class ReportsMalformed(Protocol):
    """Reader that hands out the malformed records themselves, for dead letters."""

    def on_malformed(self, take: Callable[[str, str], None]) -> None:
        """Call `take` with each malformed record from now on: the record as a text, and what is wrong with it."""
        ...


@runtime_checkable
class UsesEventClock(Protocol):
    """Reader that logs the steps of its source's event time."""

    def use_event_clock(self, clock: EventClock) -> None:
        """Follow this clock from now on."""
        ...


@runtime_checkable
class ReadsAhead(Protocol):
    """Reader that may take input although no row can be sent.

    Attributes:
        reads_ahead: it does so.
        lines_ahead: number of lines taken in that way which `read` has not returned yet.
    """

    reads_ahead: bool
    lines_ahead: int

    def read_ahead(self, max_rows: int, wall_ns: int) -> Reading | None:
        """Take input and keep it; return a copy, None when there was none, or no space."""
        ...


@runtime_checkable
class SeekableReader(Protocol):
    """Reader that can be rewound."""

    def position(self) -> bytes:
        """Return the current position."""
        ...

    def seek(self, position: bytes) -> None:
        """Go to a position. Raises `OperationFailed` when the input is not the same any more."""
        ...


@runtime_checkable
class TrimmableReader(Protocol):
    """Reader that keeps input for a rewind until an epoch is committed."""

    def trim(self, position: bytes) -> None:
        """Release the input before the position of a committed epoch."""
        ...


@runtime_checkable
class ResumesByEpoch(Protocol):
    """Reader whose start may differ each time, so that the run records where it began."""

    def saved_by_epochs(self, beginning: bytes, keep: Callable[[bytes], None]) -> None:
        """Start at `beginning`; hand the first position to `keep` when `beginning` is empty."""
        ...


@runtime_checkable
class AcknowledgesInput(Protocol):
    """Reader that confirms rows to their sender. Its attribute `holds` (`HoldsInput`) says when."""

    def receipt(self) -> int:
        """Return a number for all rows that were read so far."""
        ...

    def acknowledge(self, receipt: int) -> None:
        """Confirm the rows up to this receipt: they are on the disk."""
        ...


class HoldsInput(AcknowledgesInput, Protocol):
    """The same reader as one that waits.

    Attributes:
        holds: set where rows go to a log: it confirms nothing before `acknowledge`. Until then each `read` confirms the rows of the
            `read` before it.
    """

    holds: bool


@runtime_checkable
class MayLoseLog(Protocol):
    """Reader that may have continued without the log that held its later input.

    Attributes:
        lost_behind: number of lines behind which it did so; None when it has not.
    """

    lost_behind: int | None


# ---- writers


@runtime_checkable
class WritesColumns(Protocol):
    """Sink that takes batches in columns as they are."""

    def write_columns(self, columns: Any) -> None:
        """Take `Columns` in order. Raises `OperationFailed`."""
        ...


@runtime_checkable
class LimitsRows(Protocol):
    """Sink that does not take rows at any time; backpressure then travels upstream."""

    def ready(self) -> bool:
        """Return whether it takes rows now. While it does not, it gets none and is asked again about 20 times a second."""
        ...


@runtime_checkable
class GivesNotices(Protocol):
    """Sink that has messages for users."""

    def take_notices(self) -> list[str]:
        """Return the new messages."""
        ...


@runtime_checkable
class KeepsRows(Protocol):
    """Sink that keeps its rows in this process.

    Attributes:
        rows: the rows so far; None: it keeps none.
    """

    rows: list[Any] | None


@runtime_checkable
class TransactionalSink(Protocol):
    """Sink whose rows are committed by epoch (two-phase commit)."""

    def prepare(self) -> tuple[int, ...]:
        """End an epoch: make all rows taken so far safe and return the end of each part."""
        ...

    def commit(self, ends: tuple[int, ...], epoch: int) -> None:
        """Commit the rows before these ends, with the epoch that ended there."""
        ...


@runtime_checkable
class EndsLastPart(Protocol):
    """Transactional sink that ends its last part in another way than the parts before."""

    def at_end_of_input(self) -> None:
        """Learn that no row follows; `prepare` comes next."""
        ...


@runtime_checkable
class EmitsAtOnce(Protocol):
    """Transactional sink that may show rows before their epoch is committed.

    Attributes:
        emits_at_once: it does so, and a restart does not abort them.
    """

    emits_at_once: bool


@runtime_checkable
class NamesLog(Protocol):
    """Transactional sink whose rows stay in a log with a name of its own, wherever it is opened.

    Attributes:
        identity: name of the log; the ends of epochs count in it.
    """

    identity: str


@runtime_checkable
class NamesFile(Protocol):
    """Transactional sink whose rows are in files of its node."""

    @property
    def place(self) -> str:
        """Return the files' names and state at the last epoch, for the sink that opens them again."""
        ...


@runtime_checkable
class ConfirmsDelivery(Protocol):
    """Sink that says when rows have arrived."""

    def when_delivered(self, on_delivered: DeliveryCallback) -> None:
        """Call `on_delivered` once, at once or from another thread.

        Its argument is None when all rows taken so far have arrived at their destination, or an error when they never will.
        """
        ...


@runtime_checkable
class NumbersRows(Protocol):
    """Sink that names rows by their number in the run."""

    def resume_at(self, number: int) -> None:
        """Continue at this number: so many rows were written before the restart. Called before the next row."""
        ...


@runtime_checkable
class CountsRejectedRows(Protocol):
    """Sink that goes on without a row that it, or the system behind it, cannot take."""

    def take_rejected(self) -> int:
        """Return how many of the rows taken so far were rejected since the last call."""
        ...


# ---- both


@runtime_checkable
class ReportsConnection(Protocol):
    """Reader or writer with a connection to a system outside."""

    def connection_status(self) -> str:
        """Return what is wrong with the connection, for `status`; empty when nothing is."""
        ...


@dataclass(frozen=True, slots=True)
class ReaderAbilities:
    """A reader once for each ability that it has; None for the others."""

    waitable: WaitableReader | None = None
    malformed: ReportsMalformed | None = None
    event_clock: UsesEventClock | None = None
    ahead: ReadsAhead | None = None
    seekable: SeekableReader | None = None
    trimmable: TrimmableReader | None = None
    by_epoch: ResumesByEpoch | None = None
    acknowledges: AcknowledgesInput | None = None
    lossy: MayLoseLog | None = None
    connection: ReportsConnection | None = None

    @classmethod
    def of(cls, reader: object) -> Self:
        """Return what this reader can do."""
        return cls(
            reader if isinstance(reader, WaitableReader) else None,
            reader if isinstance(reader, ReportsMalformed) else None,
            reader if isinstance(reader, UsesEventClock) else None,
            reader if isinstance(reader, ReadsAhead) else None,
            reader if isinstance(reader, SeekableReader) else None,
            reader if isinstance(reader, TrimmableReader) else None,
            reader if isinstance(reader, ResumesByEpoch) else None,
            reader if isinstance(reader, AcknowledgesInput) else None,
            reader if isinstance(reader, MayLoseLog) else None,
            reader if isinstance(reader, ReportsConnection) else None,
        )


@dataclass(frozen=True, slots=True)
class WriterAbilities:
    """A writer once for each ability that it has; None for the others."""

    columns: WritesColumns | None = None
    limits: LimitsRows | None = None
    notices: GivesNotices | None = None
    keeps_rows: KeepsRows | None = None
    transactional: TransactionalSink | None = None
    last_part: EndsLastPart | None = None
    at_once: EmitsAtOnce | None = None
    log: NamesLog | None = None
    file: NamesFile | None = None
    delivery: ConfirmsDelivery | None = None
    numbers: NumbersRows | None = None
    rejecting: CountsRejectedRows | None = None
    connection: ReportsConnection | None = None

    @classmethod
    def of(cls, writer: object) -> Self:
        """Return what this writer can do."""
        return cls(
            writer if isinstance(writer, WritesColumns) else None,
            writer if isinstance(writer, LimitsRows) else None,
            writer if isinstance(writer, GivesNotices) else None,
            writer if isinstance(writer, KeepsRows) else None,
            writer if isinstance(writer, TransactionalSink) else None,
            writer if isinstance(writer, EndsLastPart) else None,
            writer if isinstance(writer, EmitsAtOnce) else None,
            writer if isinstance(writer, NamesLog) else None,
            writer if isinstance(writer, NamesFile) else None,
            writer if isinstance(writer, ConfirmsDelivery) else None,
            writer if isinstance(writer, NumbersRows) else None,
            writer if isinstance(writer, CountsRejectedRows) else None,
            writer if isinstance(writer, ReportsConnection) else None,
        )

    @property
    def emits_at_once(self) -> bool:
        """Report whether readers may see rows of an epoch that is not committed."""
        return self.at_once is not None and self.at_once.emits_at_once

    @property
    def identity(self) -> str:
        """Name of what the ends of epochs count in: a log, or files that no other sink continues; empty for neither."""
        if self.log is not None and self.log.identity:
            return self.log.identity
        return "" if self.file is None else self.file.place

"""Sinks whose rows are committed by epoch, and how an instance's sink becomes one of them."""

from typing import Protocol, runtime_checkable

from agiledart_connectors.sink_guarantees import ConfirmsDelivery
from agiledart_executor.instances.running_instance import RunningInstance


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


def transactional_sink(writer: object) -> TransactionalSink | None:
    """Return a writer as a transactional sink; None when it is another kind."""
    return writer if isinstance(writer, TransactionalSink) else None


def open_transactional_sink(running: RunningInstance) -> TransactionalSink | None:
    """Return the sink of an instance if its rows are committed by epoch; it stays open until the last epoch is committed."""
    writer = transactional_sink(running.writer)
    running.by_epoch = writer is not None or isinstance(running.writer, ConfirmsDelivery)
    return writer

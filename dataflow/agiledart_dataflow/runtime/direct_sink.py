"""Direct way of rows into a sink: past its inbox, and from a stage's loop without an outbox between."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agiledart_dataflow.plan.connectors import SinkWriter
from agiledart_dataflow.runtime.arrivals import SingleInputArrivals
from agiledart_dataflow.runtime.outbox import Outbox
from agiledart_dataflow.runtime.stage_steps import StageSteps
from agiledart_kernel.errors import OperationFailed


@dataclass(frozen=True)
class DirectSink:
    """Sink as seen by a caller that writes into it directly.

    Attributes:
        step: its name, for errors.
        channel: (edge, upstream instance) by which its rows would come.
        write, count: take rows; add to the number of rows taken.
    """

    step: str
    channel: tuple[int, int]
    write: Callable[[list[Any]], None]
    count: Callable[[int], None]


def direct_sink(
    steps: StageSteps, channel: tuple[int, int], inbox: SingleInputArrivals, writer: SinkWriter
) -> DirectSink:
    """Return the direct way into the sink of an instance that takes rows alone, over one channel, and is not tapped."""
    counted = steps.counted

    def count(rows: int) -> None:
        inbox.count_bypassed(rows)
        counted.rows_in += rows
        counted.rows_out += rows

    return DirectSink(steps.own_step, channel, writer.write, count)


def loop_into(
    write_rows: Callable[[list[Any]], int], sink: DirectSink, inbox: SingleInputArrivals, outbox: Outbox
) -> Callable[[list[Any]], None]:
    """Return a loop for rows that enter an instance, and leave it only into a sink.

    Args:
        write_rows: takes rows through the steps into the sink, and returns how many were written.
        sink: takes the rows.
        inbox, outbox: of the instance; they count the rows.
    """

    def run(rows: list[Any]) -> None:
        try:
            written = write_rows(rows)
        except OperationFailed as error:
            raise OperationFailed(f"{sink.step}: {error}") from None
        inbox.count_bypassed(len(rows))
        outbox.count_bypassed(written)
        sink.count(written)

    return run

"""A channel between two instances of one process: no encoding, a small window, the same credit and counts as over a link."""

from agiledart_dataflow.batch import Batch
from agiledart_dataflow.batch_codec import BatchCodec
from agiledart_dataflow.channels import ReceivingChannel, SendingChannel
from agiledart_executor.data_links import try_rows
from agiledart_executor.host import InstanceHost
from agiledart_executor.running import SOURCE_ROWS, OutputEnd, Running

TRIED_FRAMES = 2
"""Frames of a channel that are encoded and decoded to see whether they could travel."""

LOCAL_WINDOW_FRAMES = 2
"""Frames under way. There is no way to fill; what waits only takes memory, and both ends have one core."""


def local_output(
    host: InstanceHost,
    running: Running,
    target_running: Running,
    way: tuple[int, int],
    codec: BatchCodec,
    *,
    lazy_marks: bool,
) -> OutputEnd:
    """A channel within this process: no encoding, the same credit.

    The first rows go through the codec all the same: a step whose rows are not what it says is told wherever it runs.
    """
    edge, target = way
    untried = TRIED_FRAMES

    def deliver(batch: Batch, first_row: int, channel: SendingChannel) -> None:
        nonlocal untried
        if untried and len(batch.held):
            untried -= 1
            try_rows(codec, batch, running.name)
        host.receive(target_running, edge, running.index, first_row, batch)

    end = target_running.inputs[edge, running.index]
    end.channel = ReceivingChannel(LOCAL_WINDOW_FRAMES)
    end.acknowledge = lambda frames, marks: host.acknowledged(running, edge, target, frames, marks)
    channel = SendingChannel(LOCAL_WINDOW_FRAMES, bound_rows=SOURCE_ROWS, lazy_marks=lazy_marks)
    return OutputEnd(channel, deliver)

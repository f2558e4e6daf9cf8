"""Channel between two instances of one process: no encoding, a small window, the same credit and counts as over a link."""

from agiledart_dataflow.counts.key_sample import EVERY
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.runtime.channels import ReceivingChannel, SendingChannel
from agiledart_executor.channels.data_links import try_rows
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.running_instance import SOURCE_ROWS, OutputEnd, RunningInstance

TRIED_FRAMES = 2
"""First frames of a channel that are encoded and decoded, to see whether they could travel."""

LOCAL_WINDOW_FRAMES = 2
"""Frames in flight. A larger window would only take memory: no link needs filling, and both ends share one core."""


class LocalChannelEnd(OutputEnd):
    """Upstream end of a channel within this process.

    Where no frame waits, rows go to the target instance as a call (operator chaining). Otherwise they are frames, with the same
    credit and counts as over a link.
    """

    def __init__(
        self,
        host: InstanceHost,
        running: RunningInstance,
        target: RunningInstance,
        edge: int,
        channel: SendingChannel,
        codec: BatchCodec,
    ) -> None:
        super().__init__(channel, self._deliver)
        self._host, self._running, self._target, self._edge = host, running, target, edge
        self._codec = codec
        self._input = target.inputs[edge, running.index]
        self._untried = TRIED_FRAMES

    def emit(self, edge: int, target: int, batch: Batch) -> None:
        if not (
            len(batch.held)
            and not self._untried
            and self._input.waiting is None
            and self.channel.may_bypass(batch.watermark)
            and self._host.pass_through(self._target, edge, self._running.index, batch)
        ):
            super().emit(edge, target, batch)
        elif self._target.keys is not None and not self._host.calls % EVERY:
            self._target.keys.look(edge, batch.held)

    def _deliver(self, batch: Batch, first_row: int, channel: SendingChannel) -> None:
        if self._untried and len(batch.held):
            self._untried -= 1
            channel.learn_row_bytes(len(batch.held), try_rows(self._codec, batch, self._running.name))
        self._host.receive(self._target, self._edge, self._running.index, channel.last_number, first_row, batch)


def local_output(
    host: InstanceHost,
    running: RunningInstance,
    target_running: RunningInstance,
    edge_target: tuple[int, int],
    codec: BatchCodec,
    *,
    lazy_watermarks: bool,
) -> OutputEnd:
    """Make a channel within this process: no encoding, the same credit.

    The first rows go through the codec all the same. So a step whose rows have another type than it declares fails wherever it
    runs.
    """
    edge, target = edge_target
    end = target_running.inputs[edge, running.index]
    end.channel = ReceivingChannel(LOCAL_WINDOW_FRAMES)

    def acknowledge(frames: int, watermarks: int) -> None:
        host.acknowledged(running, edge, target, frames, watermarks, end.channel.frame_rows)

    end.acknowledge = acknowledge
    channel = SendingChannel(
        LOCAL_WINDOW_FRAMES,
        bound_rows=SOURCE_ROWS,
        lazy_watermarks=lazy_watermarks,
        paced=True,
        overtakes=codec.carries == "positions",
    )
    return LocalChannelEnd(host, running, target_running, edge, channel, codec)

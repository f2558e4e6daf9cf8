"""Data frames between executors: one TLS link for each pair of executors and direction of dial, all channels on it.

The upstream end dials. DATA frames go down, ACK frames come back. A link may be lost: the channels go over to the next one, and
what nobody has acknowledged goes again (`resending`, in the runtime). A frame is taken only from the node that the plan
names for its source instance, so an admitted executor can't feed rows into a channel that isn't its own.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import NamedTuple

from agiledart_connectors.codecs.columns_import import PROCESS_IMPORT, ColumnsImport
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.batch_codec import BatchCodec, ColumnsNotReady
from agiledart_dataflow.plan.stage_plan import member
from agiledart_dataflow.runtime.channels import SendingChannel
from agiledart_dataflow.runtime.resending import Unacknowledged
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.running_instance import InputEnd, OutputEnd, RunningInstance
from agiledart_kernel.errors import RemoteProtocolError, UserCodeError
from agiledart_kernel.frames import (
    BARRIER,
    DATA_HEADER_BYTES,
    PUNCTUATION_ONLY,
    ROWS_POSITION,
    Acknowledgement,
    DataHeader,
    FrameKind,
    channel_of,
    rows_of_channel,
)
from agiledart_kernel.limits import LARGE_FRAME_BYTES, MAX_BATCH_BYTES, MAX_DATA_FRAME_BYTES
from agiledart_kernel.node_id import NodeId
from agiledart_transport.link import DeferFrame, Link

EdgeEnds = tuple[int, int, int, int]
"""Of an edge: source stage, its term, target stage, its term."""

_DATA = int(FrameKind.DATA)  # a member of an enumeration costs a look-up of its own each time


class ChannelSender:
    """The way out of one channel to another process.

    Args:
        link: to the executor of the target instance. One that is closed takes frames and does nothing: they are kept for the next.
        header: of this channel; sequence, rows and flags change with each frame.
        codec: of the edge's rows.
        step: name for messages to the user when a row cannot travel.

    Attributes:
        kept: what was sent and is not acknowledged, and what the link did not take yet.
    """

    def __init__(self, link: Link, header: DataHeader, codec: BatchCodec, step: str) -> None:
        self.link, self._codec, self._step = link, codec, step
        self._header, self._header_parts = header, header.bytes_around_position()
        self.kept = Unacknowledged()

    def ready(self) -> bool:
        """Does the link take a frame now? It is shared by many channels, whose windows together may be larger than what
        a link lets pile up for a peer that does not read. Sends first what waits for the link.
        """
        kept, link = self.kept, self.link
        while kept.line and link.writable:
            if (body := kept.take()) is None:
                return False
            link.send(_DATA, body)
        return link.writable and kept.has_space and not kept.line

    def move(self, link: Link) -> None:
        """Go on over another link to the same executor, beginning with what is not acknowledged."""
        self.link = link
        self.kept.begin_again()
        self.ready()

    def __call__(self, batch: Batch, first_row: int, channel: SendingChannel) -> None:
        """Encode and send one frame; more than one when its rows are larger than frames may be."""
        number = channel.last_number
        if batch.barrier:
            self._put(number, first_row, 0, self._codec.encode(batch), batch.barrier)
            return
        if not len(batch.held):
            self._put(number, first_row, 0, self._codec.encode(batch), 0)
            return
        try:
            body = self._codec.encode(batch)
            if len(body) < MAX_BATCH_BYTES and not self.kept.line and self.link.writable:  # the usual case
                rows = len(batch.held)
                channel.learn_frame_size(rows, len(body), columns=type(batch.held) is not list)
                before, behind = self._header_parts
                whole = b"".join((before, ROWS_POSITION.pack(number, first_row, rows), behind, body))
                self.kept.sends(number, whole)
                self.link.send(_DATA, whole)
                return
            pieces = self._codec.encode_within(batch, body=body)
        except (TypeError, ValueError, OverflowError) as error:
            raise UserCodeError(f"{self._step}: a row cannot travel to another process: {error}") from None
        first, body = pieces[0]
        channel.learn_frame_size(len(first.held), len(body), columns=type(batch.held) is not list)
        channel.frames_sent += len(pieces) - 1
        for piece, body in pieces:
            if len(body) > MAX_DATA_FRAME_BYTES - DATA_HEADER_BYTES:
                raise UserCodeError(f"{self._step}: one row has {len(body):,} bytes; at most 4 MiB can travel")
            self._put(number, first_row, len(piece.held), body, 0)
            number += 1
            first_row += len(piece.held)

    def _put(self, number: int, first_row: int, rows: int, body: bytes, barrier: int) -> None:
        """Send a frame behind those that wait for the link."""
        flags = 0 if rows else BARRIER if barrier else PUNCTUATION_ONLY
        header = self._header._replace(frame=number, sequence=first_row, rows=rows, flags=flags, epoch=barrier)
        self.kept.line_up(number, header.pack() + body, is_watermark=flags == PUNCTUATION_ONLY)
        self.ready()


class LinkEnd(OutputEnd):
    """Upstream end of a channel to another process."""

    def __init__(self, sender: ChannelSender, *, lazy_watermarks: bool) -> None:
        super().__init__(SendingChannel(lazy_watermarks=lazy_watermarks, paced=True), sender, sender.ready)
        self.sender = sender
        self.closed: Callable[[], None] | None = None

    def emit(self, edge: int, target: int, batch: Batch) -> None:
        """Send a batch; the sender is not asked first where its link takes frames and nothing waits for it."""
        sender, channel = self.sender, self.channel
        first_row, kept = channel.rows_sent, sender.kept
        if kept.has_space and not kept.line and sender.link.writable and channel.passes(batch):
            sender(batch, first_row, channel)
        else:
            super().emit(edge, target, batch)

    def close(self) -> None:
        if self.closed is not None:
            self.closed()

    @property
    def frames_resent(self) -> int:
        """Frames that went again over another link."""
        return self.sender.kept.resent

    def acknowledged(self, frames: int, watermarks: int, frame_rows: int = 0) -> None:
        """The other end has taken frames: they need not be kept, and others that wait may go."""
        kept = self.sender.kept
        kept.acknowledge(frames, watermarks)
        super().acknowledged(frames, watermarks, frame_rows)
        if kept.line:
            self.sender.ready()


def try_rows(codec: BatchCodec, batch: Batch, step: str) -> None:
    """Raise `UserCodeError` unless these rows are what the step says."""
    try:
        for _, body in codec.encode_within(batch):
            codec.decode(body)
    except (RemoteProtocolError, TypeError, ValueError, OverflowError) as error:
        raise UserCodeError(f"{step}: its rows are not what it says: {error}") from None


class DataPort:
    """Brings frames that come in to the instances of one application.

    Args:
        number, life: the application's, and the life of its plan that these instances have.
        host: the instances.
        codecs: by edge.
        ends: (source stage, its term, target stage, its term) of an edge; raises RemoteProtocolError.
        node_of: which node runs the source instance of a channel (edge, index).
        sender_of: name of the stage that an edge leaves, for messages.
        columns: imports what columns need; until then a link that brings some is not read.
    """

    def __init__(
        self,
        number: int,
        attempt: int,
        host: InstanceHost,
        codecs: dict[int, BatchCodec],
        ends: Callable[[int], EdgeEnds],
        node_of: Callable[[int, int], NodeId],
        sender_of: Callable[[int], str],
        columns: ColumnsImport = PROCESS_IMPORT,
    ) -> None:
        self._number, self._attempt, self._host, self._codecs = number, attempt, host, codecs
        self._columns = columns
        self._ends, self._node_of, self._sender_of = ends, node_of, sender_of
        self._incoming_channels: dict[
            tuple[int, int, int], _IncomingChannel
        ] = {}  # (edge, source, target), judged: no more than there are
        self._begun: dict[int, int] = {}  # in which order open links began to bring frames
        self._beginnings = itertools.count()
        self._last: _IncomingChannel | None = None  # of the frame before, which most often is of the same channel

    def data(self, link: Link, kind: int, body: bytes) -> None:
        """A frame on an accepted link.

        Raises:
            RemoteProtocolError: which closes the link.
            NotNow: it brings columns, and what they need is still being imported; reading goes on afterwards.
        """
        if kind != _DATA:
            raise RemoteProtocolError("kind", "only DATA frames are taken here")
        route = self._last
        if route is not None and route.link is link and (place := rows_of_channel(body, route.channel)) is not None:
            (number, first_row, rows), barrier = place, 0
        else:
            route, header = self._verified_frame(link, body)
            number, first_row, rows = header.frame, header.sequence, header.rows
            barrier = header.epoch if header.flags == BARRIER else 0
        came = route.end.channel
        if number == came.frames + came.watermarks:
            self._take(route, link, number, first_row, rows, barrier, body)
        else:
            self._out_of_order(route, link, number, body)
        if route.end.early.frames:
            self._take_early(route, link)

    def ended(self, link: Link) -> None:
        """A link is closed; its channels go on over another one."""
        self._begun.pop(link.number, None)

    def _out_of_order(self, route: "_IncomingChannel", link: Link, number: int, body: bytes) -> None:
        """Drop a frame that has come before, since its sender has not heard of it; keep one that comes early."""
        if route.end.early.take_early(number, route.end.channel.expected, body):
            route.end.repeat_acknowledgement()

    def _take_early(self, route: "_IncomingChannel", link: Link) -> None:
        """Take frames that came before their turn and whose turn it is now."""
        came, early = route.end.channel, route.end.early
        while (body := early.frames.get(came.expected)) is not None:
            header = DataHeader.unpack(body)
            barrier = header.epoch if header.flags == BARRIER else 0
            self._take(route, link, header.frame, header.sequence, header.rows, barrier, body)
            early.forget(header.frame)

    def _take(
        self, route: "_IncomingChannel", link: Link, number: int, first_row: int, rows: int, barrier: int, body: bytes
    ) -> None:
        """Hand a frame over whose turn it is."""
        try:
            rest = memoryview(body)[DATA_HEADER_BYTES:]
            batch = route.codec.decode_barrier(rest) if barrier else route.codec.decode(rest, self._columns.has_ended)
        except ColumnsNotReady:
            self._read_later(link)
            raise DeferFrame from None
        except RemoteProtocolError as error:
            # The sender runs the same user code: a step there makes other rows than it says, which is for the user to mend.
            route.end.channel.accept(number, first_row, rows, barrier=barrier != 0)
            self._host.fail(route.running, f"{self._sender_of(route.edge)}: its rows are not what it says: {error}")
            return
        if len(batch.held) != rows:
            raise RemoteProtocolError("form", f"{len(batch)} rows where the header says {rows}")
        if barrier:
            batch.barrier = barrier
        if len(body) > LARGE_FRAME_BYTES:
            route.end.channel.acknowledge_next()
        self._host.receive(route.running, route.edge, route.source, number, first_row, batch, is_last=not link.has_more)

    def _read_later(self, link: Link) -> None:
        """A link that reads no more goes on when what columns need is there."""
        loop = asyncio.get_running_loop()

        def read_on() -> None:
            try:
                loop.call_soon_threadsafe(link.resume_reading)
            except RuntimeError:  # the process ends, and its loop is closed
                return

        self._columns.call_when_done(read_on)

    def _verified_frame(self, link: Link, body: bytes) -> tuple["_IncomingChannel", DataHeader]:
        """Any frame's route and header; raises RemoteProtocolError."""
        header = DataHeader.unpack(body)
        if header.application != self._number:
            raise RemoteProtocolError("channel", "a frame of another application")
        if header.attempt != self._attempt:
            raise RemoteProtocolError("life", f"a frame of life {header.attempt} where life {self._attempt} runs")
        place = (
            header.edge,
            member(header.source_generation, header.source),
            member(header.target_generation, header.target),
        )
        channel = channel_of(body)
        route = self._incoming_channels.get(place)
        if route is None or route.link is not link or route.channel != channel:
            route = self._incoming_channels[place] = self._verify_channel(link, header, channel)
        self._last = route
        return route, header

    def _verify_channel(self, link: Link, header: DataHeader, channel: bytes) -> "_IncomingChannel":
        """Judge the first frame of a channel; raises RemoteProtocolError when it may not come over this link."""
        codec = self._codecs.get(header.edge)
        if codec is None:
            raise RemoteProtocolError("channel", f"no edge {header.edge}")
        source, target = (
            member(header.source_generation, header.source),
            member(header.target_generation, header.target),
        )
        if self._node_of(header.edge, source) != link.peer.agent_id:
            reason = "channel" if header.source_generation == self._ends(header.edge)[1] else "term"
            raise RemoteProtocolError(
                reason, f"instance {header.source} of term {header.source_generation} does not run there"
            )
        _, source_generation, stage, target_generation = self._ends(header.edge)
        running = self._host.running.get((stage, target))
        end = None if running is None else running.inputs.get((header.edge, source))
        if running is None or end is None:  # of a term that has ended here, or of which nobody has told
            reason = (
                "channel"
                if (header.source_generation, header.target_generation) == (source_generation, target_generation)
                else "term"
            )
            raise RemoteProtocolError(
                reason,
                f"no channel {header.edge} from {header.source} of term {header.source_generation} to {header.target} of"
                f" {header.target_generation}",
            )
        before = end.acknowledge
        if link.number not in self._begun:
            self._begun[link.number] = next(self._beginnings)
        if not isinstance(before, Acknowledger) or self._begun.get(before.link.number, -1) < self._begun[link.number]:
            end.acknowledge = Acknowledger(link, header, end)
            if isinstance(before, Acknowledger):
                before.link.close("stalled")  # its other end has gone over to this one
        return _IncomingChannel(link, channel, header.edge, source, codec, running, end)


class _IncomingChannel(NamedTuple):
    """Where the frames of a channel go that came over a link and may."""

    link: Link
    channel: bytes
    edge: int
    source: int
    codec: BatchCodec
    running: RunningInstance
    end: InputEnd


class Acknowledger:
    """Tells the upstream end of one channel what was taken."""

    def __init__(self, link: Link, header: DataHeader, end: InputEnd) -> None:
        self.link, self._end = link, end
        ends = (header.edge, header.source, header.source_generation, header.target, header.target_generation)
        self._template = Acknowledgement(header.application, header.attempt, *ends, 0, 0, 0)

    def __call__(self, frames: int, watermarks: int) -> None:
        """Totals since the first frame."""
        told = self._template._replace(frame_rows=self._end.channel.frame_rows, frames=frames, watermarks=watermarks)
        self.link.send(FrameKind.ACK, told.pack())


def take_acknowledgement(
    host: InstanceHost, number: int, attempt: int, ends: Callable[[int], EdgeEnds], kind: int, body: bytes
) -> None:
    """A frame on a dialled link; raises RemoteProtocolError, for one of another life or term too: it counts in none."""
    if kind != FrameKind.ACK:
        raise RemoteProtocolError("kind", "only acknowledgements come back on this link")
    told = Acknowledgement.unpack(body)
    if told.application != number or told.attempt != attempt:
        raise RemoteProtocolError("life", f"an acknowledgement of life {told.attempt} where life {attempt} runs")
    stage, source_generation, _, target_generation = ends(told.edge)
    source, target = member(told.source_generation, told.source), member(told.target_generation, told.target)
    running: RunningInstance | None = host.running.get((stage, source))
    if running is None or (told.edge, target) not in running.outputs:
        if running is not None and any(edge == told.edge and other > target for edge, other in running.outputs):
            return  # said twice, of a channel whose term has ended
        if (told.source_generation, told.target_generation) != (source_generation, target_generation):
            raise RemoteProtocolError(
                "term", f"an acknowledgement from term {told.target_generation} to {told.source_generation}"
            )
        raise RemoteProtocolError("channel", f"instance {told.source} does not run here")
    host.acknowledged(running, told.edge, target, told.frames, told.watermarks, told.frame_rows)

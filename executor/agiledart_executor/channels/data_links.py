"""Data frames between executors: one TLS link for each pair of executors and direction of dial carries all channels.

The upstream end dials. DATA frames go downstream, ACK frames come back. When a link is lost, its channels move to the next one and
send their unacknowledged frames again (`resending`, in the runtime). The port accepts a frame only from the node that the plan
names for its source instance. So an admitted executor cannot feed rows into another executor's channel.
"""

import asyncio
import itertools
import time
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
from agiledart_executor.instances.source_rest import FEW_ROWS, SourceRest
from agiledart_kernel.errors import RemoteProtocolError, UserCodeError
from agiledart_kernel.frames import (
    BARRIER,
    DATA_HEADER_BYTES,
    OVERTAKING_BARRIER,
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
"""Both ends of an edge: source stage, its generation, target stage, its generation."""

_DATA = int(FrameKind.DATA)  # an enumeration member would cost a look-up for each frame


class ChannelSender:
    """Sender of the frames of one channel to another process.

    Args:
        link: to the executor of the target instance. A closed link accepts frames and drops them; `kept` holds them for the next.
        header: of this channel; sequence, rows and flags change with each frame.
        codec: of the edge's rows.
        step: name for messages to the user when a row cannot travel.

    Attributes:
        kept: frames that are sent but not acknowledged, and frames that wait for the link.
    """

    def __init__(self, link: Link, header: DataHeader, codec: BatchCodec, step: str) -> None:
        self.link, self._codec, self._step = link, codec, step
        self._header, self._header_parts = header, header.bytes_outside_position()
        self.kept = Unacknowledged()

    def ready(self) -> bool:
        """Send the frames that wait for the link, then return True when it accepts one more.

        Many channels share the link. Their windows together may be larger than the backlog that a link allows for a peer that
        does not read.
        """
        kept, link = self.kept, self.link
        while kept.line and link.writable:
            if (body := kept.take()) is None:
                return False
            link.send(_DATA, body)
        return link.writable and kept.has_space and not kept.line

    def move(self, link: Link) -> None:
        """Continue over another link to the same executor, beginning with the unacknowledged frames."""
        self.link = link
        self.kept.begin_again()
        self.ready()

    def __call__(self, batch: Batch, first_row: int, channel: SendingChannel) -> None:
        """Encode and send a batch as one frame, or as several when its rows exceed the frame limit."""
        number = channel.last_number
        if batch.barrier:
            flags = OVERTAKING_BARRIER if batch.overtakes else BARRIER
            self._put(number, first_row, 0, self._codec.encode(batch), flags, batch.barrier)
            return
        if not len(batch.held):
            self._put(number, first_row, 0, self._codec.encode(batch), PUNCTUATION_ONLY)
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

    def _put(self, number: int, first_row: int, rows: int, body: bytes, flags: int, barrier: int = 0) -> None:
        """Queue a frame behind those that wait for the link, and send what the link accepts."""
        header = self._header._replace(frame=number, sequence=first_row, rows=rows, flags=flags, epoch=barrier)
        self.kept.line_up(number, header.pack() + body, is_watermark=flags & PUNCTUATION_ONLY > 0)
        self.ready()


class LinkEnd(OutputEnd):
    """Upstream end of a channel to another process."""

    def __init__(self, sender: ChannelSender, *, lazy_watermarks: bool, overtakes: bool = False) -> None:
        """Make the end of a channel; `overtakes`: barriers may overtake rows, because the receiver merges by position."""
        channel = SendingChannel(lazy_watermarks=lazy_watermarks, paced=True, overtakes=overtakes)
        super().__init__(channel, sender, sender.ready)
        self.sender = sender
        self.closed: Callable[[], None] | None = None

    def emit(self, edge: int, target: int, batch: Batch) -> None:
        """Send a batch, at once where the link accepts frames and none waits for it."""
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
        """Number of frames that were sent again over another link."""
        return self.sender.kept.resent

    def acknowledged(self, frames: int, watermarks: int, frame_rows: int = 0) -> None:
        """Drop the frames that the other end acknowledges and send frames that wait."""
        kept = self.sender.kept
        kept.acknowledge(frames, watermarks)
        super().acknowledged(frames, watermarks, frame_rows)
        if kept.line:
            self.sender.ready()


def try_rows(codec: BatchCodec, batch: Batch, step: str) -> int:
    """Return the bytes of encoded rows. Raises `UserCodeError` unless they have the type that the step declares."""
    size = 0
    try:
        for _, body in codec.encode_within(batch):
            codec.decode(body)
            size += len(body)
    except (RemoteProtocolError, TypeError, ValueError, OverflowError) as error:
        raise UserCodeError(f"{step}: its rows are not of the type that it declares: {error}") from None
    return size


class DataPort:
    """Receiver of data frames: verifies them and hands them to the instances of one application.

    Args:
        number, attempt: the application's number, and the attempt of its plan that these instances belong to.
        host: of the instances.
        codecs: by edge.
        ends: returns (source stage, its generation, target stage, its generation) of an edge; raises RemoteProtocolError.
        node_of: returns the node that runs the source instance of a channel (edge, index).
        sender_of: returns the name of the stage that an edge leaves, for messages.
        columns: imports the libraries for columns; a link that brings columns is not read until that is done.
        rest: asks the sources to rest while frames come faster than they are taken; None: sources never rest.
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
        rest: SourceRest | None = None,
    ) -> None:
        self._number, self._attempt, self._host, self._codecs = number, attempt, host, codecs
        self._columns, self._rest = columns, rest
        self._ends, self._node_of, self._sender_of = ends, node_of, sender_of
        self._incoming_channels: dict[
            tuple[int, int, int], _IncomingChannel
        ] = {}  # (edge, source, target), verified, so the plan bounds their number
        self._begun: dict[int, int] = {}  # link number → order in which open links began to bring frames
        self._beginnings = itertools.count()
        self._verified: dict[bytes, _IncomingChannel] = {}  # the same by the bytes that their headers have in common

    def data(self, link: Link, kind: int, body: bytes) -> None:
        """Take a frame from an accepted link.

        Raises:
            RemoteProtocolError: the frame is invalid; the link closes.
            DeferFrame: the frame brings columns whose libraries are still being imported; reading continues afterwards.
        """
        if kind != _DATA:
            raise RemoteProtocolError("kind", "this port accepts only DATA frames")
        channel = self._verified.get(channel_of(body))
        if (
            channel is not None
            and channel.link is link
            and (numbers := rows_of_channel(body, channel.channel)) is not None
        ):
            (number, first_row, rows), barrier = numbers, None
        else:
            channel, header = self._verified_frame(link, body)
            number, first_row, rows = header.frame, header.sequence, header.rows
            barrier = barrier_mark(header)
        received = channel.end.channel
        if number == received.frames + received.watermarks:
            self._take(channel, link, number, first_row, rows, barrier, body)
        else:
            self._out_of_order(channel, link, number, body)
        if channel.end.early.frames:
            self._take_early(channel, link)

    def ended(self, link: Link) -> None:
        """Forget a closed link; its channels go on over another one."""
        self._begun.pop(link.number, None)

    def _out_of_order(self, route: "_IncomingChannel", link: Link, number: int, body: bytes) -> None:
        """Keep a frame that came early; drop a duplicate and acknowledge it again, because its sender missed the first time."""
        if route.end.early.take_early(number, route.end.channel.expected, body):
            route.end.repeat_acknowledgement()

    def _take_early(self, route: "_IncomingChannel", link: Link) -> None:
        """Take the early frames that are next in sequence now."""
        received, early = route.end.channel, route.end.early
        while (body := early.frames.get(received.expected)) is not None:
            header = DataHeader.unpack(body)
            barrier = barrier_mark(header)
            self._take(route, link, header.frame, header.sequence, header.rows, barrier, body)
            early.forget(header.frame)

    def _take(
        self,
        route: "_IncomingChannel",
        link: Link,
        number: int,
        first_row: int,
        rows: int,
        barrier: "BarrierMark | None",
        body: bytes,
    ) -> None:
        """Decode the next frame in sequence and hand it to its instance."""
        try:
            rest = memoryview(body)[DATA_HEADER_BYTES:]
            batch = (
                route.codec.decode(rest, self._columns.has_ended)
                if barrier is None
                else route.codec.decode_barrier(rest)
            )
        except ColumnsNotReady:
            self._read_later(link)
            raise DeferFrame from None
        except RemoteProtocolError as error:
            # The sender runs the same user code, so a step there makes rows of another type than it declares: the user's error.
            route.end.channel.accept(number, first_row, rows, barrier=barrier is not None)
            self._host.fail(
                route.running, f"{self._sender_of(route.edge)}: its rows are not of the type that it declares: {error}"
            )
            return
        if len(batch.held) != rows:
            raise RemoteProtocolError("form", f"{len(batch)} rows where the header says {rows}")
        if barrier is not None:
            batch.barrier, batch.overtakes = barrier
        if len(body) > LARGE_FRAME_BYTES:
            route.end.channel.acknowledge_next()
        if (sources := self._rest) is not None and rows:
            sources.frames += 1
            if route.end.read != sources.reads:
                route.end.read = sources.reads
            elif rows <= FEW_ROWS:
                sources.unread += 1
        self._host.receive(route.running, route.edge, route.source, number, first_row, batch, is_last=not link.has_more)

    def _read_later(self, link: Link) -> None:
        """Resume reading from a deferred link once the libraries for columns are imported."""
        loop = asyncio.get_running_loop()

        def read_on() -> None:
            try:
                loop.call_soon_threadsafe(link.resume_reading)
            except RuntimeError:  # the process ends, and its loop is closed
                return

        self._columns.call_when_done(read_on)

    def _verified_frame(self, link: Link, body: bytes) -> tuple["_IncomingChannel", DataHeader]:
        """Return the channel and header of any frame; raises RemoteProtocolError."""
        header = DataHeader.unpack(body)
        if header.application != self._number:
            raise RemoteProtocolError("channel", "a frame of another application")
        if header.attempt != self._attempt:
            raise RemoteProtocolError(
                "attempt", f"a frame of attempt {header.attempt} where attempt {self._attempt} runs"
            )
        place = (
            header.edge,
            member(header.source_generation, header.source),
            member(header.target_generation, header.target),
        )
        number = channel_of(body)
        incoming = self._incoming_channels.get(place)
        if incoming is None or incoming.link is not link or incoming.channel != number:
            if incoming is not None:
                self._verified.pop(incoming.channel, None)
            incoming = self._incoming_channels[place] = self._verify_channel(link, header, number)
            self._verified[number] = incoming
        return incoming, header

    def _verify_channel(self, link: Link, header: DataHeader, channel: bytes) -> "_IncomingChannel":
        """Verify the first frame of a channel; raises RemoteProtocolError when it must not come over this link."""
        codec = self._codecs.get(header.edge)
        if codec is None:
            raise RemoteProtocolError("channel", f"no edge {header.edge}")
        source, target = (
            member(header.source_generation, header.source),
            member(header.target_generation, header.target),
        )
        if self._node_of(header.edge, source) != link.peer.agent_id:
            reason = "channel" if header.source_generation == self._ends(header.edge)[1] else "generation"
            raise RemoteProtocolError(
                reason, f"instance {header.source} of generation {header.source_generation} does not run there"
            )
        _, source_generation, stage, target_generation = self._ends(header.edge)
        running = self._host.running.get((stage, target))
        end = None if running is None else running.inputs.get((header.edge, source))
        if running is None or end is None:  # the generation has ended here, or is not known here yet
            reason = (
                "channel"
                if (header.source_generation, header.target_generation) == (source_generation, target_generation)
                else "generation"
            )
            raise RemoteProtocolError(
                reason,
                f"no channel {header.edge} from instance {header.source} of generation {header.source_generation}"
                f" to instance {header.target} of generation {header.target_generation}",
            )
        before = end.acknowledge
        if link.number not in self._begun:
            self._begun[link.number] = next(self._beginnings)
        if not isinstance(before, Acknowledger) or self._begun.get(before.link.number, -1) < self._begun[link.number]:
            end.acknowledge = Acknowledger(link, header, end, self._rest)
            if isinstance(before, Acknowledger):
                before.link.close("stalled")  # the sender has moved to the new link
        return _IncomingChannel(link, channel, header.edge, source, codec, running, end)


class BarrierMark(NamedTuple):
    """Barrier in a frame: its number, and whether it has overtaken rows."""

    number: int
    overtakes: bool


def barrier_mark(header: DataHeader) -> BarrierMark | None:
    """Return the barrier that a frame is; None for one with rows or a watermark."""
    return BarrierMark(header.epoch, header.flags == OVERTAKING_BARRIER) if header.flags & BARRIER else None


class _IncomingChannel(NamedTuple):
    """Verified channel on one link: the codec and the instance end for its frames."""

    link: Link
    channel: bytes
    edge: int
    source: int
    codec: BatchCodec
    running: RunningInstance
    end: InputEnd


class Acknowledger:
    """Sender of the acknowledgements of one channel to its upstream end."""

    def __init__(self, link: Link, header: DataHeader, end: InputEnd, rest: SourceRest | None = None) -> None:
        self.link, self._end, self._rest = link, end, rest
        ends = (header.edge, header.source, header.source_generation, header.target, header.target_generation)
        self._template = Acknowledgement(header.application, header.attempt, *ends, 0, 0, 0)

    def __call__(self, frames: int, watermarks: int) -> None:
        """Send an acknowledgement; both arguments are totals since the first frame."""
        acknowledgement = self._template._replace(
            frame_rows=self._end.channel.frame_rows, frames=frames, watermarks=watermarks, rest=self._rest_units()
        )
        self.link.send(FrameKind.ACK, acknowledgement.pack())

    def _rest_units(self) -> int:
        """Return the rest that sources upstream are to take."""
        if self._rest is None:
            return 0
        now = time.monotonic_ns()
        self._rest.look(now)
        return self._rest.units_left(now)


def take_acknowledgement(
    host: InstanceHost, number: int, attempt: int, ends: Callable[[int], EdgeEnds], kind: int, body: bytes
) -> None:
    """Handle a frame from a dialled link: credit the channel that it acknowledges.

    Raises:
        RemoteProtocolError: the frame is no valid acknowledgement, or belongs to another attempt or generation.
    """
    if kind != FrameKind.ACK:
        raise RemoteProtocolError("kind", "only acknowledgements come back on this link")
    ack = Acknowledgement.unpack(body)
    if ack.application != number or ack.attempt != attempt:
        raise RemoteProtocolError(
            "attempt", f"an acknowledgement of attempt {ack.attempt} where attempt {attempt} runs"
        )
    stage, source_generation, _, target_generation = ends(ack.edge)
    source, target = member(ack.source_generation, ack.source), member(ack.target_generation, ack.target)
    running: RunningInstance | None = host.running.get((stage, source))
    if running is None or (ack.edge, target) not in running.outputs:
        if running is not None and any(
            edge == ack.edge and later_target > target for edge, later_target in running.outputs
        ):
            return  # a duplicate, of a channel whose generation has ended
        if (ack.source_generation, ack.target_generation) != (source_generation, target_generation):
            raise RemoteProtocolError(
                "generation", f"an acknowledgement from generation {ack.target_generation} to {ack.source_generation}"
            )
        raise RemoteProtocolError("channel", f"instance {ack.source} does not run here")
    if ack.rest:
        host.rest.receive_request(ack.rest, time.monotonic_ns())
    host.acknowledged(running, ack.edge, target, ack.frames, ack.watermarks, ack.frame_rows)

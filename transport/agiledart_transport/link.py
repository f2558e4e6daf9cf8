"""`Link`: a verified connection that carries frames.

States, and what moves a link from one to the next:

    new ── TLS done ──> greeting ── HELLO accepted (`open`) ──> open ── close, expiry, loss ──> closed

In `greeting` the link accepts only one HELLO frame. Reading stops until that frame is verified, so a stranger makes us
hold at most one HELLO and what one socket read brought with it. Nothing that a peer sends raises out of a callback: it
closes the link with a reason from a bounded set, fit for a metric's label. Works on uvloop and on plain asyncio.
"""

import asyncio
import itertools
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast
from weakref import WeakKeyDictionary

from agiledart_kernel.errors import Refused, RemoteProtocolError
from agiledart_kernel.frames import (
    FRAME_HEADER,
    HEADER_BYTES,
    LIMIT_BY_KIND,
    FrameKind,
    FrameReader,
    Hello,
    decode_close_reason,
    decode_hello,
    encode_close_reason,
    frame,
    oversize,
)
from agiledart_kernel.grants import REASONS
from agiledart_kernel.registrations import REFUSALS as UNCOUNTED
from agiledart_kernel.services import largest_frame
from agiledart_transport.grant_timer import GrantTimer
from agiledart_transport.outgoing import plain_host
from agiledart_transport.peer_verifier import PeerInfo
from agiledart_transport.tcp_progress import NO_PROGRESS, TcpProgress, progress_of, progress_of_pair
from agiledart_transport.unfinished_frames import unfinished_of

LINK_REASONS: Final = (
    *REASONS, *UNCOUNTED, "certificate", "service", "role", "scope", "protocol", "another peer",  # refused
    "tls", "timeout", "form", "kind", "oversize", "truncated", "unexpected frame", "crowded", "full",  # not even judged
    "too many links", "unfinished",  # worn
    "descriptors", "ticket", "slow", "stalled", "lost", "done", "leaving", "internal", "peer closed",
)  # fmt: skip
"""Every reason with which a link ends or is refused.

`done`: closed on purpose; `slow`: the peer did not read; `stalled`: it did not answer, and another link to it did;
`unfinished`: a frame did not arrive completely; `too many links`: of this key; `descriptors`: the process has no more
of them; `ticket`: no valid ticket for a circuit.
"""

ORDINARY_ENDS: Final = ("done", "lost", "peer closed", "leaving", "stalled")
"""Reasons that are not the peer's fault. An owner counts the others as refusals."""

MAX_UNSENT_BYTES: Final = 32 << 20
"""Bytes that may wait for a slow peer: two of the largest frames. Senders that heed `writable` stay far below."""

HIGH_WATER_BYTES: Final = 1 << 20
"""Unsent bytes above which `writable` turns false; it turns true again at a quarter of it."""

CLOSE_SECONDS: Final = 2.0
"""Time for a closing link to send the rest and to see the other end close."""

_START_DELAY_ITERATIONS: Final = 8
"""Iterations of the loop between the opening of a dialled link and its first frame.

A caller that awaits `connect` through other tasks (`wait_for` of Python 3.11 makes one) holds the link by then.
"""

_OWNER_FRAME_KINDS: Final = frozenset((int(FrameKind.DATA), int(FrameKind.ACK), int(FrameKind.CONTROL)))
_FLUSH_AT: Final = 64 << 10
_PART_BYTES: Final = 64 << 10
"""Bytes that are encrypted at a time, so that the buffers of TLS stay in the processor's caches."""

_RECEIVE_BYTES: Final = 256 << 10


class RefusedByPeer(Refused):
    """The other end refused us and gave its reason in its CLOSE frame. `reason` is one of `LINK_REASONS`."""


class DeferFrame(Exception):
    """Signal of `on_frame` that it can take a frame only later.

    The link then reads no more. When its owner resumes reading, in a later iteration of the loop, the link delivers
    that frame first.
    """


@dataclass(frozen=True, slots=True)
class LinkHandler:
    """Callbacks of a link's owner. No call comes before `on_link` or `connect` has returned.

    Args:
        on_frame: (link, kind, body) for each CONTROL, DATA and ACK frame, in order; may raise `DeferFrame`.
        on_closed: (link, reason), once, with one of `LINK_REASONS`; `link.detail` has the peer's text.
        on_writable: the link takes data again after `writable` was false.
        before, after: called around the frames that one read of the socket brought.
        on_echo: (link, body of the probe): the other end of the link is there.
    """

    on_frame: "Callable[[Link, int, bytes], None]"
    on_closed: "Callable[[Link, str], None]"
    on_writable: "Callable[[Link], None] | None" = None
    before: "Callable[[Link], None] | None" = None
    after: "Callable[[Link], None] | None" = None
    on_echo: "Callable[[Link, bytes], None] | None" = None


class Cork:
    """Holds back what its links are given to send until it is released. Then each link writes all of it at once.

    Without a cork a link writes in the next iteration of its loop, and to get there the loop polls all its sockets.

    Attributes:
        held: set by the owner, which releases the cork in the same callback of the loop.
        links: links that have something to write. A link that is given data while the cork is held adds itself.
    """

    __slots__ = ("held", "links")

    def __init__(self) -> None:
        self.held = False
        self.links: list[Link] = []

    def release(self) -> None:
        """Let the links write, and hold nothing back any more."""
        self.held = False
        if self.links:
            self.flush()

    def flush(self) -> None:
        """Let the links write what they were given so far."""
        links, self.links = self.links, []
        for link in links:
            link.flush()


_numbers = itertools.count()

_incoming: "WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview]" = WeakKeyDictionary()
"""Receive buffer of each loop: one for all its links, because received bytes are copied out before the next read.

A new buffer for each read would request a quarter of a megabyte from the system for every frame.
"""


def _incoming_of(loop: asyncio.AbstractEventLoop) -> memoryview:
    view = _incoming.get(loop)
    if view is None:
        view = _incoming[loop] = memoryview(bytearray(_RECEIVE_BYTES))
    return view


def _pieces(parts: Sequence[bytes | memoryview]) -> Iterator[memoryview]:
    """Yield parts in pieces of bounded size."""
    for part in parts:
        view = memoryview(part)
        for start in range(0, len(view), _PART_BYTES):
            yield view[start : start + _PART_BYTES]


def kind_of(link: "Link") -> str:
    """Return how a link leads to its peer: `direct`, `relayed`, `punched` through routers at both ends, or `local`."""
    return "relayed" if link.relay else "punched" if link.is_punched else "local" if link.is_local else "direct"


class Link(asyncio.BufferedProtocol):
    """One end of a connection. Made by `connect` and `serve`; all attributes are for reading.

    Attributes:
        number: number of the link in this process, in order of creation.
        peer: the verified peer; set before any owner sees the link.
        service: the logical port that this link is for.
        relay: the relay through which it goes, for people; empty: direct.
        is_punched: both ends have opened it at one moment; is_local: it is a socket pair within this machine, without TLS.
        remote: the peer's socket address as text; local: host and port of this end; dialled: did this process open it?
        detail: why it closed, as text, when `closed`.
        writable: does the link take data without piling it up?
        has_more: while a frame is delivered: have more frames arrived behind it?
        frames_in, frames_out, bytes_in, bytes_out: since it was opened; bytes are those of frames, not of TLS.
        cork: may hold back what is sent; for the owner to set.
    """

    peer: PeerInfo

    def __init__(self, service: str, *, dialled: bool, wall_seconds: Callable[[], float] = time.time) -> None:
        self.number = next(_numbers)
        self.service, self.dialled, self.remote, self.detail = service, dialled, "", ""
        self.local, self.relay, self.is_punched, self.is_local = ("", 0), "", False, False
        self.frames_in = self.frames_out = self.bytes_in = self.bytes_out = 0
        self.certificate = b""
        self.cork: Cork | None = None
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the socket is closed."""
        self._loop = self.gone.get_loop()
        self._incoming = _incoming_of(self._loop)
        self._unfinished = unfinished_of(self._loop)
        self._wall_seconds = wall_seconds
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._greeting: asyncio.Future[Hello] = self._loop.create_future()
        self._handler: LinkHandler | None = None
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._deferred_frame: tuple[int, bytes] | None = None  # a frame that the owner deferred
        self._paused = self._delivering = self.has_more = self._holds_unfinished = False
        self._going_on = False  # between `resume_reading` and the iteration in which frames are delivered again
        self._held = False  # between a HELLO and the moment at which frames are let through
        self._writable_event = asyncio.Event()
        self._writable_event.set()
        self.writable, self._reason = True, ""
        self._expiry: GrantTimer | asyncio.TimerHandle | None = None  # of the grant; of closing, once that has begun

    def __repr__(self) -> str:
        name = self.peer.hello.name or self.peer.node_id.short if self._handler else "?"
        return f"<Link {'to' if self.dialled else 'from'} {name} {self.remote} {self.service} {self._reason or 'open'}>"

    # -------------------------------------------------------------------------------------------------- for the owner

    @property
    def closed(self) -> bool:
        """Whether the link is closed or closing. Then `send` does nothing."""
        return bool(self._reason) or self.gone.done()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait here for the peer to read, without those in the system's socket buffer."""
        return self._unsent_bytes + (self._transport.get_write_buffer_size() if self._transport is not None else 0)

    def progress(self) -> TcpProgress:
        """Return how far the bytes of the connection have come. `queued` is a little too large, since TLS adds to it."""
        if self._transport is None:
            return NO_PROGRESS
        if self.is_local:
            return progress_of_pair(self.bytes_out, self.unsent_bytes, time.monotonic_ns())
        return progress_of(self._transport.get_extra_info("socket"), self.unsent_bytes)

    def send(self, kind: int, body: bytes) -> None:
        """Queue one frame. Frames sent in one iteration of the loop leave in one write. A closed link ignores the call.

        The call never waits: heed `writable`, or `await drain()`. A peer that lets `MAX_UNSENT_BYTES` pile up is cut
        off.
        """
        if self._reason or self.gone.done():
            return
        if len(body) > LIMIT_BY_KIND[kind]:
            raise oversize(kind, body)
        raw = FRAME_HEADER.pack(len(body), kind) + body  # as `frame`, without the call: this line runs for every frame
        if not self._unsent:
            if (cork := self.cork) is not None and cork.held:
                cork.links.append(self)
            else:
                self._loop.call_soon(self.flush)
        self._unsent.append(raw)
        self._unsent_bytes += len(raw)
        self.frames_out += 1
        self.bytes_out += len(raw)
        if self._unsent_bytes >= _FLUSH_AT:
            self.flush()

    def send_parts(self, kind: int, parts: Sequence[bytes | memoryview]) -> None:
        """Send one frame whose body is these parts, after what is queued, without copying them together. Else as `send`."""
        size = sum(map(len, parts))
        if size > LIMIT_BY_KIND[kind]:
            raise oversize(kind, b"".join(parts))
        self.flush()
        if self.unsent_bytes + size > MAX_UNSENT_BYTES:
            self.abort("slow")
        if self._reason or self._transport is None:
            return
        self.frames_out += 1
        self.bytes_out += HEADER_BYTES + size
        for piece in _pieces((FRAME_HEADER.pack(size, kind), *parts)):
            self._transport.write(piece)

    def flush(self) -> None:
        """Write what is queued."""
        if not self._unsent or self._transport is None:
            return
        joined = self._unsent[0] if len(self._unsent) == 1 else b"".join(self._unsent)
        self._unsent.clear()
        self._unsent_bytes = 0
        # Below the high-water mark only a very large frame can exceed the bound, so the size of the queue is not asked
        # for.
        if (not self.writable or len(joined) > HIGH_WATER_BYTES) and self.unsent_bytes + len(joined) > MAX_UNSENT_BYTES:
            self.abort("slow")
            return
        self._transport.write(joined)

    async def drain(self) -> None:
        """Wait until the link takes data again, at least one iteration of the loop. Raises ConnectionError when it is closed."""
        self.flush()
        await asyncio.sleep(0)  # a loop of sends that never stalls must not keep the peer's answers from being read
        await self._writable_event.wait()
        if self.closed:
            raise ConnectionError(f"link closed: {self._reason or 'lost'}")

    def pause_reading(self) -> None:
        """Deliver no frames for now: the peer's sends will stall. No effect when closed or paused."""
        self._paused = True
        self._pause_transport()

    def resume_reading(self) -> None:
        """Deliver frames again, first those that had arrived, also when the peer is gone by now."""
        if self._paused:
            self._paused, self._going_on = False, True
            self._loop.call_soon(self._go_on)

    def close(self, reason: str = "done", words: str = "") -> None:
        """Send the reason to the peer and what is queued, then close. `on_closed` follows when the socket is gone.

        `words`: further text for the peer's user.
        """
        if self._reason:
            return
        if self.gone.done():  # the peer closed first, and frames that it had sent still wait to be delivered
            self._reason = reason
            self._loop.call_soon(self._finish)
            return
        self.flush()
        if self.closed:  # the flush itself may have cut off a slow peer
            return
        self._reason = reason
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(
                frame(FrameKind.CLOSE, encode_close_reason(f"{reason}: {words}" if words else reason))
            )
        self._end_transport()

    def abort(self, reason: str) -> None:
        """Close at once; queued frames are dropped."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------------------------- for the ledger of unfinished frames

    @property
    def peer_key(self) -> bytes:
        """Public key of the peer."""
        return self.peer.grant.key

    def cut_unfinished(self) -> None:
        """Drop an incomplete frame that takes too long or too much space, and close the link."""
        self._reader = FrameReader()
        self.detail = "a frame did not arrive completely"
        self.close("unfinished")

    # -------------------------------------------------------------------------------- for connect() and the listener

    async def greeting(self) -> Hello:
        """Return the peer's HELLO.

        Raises `RefusedByPeer` when the peer closes with a reason, `RemoteProtocolError` for anything else.
        """
        return await self._greeting

    def greet(self, body: bytes) -> None:
        """Send our HELLO at once."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("closed before HELLO")
        self._transport.write(frame(FrameKind.HELLO, body))

    def open(self, peer: PeerInfo, handler: LinkHandler) -> None:
        """Let frames through, a little later: the peer was verified."""
        if self.gone.done() or self._reason:
            raise ConnectionResetError("closed during HELLO")
        self.peer, self._handler = peer, handler
        self._reader.limit = largest_frame(peer.grant)
        expired = partial(self.close, "expired")
        self._expiry = timer = GrantTimer(self._loop, peer.grant.not_after, self._wall_seconds, expired)
        timer.start()
        self._start(_START_DELAY_ITERATIONS if self.dialled else 1)

    def _start(self, iterations: int) -> None:
        if iterations:
            self._loop.call_soon(self._start, iterations - 1)
        else:
            self._held = False
            self._go_on()

    # ---------------------------------------------------------------------------------------------- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note that TLS is done: both ends hold the key of a leaf of our network's form, no more."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        name, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        self.local = (str(own[0]), int(own[1])) if isinstance(own, tuple) else ("", 0)
        self.remote = f"{plain_host(name[0])}:{name[1]}" if isinstance(name, tuple) else str(name or "")
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        self.certificate = (tls.getpeercert(binary_form=True) if tls is not None else None) or b""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes (asyncio)."""
        return self._incoming

    def buffer_updated(self, nbytes: int) -> None:
        """Take received bytes (asyncio)."""
        if self._reason:
            return
        self._reader.feed(bytes(self._incoming[:nbytes]))
        if self._handler is not None:
            self._deliver()
        elif not self._greeting.done():
            self._greet_back()

    def eof_received(self) -> None:
        """Note that the peer sends no more. Links have no half-open state, so the transport closes itself (asyncio)."""

    def pause_writing(self) -> None:
        """Note that the send buffer is full (asyncio)."""
        self.writable = False
        self._writable_event.clear()

    def resume_writing(self) -> None:
        """Note that the send buffer has space again (asyncio)."""
        self.writable = True
        self._writable_event.set()
        if self._handler is not None and self._handler.on_writable is not None and not self._reason:
            self._call(self._handler.on_writable)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the socket is gone, whichever end closed it (asyncio)."""
        self._transport = None
        if self._holds_unfinished:
            self._unfinished.note(self, 0)
        self.detail = self.detail or str(exc or "")
        if not self._greeting.done():
            if isinstance(exc, ssl.SSLError):
                self._greeting.set_exception(exc)
            elif self._reader.buffered:
                self._greeting.set_exception(RemoteProtocolError("truncated", "closed within its HELLO"))
            else:
                self._greeting.set_exception(ConnectionResetError("closed before HELLO"))
            self._greeting.exception()  # no task may be waiting any more, and that is no error
        self._unsent.clear()
        self._unsent_bytes = 0
        self.writable = True
        self._writable_event.set()
        if self._expiry is not None:
            self._expiry.cancel()
        if not self.gone.done():
            self.gone.set_result(None)
        # What the peer sent before it left is still delivered: `on_closed` comes after the last frame.
        if self._reason or not (self._paused or self._going_on or self._held):
            self._finish()

    # ----------------------------------------------------------------------------------------------------------- inside

    def _greet_back(self) -> None:
        """Take the one HELLO, then stop reading until it has been verified."""
        try:
            received = self._reader.next()
            if received is None:
                return
            if received[0] == FrameKind.CLOSE:
                self.detail = decode_close_reason(received[1])
                word, _, rest = self.detail.partition(": ")
                raise RefusedByPeer(word, rest) if word in LINK_REASONS else RefusedByPeer("peer closed", self.detail)
            if received[0] != FrameKind.HELLO:
                raise RemoteProtocolError("unexpected frame", f"kind {received[0]} before HELLO")
            hello = decode_hello(received[1])
        except RemoteProtocolError as error:
            self._greeting.set_exception(error)
            self._greeting.exception()
        else:
            self._greeting.set_result(hello)
        self._held = True
        self._pause_transport()

    def _end_transport(self) -> None:
        """Close in order, or by force when that takes too long."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._transport is not None:
            self._expiry = self._loop.call_later(CLOSE_SECONDS, self.abort, self._reason)
            self._transport.resume_reading()  # asyncio never ends a paused TLS connection whose peer has gone
            self._transport.close()

    def _pause_transport(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Deliver what is here, then read on; or finish, when no socket is left to read from."""
        self._going_on = False
        self._deliver()
        if self._paused or self._held:
            return
        if self._transport is None:
            self._finish()
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def _finish(self) -> None:
        """Report the end to the owner, once."""
        if not self._reason:
            self._reason = "truncated" if self._reader.buffered else "lost"
        self._deferred_frame = None
        handler, self._handler = self._handler, None
        if handler is not None:
            self._call(handler.on_closed, self._reason)

    def _deliver(self) -> None:
        """Deliver complete frames until none is left, the owner pauses, or the link closes."""
        if self._delivering:  # called again from a handler: the loop below continues
            return
        self._delivering = True
        handler, reader, taken = self._handler, self._reader, self.frames_in
        try:
            if handler is not None and handler.before is not None:
                handler.before(self)
            while not (self._paused or self._held or self._reason) and self._handler is not None:
                if self._deferred_frame is not None:
                    (kind, body), self._deferred_frame = self._deferred_frame, None
                elif reader.is_empty or (next_frame := reader.next()) is None:
                    break
                else:
                    kind, body = next_frame
                self.has_more = not reader.is_empty
                self.frames_in += 1
                self.bytes_in += len(body) + HEADER_BYTES
                if kind in _OWNER_FRAME_KINDS:
                    self._handler.on_frame(self, kind, body)
                else:
                    self._handle_link_frame(self._handler, kind, body)
        except DeferFrame:
            self.pause_reading()
            self._deferred_frame = kind, body
            self.frames_in -= 1
            self.bytes_in -= len(body) + HEADER_BYTES
        except Exception as error:  # noqa: BLE001  `_on_handler_error` decides what it means
            self._on_handler_error(error)
        finally:
            self._delivering = False
            if self._holds_unfinished or not reader.is_empty:
                self._note_unfinished(is_new=self.frames_in != taken)
            if handler is not None and (after := handler.after) is not None:
                try:  # as `_call`, without the call: this line runs for every frame
                    after(self)
                except Exception as error:  # noqa: BLE001  `_on_handler_error` decides what it means
                    self._on_handler_error(error)

    def _handle_link_frame(self, handler: LinkHandler, kind: int, body: bytes) -> None:
        """Handle a frame that is for the link itself."""
        if kind == FrameKind.PROBE:
            if self.writable:  # otherwise the peer that probes does not read
                self.send(FrameKind.ECHO, body)
        elif kind == FrameKind.ECHO:
            if handler.on_echo is not None:
                handler.on_echo(self, body)
        elif kind == FrameKind.CLOSE:
            self.detail = decode_close_reason(body)
            self._reason = "peer closed"
            self._end_transport()
        else:
            raise RemoteProtocolError("unexpected frame", "a second HELLO")

    def _note_unfinished(self, *, is_new: bool) -> None:
        """Report the size of an incomplete frame. While reading is paused, complete frames wait here by our own will."""
        size = 0 if self._paused or self._reason or self._transport is None else self._reader.buffered
        self._holds_unfinished = size > 0
        self._unfinished.note(self, size, is_new=is_new)

    def _call(self, callback: Callable[..., None], *arguments: object) -> None:
        """Run the owner's code."""
        try:
            callback(self, *arguments)
        except Exception as error:  # noqa: BLE001  `_on_handler_error` decides what it means
            self._on_handler_error(error)

    def _on_handler_error(self, error: Exception) -> None:
        """Close the link after an error in a handler. A fault of the peer closes it with its reason; our own bug is logged, too."""
        if isinstance(error, RemoteProtocolError):
            self.detail = str(error)
            self.close(error.reason)
            return
        self._loop.call_exception_handler({"message": f"error in the handler of {self!r}", "exception": error})
        self.detail = f"{type(error).__name__} in our handler"
        self.close("internal")

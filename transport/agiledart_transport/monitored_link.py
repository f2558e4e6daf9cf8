"""One link to a peer that is probed, and redialled while it is silent: sockets and clocks for `link_failover`."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import PROBE_PROTOCOL, FrameKind
from agiledart_kernel.instants import SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_transport.link import ORDINARY_ENDS, Link
from agiledart_transport.link_failover import (
    AbandonLink,
    CancelDial,
    CheckLink,
    CheckLinkAt,
    DialFailed,
    DialLink,
    DialSucceeded,
    Event,
    LinkClosed,
    LinkFailover,
    LinkState,
    ProbeAnswered,
    ProbeLink,
    SwitchLink,
)
from agiledart_transport.tcp_progress import NO_PROGRESS

_PROBE_BYTES = 8


class MonitoredLink:
    """A link that is replaced when another one answers and it does not.

    Args:
        link: the first one, open.
        name: of the node there, for people.
        dial: opens another link within so many seconds, only directly when the second argument is true. Ends and echoes
            of links go to `closed` and `echoed`.
        timeout_seconds: longest time without any answer.
        moved: called with the new link, when the old one is cut.
        given_up: called with the reason when no answer has come for the whole timeout.

    Attributes:
        link: the one in use.
    """

    def __init__(
        self,
        link: Link,
        name: str,
        dial: Callable[[float, bool], Awaitable[Link]],
        timeout_seconds: int,
        random: RandomStream,
        moved: Callable[[Link], None],
        given_up: Callable[[str], None],
    ) -> None:
        self.link, self.name, self._dial, self._moved, self._given_up = link, name, dial, moved, given_up
        self._failover = LinkFailover(timeout_seconds * SECOND, random, is_relayed=bool(link.relay))
        self._dials: dict[int, asyncio.Task[None]] = {}
        self._opened: dict[int, Link] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._seconds = timeout_seconds

    @property
    def waits_for(self) -> str:
        """The node that does not answer and since when, as text; empty while the link works."""
        failover = self._failover
        if failover.state is LinkState.WORKING or failover.since is None:
            return ""
        seconds = (time.monotonic_ns() - failover.since) / SECOND
        tried = f"dialled {failover.tried} times, last: {failover.why}" if failover.tried else failover.why
        return f"{self.name}: no answer for {seconds:.0f} s ({tried})"

    @property
    def goes_by(self) -> str:
        """`NAME by RELAY` while the link is relayed; otherwise empty."""
        return f"{self.name} by {self.link.relay}" if self.link.relay else ""

    def look(self) -> None:
        """Check the link. The owner calls this now and then; no more is needed while the link works."""
        link = self.link
        if link.peer.hello.protocol_max >= PROBE_PROTOCOL:
            progress = link.progress() if self._failover.state is LinkState.WORKING else NO_PROGRESS
            self._step(CheckLink(link.frames_out, link.frames_in, progress.acknowledged, progress.queued))

    def echoed(self, link: Link, body: bytes) -> None:
        """Take an echo that a link has brought."""
        if link is self.link and len(body) == _PROBE_BYTES:
            self._step(ProbeAnswered(int.from_bytes(body, "big")))

    def closed(self, link: Link, reason: str) -> None:
        """Note that a dialled link is gone."""
        if link is self.link:
            reason_text = link.detail if reason in ORDINARY_ENDS else f"{reason}: {link.detail}"
            self._step(LinkClosed(reason_text or reason))

    def close(self) -> None:
        """Stop dialling."""
        self._drop(-1)
        if self._timer is not None:
            self._timer.cancel()

    def _step(self, event: Event) -> None:
        for effect in self._failover.step(event, time.monotonic_ns()):
            match effect:
                case ProbeLink(probe):
                    self.link.send(FrameKind.PROBE, probe.to_bytes(_PROBE_BYTES, "big"))
                case DialLink(dial, timeout_ns, is_direct):
                    self._dials[dial] = asyncio.create_task(self._try(dial, timeout_ns / SECOND, is_direct))
                case SwitchLink(dial):
                    self._move(self._opened.pop(dial))
                case CancelDial(dial):
                    self._drop(dial)
                case CheckLinkAt(at):
                    self._look_at(at)
                case AbandonLink(why):
                    self._given_up(f"no path to {self.name} has worked for {self._seconds} s ({why})")

    def _look_at(self, at: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(0, at - time.monotonic_ns()) / SECOND, self.look)

    async def _try(self, dial: int, timeout: float, is_direct: bool) -> None:
        try:
            link = await self._dial(timeout, is_direct)
        except (OSError, RemoteProtocolError) as error:
            self._dials.pop(dial, None)
            self._step(DialFailed(dial, str(error)))
            return
        self._dials.pop(dial, None)
        self._opened[dial] = link
        self._step(DialSucceeded(dial, is_relayed=bool(link.relay)))

    def _move(self, link: Link) -> None:
        old, self.link = self.link, link
        self._drop(-1)
        old.abort("stalled")
        self._moved(link)
        self.look()

    def _drop(self, dial: int) -> None:
        for number in list(self._dials) if dial < 0 else [dial]:
            if (task := self._dials.pop(number, None)) is not None:
                task.cancel()
        for number in list(self._opened) if dial < 0 else [dial]:
            if (link := self._opened.pop(number, None)) is not None:
                link.close("done")

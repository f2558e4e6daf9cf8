"""The way to one other executor: its circuits, and the channels that go over one of them. Sockets and clocks for `choosing`."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

from agiledart_dataflow.plan.paths import Paths, describe_paths
from agiledart_executor.channels.data_links import ChannelSender
from agiledart_executor.routes.circuit_costs import ROUNDS, SLOT_NS, CircuitReading
from agiledart_executor.routes.circuit_selector import (
    AbandonRoute,
    CircuitDialEnded,
    CircuitLost,
    CircuitOpened,
    CircuitSelector,
    CircuitState,
    CloseCircuit,
    DialCircuit,
    Event,
    InspectAt,
    InspectCircuits,
    ProbeEchoed,
    SendProbe,
    SwitchCircuit,
)
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_transport.circuits import Via
from agiledart_transport.link import ORDINARY_ENDS, Link

_PROBE_BYTES = 8


class Dialler(Protocol):
    """Opens links to one executor; each raises OSError or RemoteProtocolError."""

    async def directly(self, timeout: float) -> Link:
        """Within so many seconds."""
        ...

    async def relays(self, most: int, avoid: tuple[str, ...], doubted: tuple[str, ...]) -> tuple[Via, ...]:
        """Relays that lead there, but none of those that are to be avoided; those that are doubted claimed too little."""
        ...

    async def via(self, via: Via, timeout: float) -> Link:
        """By way of a relay."""
        ...


class DataRoute:
    """One executor that channels of this one lead to, by one of the ways that their edges may take.

    Args:
        link: the first one, open; `took_ns`: how long that took.
        name: of the node there, for people.
        dialler: opens others; what is heard of links goes to `closed` and `echoed`.
        patience_seconds: for how long nothing there may answer.
        given_up: told of it with the reason, when nothing has answered for the whole patience.

    Attributes:
        link: that carries the rows.
        senders: of the channels.
    """

    def __init__(
        self,
        link: Link,
        name: str,
        paths: Paths,
        dialler: Dialler,
        route_timeout_seconds: int,
        random: RandomStream,
        abandoned: Callable[["DataRoute", str], None],
        took_ns: int = 0,
    ) -> None:
        self.link, self.name, self.paths, self._dialler, self._abandoned = link, name, paths, dialler, abandoned
        self.senders: list[ChannelSender] = []
        self._seconds = route_timeout_seconds
        now = time.monotonic_ns()
        first = (link.number, link.relay)
        self._selector = CircuitSelector(paths, first, route_timeout_seconds * SECOND, random, now, took_ns)
        self._links: dict[int, Link] = {link.number: link}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._claims: dict[str, int] = {}
        self._frames = {"direct": 0, "relayed": 0}  # of links that rows have left
        self._frames_before = 0  # of the present link, before it carried rows

    # ---- what is told of it

    @property
    def waits_for(self) -> str:
        """Who does not answer and since when, in words; empty while the way works."""
        now, choosing = time.monotonic_ns(), self._selector
        if choosing.since is None or choosing.state(now) in (CircuitState.WORKS, CircuitState.DOUBTED):
            return ""
        tried = f"dialled {choosing.tried} times, last: {choosing.why}" if choosing.tried else choosing.why
        return f"{self.name}: no answer for {(now - choosing.since) / SECOND:.0f} s ({tried})"

    @property
    def relayed_by(self) -> str:
        """`NAME by RELAY since HH:MM:SS` while rows go by way of others; else empty."""
        if not self.link.relay:
            return ""
        since = time.localtime(time.time() - (time.monotonic_ns() - self._selector.used_since) / SECOND)
        return f"{self.name} by {self.link.relay} since {time.strftime('%H:%M:%S', since)}"

    def figures(self, *, counts: bool) -> dict[str, Any]:
        """What `explain route` shows, and metrics count.

        Args:
            counts: also what is counted; told with one channel of those that share the way, so that it is added up once.
        """
        now, wall = time.monotonic_ns(), time.time_ns()
        choosing = self._selector
        direct, relayed = self._frames["direct"], self._frames["relayed"]
        passed = self.link.frames_out - self._frames_before
        direct, relayed = (direct, relayed + passed) if self.link.relay else (direct + passed, relayed)
        return {
            "to": self.name,
            "paths": describe_paths(self.paths),
            "relay": self.link.relay,
            "since_ms": (wall - now + choosing.used_since) // MILLISECOND,
            "state": choosing.state(now).name.lower(),
            "circuits": [
                {
                    "relay": one.relay,
                    "in_use": one is choosing.used,
                    "cost_ms": round(choosing.costs.of(one, now) * SLOT_NS / MILLISECOND, 1),
                    "round_trip_ms": round(one.rtt_ns / MILLISECOND, 1),
                    "success": round(choosing.costs.success(one), 3),
                    "answers": one.rounds,
                    "bytes_per_second": round(one.rate),
                    "late": one.is_late(now),
                }
                for one in choosing.circuits.values()
            ],
            "changes": [
                {
                    "at_ms": (wall - now + one.at) // MILLISECOND,
                    "from": one.before,
                    "to": one.after,
                    "reason": one.reason,
                }
                for one in choosing.changes
            ],
            "moves": {reason: count for reason, count in choosing.moves.items() if count and counts},
            "frames": {"direct": direct, "relayed": relayed} if counts else {},
        }

    # ---- events

    def look(self) -> None:
        """Look at all circuits. The owner calls this now and then; no more is needed while all is well."""
        seen = []
        for number, link in self._links.items():
            told = link.progress()
            seen.append(
                CircuitReading(number, link.frames_out, link.frames_in, told.acknowledged, told.queued, told.held_us)
            )
        self._step(InspectCircuits(tuple(seen)))

    def echoed(self, link: Link, body: bytes) -> None:
        """A link has brought an echo."""
        if len(body) == _PROBE_BYTES:
            self._step(ProbeEchoed(link.number, int.from_bytes(body, "big")))

    def closed(self, link: Link, reason: str) -> None:
        """A link that was dialled is gone."""
        if self._links.pop(link.number, None) is not None:
            said = link.detail if reason in ORDINARY_ENDS else f"{reason}: {link.detail}"
            self._step(CircuitLost(link.number, said or reason))

    def close(self) -> None:
        """Try no more."""
        for task in self._tasks.values():
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    # ---- effects

    def _step(self, event: Event) -> None:
        for effect in self._selector.step(event, time.monotonic_ns()):
            match effect:
                case SendProbe(circuit, probe):
                    if (link := self._links.get(circuit)) is not None:
                        link.send(FrameKind.PROBE, probe.to_bytes(_PROBE_BYTES, "big"))
                case DialCircuit():
                    self._tasks[effect.dial] = asyncio.create_task(self._dial(effect))
                case SwitchCircuit(circuit):
                    self._move(self._links[circuit])
                case CloseCircuit(circuit):
                    if (link := self._links.pop(circuit, None)) is not None:
                        link.abort("stalled")
                case InspectAt(at):
                    self._look_at(at)
                case AbandonRoute(why):
                    self._abandoned(self, f"no way to {self.name} has worked for {self._seconds} s ({why})")

    def _look_at(self, at: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(0, at - time.monotonic_ns()) / SECOND, self.look)

    def _move(self, link: Link) -> None:
        passed = self.link.frames_out - self._frames_before
        self._frames["relayed" if self.link.relay else "direct"] += passed
        self.link, self._frames_before = link, link.frames_out
        for sender in self.senders:
            sender.move(link)

    async def _dial(self, dial: DialCircuit) -> None:
        why = ""
        try:
            if dial.max_relays:
                await self._dial_relayed(dial)
            else:
                began = time.monotonic_ns()
                self._opened(dial.dial, await self._dialler.directly(dial.timeout_ns / SECOND), began)
        except (OSError, RemoteProtocolError) as error:
            why = str(error)
        del self._tasks[dial.dial]
        self._step(CircuitDialEnded(dial.dial, why))

    async def _dial_relayed(self, dial: DialCircuit) -> None:
        """By way of all whom the agent proposes; raises what the last of them said when none of them leads there."""
        seconds = dial.timeout_ns / SECOND
        async with asyncio.timeout(seconds):
            relays = await self._dialler.relays(dial.max_relays, dial.avoid, self._claimed_too_little())
        self._claims.update((via.name, via.cost) for via in relays)

        async def one(via: Via) -> str:
            began = time.monotonic_ns()
            try:
                self._opened(dial.dial, await self._dialler.via(via, seconds), began)
            except (OSError, RemoteProtocolError) as error:
                return f"{via.name}: {error}"
            return ""

        said = await asyncio.gather(*(one(via) for via in relays))
        if said and all(said):
            raise ConnectionError("; ".join(said))

    def _claimed_too_little(self) -> tuple[str, ...]:
        """Relays by which it took more than twice what they had claimed; told once for each claim."""
        found = []
        for one in self._selector.circuits.values():
            claim = self._claims.get(one.relay)
            if claim is not None and one.rounds >= ROUNDS and one.rtt_ns > 2 * (claim + 1) * SLOT_NS:
                found.append(one.relay)
                del self._claims[one.relay]
        return tuple(found)

    def _opened(self, dial: int, link: Link, began: int) -> None:
        if link.closed:
            raise ConnectionResetError(link.detail or "closed as soon as it was open")
        self._links[link.number] = link
        self._step(CircuitOpened(dial, link.number, link.relay, time.monotonic_ns() - began))

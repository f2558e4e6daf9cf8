"""Route to one other executor: its circuits and the channels that use one of them; drives `circuit_selector` with real I/O."""

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
    PathPromised,
    ProbeEchoed,
    RequestPromise,
    SendProbe,
    SwitchCircuit,
)
from agiledart_executor.wire.agent_messages import HopFigures
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import FrameKind
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.proposals import COST_MOST
from agiledart_transport.circuits import Via
from agiledart_transport.link import ORDINARY_ENDS, Link, kind_of

_PROBE_BYTES = 8
LEADING = ("chosen", "dearer")
"""Reasons of hops that lead to the target."""


class Dialler(Protocol):
    """Opener of links to one executor; each method raises OSError or RemoteProtocolError."""

    async def directly(self, timeout: float) -> Link:
        """Open a direct link within `timeout` seconds."""
        ...

    async def relays(self, most: int, avoid: tuple[str, ...], doubted: tuple[str, ...]) -> tuple[Via, ...]:
        """Return up to `most` relays to the executor, none named in `avoid`; those in `doubted` had claimed too low a cost."""
        ...

    async def via(self, via: Via, timeout: float) -> Link:
        """Open a link through a relay within `timeout` seconds."""
        ...

    async def hops(self) -> tuple[HopFigures, ...]:
        """Return the agent's next hops to the executor's node, the cheapest first."""
        ...


class DataRoute:
    """Route from this executor to another one, over one of the paths that the edges of its channels allow.

    Args:
        link: the first open link.
        name: of the remote node, for users.
        paths: allowed for the route.
        dialler: opens further links; their events must be passed to `closed` and `echoed`.
        route_timeout_seconds: seconds without an answer after which the route is abandoned.
        random: spreads dials and breaks ties.
        abandoned: called with the route and the reason when the timeout has passed.
        took_ns: how long the opening of the first link took.

    Attributes:
        link: the link that carries the rows.
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
        self._unconnected: dict[str, None] = {}  # relays whose circuit did not open
        self._hops: tuple[HopFigures, ...] = ()
        self._frames = {"direct": 0, "relayed": 0, "local": 0}  # of links that rows have left
        self._frames_before = 0  # of the present link, before it carried rows

    # ---- status for users

    @property
    def waits_for(self) -> str:
        """Text that names the node that does not answer, and since when; empty while the route works."""
        now, selector = time.monotonic_ns(), self._selector
        if selector.since is None or selector.state(now) in (CircuitState.WORKS, CircuitState.DOUBTED):
            return ""
        tried = f"dialled {selector.tried} times, last: {selector.why}" if selector.tried else selector.why
        return f"{self.name}: no answer for {(now - selector.since) / SECOND:.0f} s ({tried})"

    @property
    def relayed_by(self) -> str:
        """Text `NAME by RELAY since HH:MM:SS` while rows go through a relay; else empty."""
        if not self.link.relay:
            return ""
        since = time.localtime(time.time() - (time.monotonic_ns() - self._selector.used_since) / SECOND)
        return f"{self.name} by {self.link.relay} since {time.strftime('%H:%M:%S', since)}"

    def figures(self, *, counts: bool) -> dict[str, Any]:
        """Return the figures for `explain route` and for metrics.

        Args:
            counts: include counters; only one of the channels that share the route includes them, so that they add up once.
        """
        now, wall = time.monotonic_ns(), time.time_ns()
        selector = self._selector
        kind = kind_of(self.link)
        passed = self._frames[kind] + self.link.frames_out - self._frames_before
        return {
            "to": self.name,
            "paths": describe_paths(self.paths),
            "kind": kind,
            "relay": self.link.relay,
            "since_ms": (wall - now + selector.used_since) // MILLISECOND,
            "state": selector.state(now).name.lower(),
            "circuits": [
                {
                    "relay": circuit.relay,
                    "in_use": circuit is selector.used,
                    "cost_ms": round(selector.costs.of(circuit, now) * SLOT_NS / MILLISECOND, 1),
                    "round_trip_ms": round(circuit.rtt_ns / MILLISECOND, 1),
                    "success": round(selector.costs.success(circuit), 3),
                    "answers": circuit.rounds,
                    "bytes_per_second": round(circuit.rate),
                    "late": circuit.is_late(now),
                    "use": round(circuit.use, 3),
                    "waiting_bytes": circuit.queued,
                }
                for circuit in selector.circuits.values()
            ],
            "changes": [
                {
                    "at_ms": (wall - now + change.at) // MILLISECOND,
                    "from": change.before,
                    "to": change.after,
                    "reason": change.reason,
                }
                for change in selector.changes
            ],
            "moves": {reason: count for reason, count in selector.moves.items() if count and counts},
            "frames": self._frames | {kind: passed} if counts else {},
            "hops": [
                {
                    "to": hop.name,
                    "is_relay": hop.is_relay,
                    "omega": round(hop.omega, 2) if hop.omega < COST_MOST else None,
                    "attempts": round(hop.attempts, 1),
                    "to_go": round(hop.to_go, 2) if hop.to_go < COST_MOST else None,
                    "reason": hop.reason,
                    "relays": list(hop.relays),
                }
                for hop in self._hops
            ],
        }

    # ---- events

    def look(self) -> None:
        """Read the progress of all circuits. The owner calls this periodically, which is enough while all circuits are well."""
        readings = []
        for number, link in self._links.items():
            progress = link.progress()
            readings.append(CircuitReading(number, link.frames_out, link.frames_in, *progress))
        is_waiting = any(sender.kept.kept_bytes for sender in self.senders)
        self._step(InspectCircuits(tuple(readings), is_waiting))

    def echoed(self, link: Link, body: bytes) -> None:
        """Handle an echo from a link."""
        if len(body) == _PROBE_BYTES:
            self._step(ProbeEchoed(link.number, int.from_bytes(body, "big")))

    def closed(self, link: Link, reason: str) -> None:
        """Handle the end of a link that was dialled."""
        if self._links.pop(link.number, None) is not None:
            detail = link.detail if reason in ORDINARY_ENDS else f"{reason}: {link.detail}"
            self._step(CircuitLost(link.number, detail or reason))

    def close(self) -> None:
        """Stop all dials and the timer."""
        for task in self._tasks.values():
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def disconnect(self) -> None:
        """End all links, behind `close`, in a process that goes on."""
        links, self._links = self._links, {}
        for link in links.values():
            link.abort("leaving")

    # ---- effects

    def _step(self, event: Event) -> None:
        for effect in self._selector.step(event, time.monotonic_ns()):
            match effect:
                case SendProbe(circuit, probe):
                    if (link := self._links.get(circuit)) is not None:
                        link.send(FrameKind.PROBE, probe.to_bytes(_PROBE_BYTES, "big"))
                case DialCircuit():
                    self._tasks[effect.dial] = asyncio.create_task(self._dial(effect))
                case RequestPromise():
                    self._tasks[0] = asyncio.create_task(self._request_promise())
                case SwitchCircuit(circuit):
                    self._move(self._links[circuit])
                case CloseCircuit(circuit):
                    if (link := self._links.pop(circuit, None)) is not None:
                        link.abort("stalled")
                case InspectAt(at):
                    self._look_at(at)
                case AbandonRoute(why):
                    self._abandoned(self, f"no path to {self.name} has worked for {self._seconds} s ({why})")

    def _look_at(self, at: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(0, at - time.monotonic_ns()) / SECOND, self.look)

    def _move(self, link: Link) -> None:
        passed = self.link.frames_out - self._frames_before
        self._frames[kind_of(self.link)] += passed
        self.link, self._frames_before = link, link.frames_out
        for sender in self.senders:
            sender.move(link)

    async def _request_promise(self) -> None:
        """Ask the agent for its next hops. It keeps their costs while it is asked."""
        self._hops = await self._dialler.hops()
        promise = next((hop.omega + hop.to_go for hop in self._hops if hop.is_relay and hop.reason in LEADING), None)
        if promise is not None:
            self._step(PathPromised(promise))

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
        """Dial through every relay that the agent proposes; raises ConnectionError with all errors when none of them works."""
        seconds = dial.timeout_ns / SECOND
        avoid = (*dial.avoid, *self._unconnected, *((self.name,) if dial.is_trial else ()))
        doubted = self._claimed_too_little()
        self._unconnected.clear()
        async with asyncio.timeout(seconds):
            relays = await self._dialler.relays(dial.max_relays, avoid, doubted)
        self._claims.update((via.name, via.cost) for via in relays)

        async def dial_through(via: Via) -> str:
            began = time.monotonic_ns()
            try:
                self._opened(dial.dial, await self._dialler.via(via, seconds), began)
            except (OSError, RemoteProtocolError) as error:
                self._unconnected[via.name] = None
                return f"{via.name}: {error}"
            return ""

        errors = await asyncio.gather(*(dial_through(via) for via in relays))
        if errors and all(errors):
            raise ConnectionError("; ".join(errors))

    def _claimed_too_little(self) -> tuple[str, ...]:
        """Return the relays whose circuit took more than twice the claimed cost, or did not open; each claim is doubted only once.

        Else a relay that claims a short path and connects nothing would come first in every request. The next request avoids it.
        """
        doubted = list(self._unconnected)
        for circuit in self._selector.circuits.values():
            claim = self._claims.get(circuit.relay)
            if claim is not None and circuit.rounds >= ROUNDS and circuit.rtt_ns > 2 * (claim + 1) * SLOT_NS:
                doubted.append(circuit.relay)
                del self._claims[circuit.relay]
        return tuple(doubted)

    def _opened(self, dial: int, link: Link, began: int) -> None:
        if link.closed:
            raise ConnectionResetError(link.detail or "closed as soon as it was open")
        self._links[link.number] = link
        self._step(CircuitOpened(dial, link.number, link.relay, time.monotonic_ns() - began))

"""Keeps an agent reachable: finds out whether others reach it by a dial, and holds reservations at relays where they do not."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

import msgspec

from agiledart_agent.circuits.agent_links import AgentLinks
from agiledart_agent.circuits.dialer import DIAL_BACK_SECONDS
from agiledart_agent.circuits.relay_messages import DialBackAnswer, RequestDialBack
from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.host.network_addresses import own_addresses
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.reachability import MAX_RESERVED_RELAYS, Reachability
from agiledart_node.reaching.dial_rules import choose_relays, choose_testers, host_of, is_private
from agiledart_transport.connecting import parse_address

LOOK_SECONDS: Final = 1.0
"""Time between two checks; a lost reservation is replaced at once."""

TEST_AGAIN_SECONDS: Final = 600.0
TEST_SOON_SECONDS: Final = 10.0
"""Time between two questions whether others reach this agent by a dial: usually, and while no member could answer."""

RESERVE_AGAIN_SECONDS: Final = 3.0
"""Time before a relay that refused is asked again."""

OUTSIDE_SECONDS: Final = 60.0
"""Time for which an outside host stays: the routers of some providers use several at a time."""

MAX_TOKEN_ADDRESSES: Final = 4
"""Addresses in a token: one that answers is enough."""

PREPARE_SECONDS: Final = 2.5
"""Longest wait for a reservation before this agent joins the ring."""


@dataclass(frozen=True, slots=True)
class DialBackResult:
    """The dial of one member to this agent.

    Args:
        tester: name of the member.
        seen_as: the host under which it sees this agent's connections.
        reason: why its dial failed; empty: this agent answered.
    """

    tester: str
    seen_as: str
    reason: str


class ReachabilityKeeper:
    """Knows how one agent is reached, and says it to the ring.

    Args:
        links: of the agent.
        zone: of the agent.
        known: returns the nodes of the ring that this agent knows.
        only: names of the only relays at which it reserves; empty: any.

    Attributes:
        is_open: do members in other networks reach this agent by a dial? None: not known.
        outside: the host under which members see this agent's connections; empty: unknown.
        results: of the last round of questions.
        keeps_ports: does the router give connections the port that they have inside? None: not known.
    """

    def __init__(
        self,
        links: AgentLinks,
        zone: str,
        log: AgentLog,
        known: Callable[[], tuple[Peer, ...]],
        only: tuple[str, ...] = (),
    ) -> None:
        self._only = only
        self._links, self._zone, self._log, self._known = links, zone, log, known
        self.is_open: bool | None = None
        self.outside = ""
        self.results: tuple[DialBackResult, ...] = ()
        self.keeps_ports: bool | None = None
        self._outside_at, self._other_outside = 0.0, ""
        self._callers: set[NodeId] = set()
        self._testers: frozenset[NodeId] = frozenset()
        self._tested_at: float | None = None
        self._tested_address = self._published_address = ""
        self._refused_at: dict[NodeId, float] = {}
        self._wake = asyncio.Event()
        links.on_seen, links.on_caller, links.on_reservations = self._note_seen, self._note_caller, self._publish

    @property
    def is_behind_router(self) -> bool:
        """Do members see this agent under an address that this machine does not have?"""
        return bool(self.outside) and self.outside not in own_addresses()

    @property
    def _is_local(self) -> bool:
        with contextlib.suppress(ValueError):
            return ip_address(host_of(self._links.address)).is_loopback
        return False

    async def prepare(self, seeds: list[Peer]) -> None:
        """Reserve at a seed where only this can be how others reach this agent. Called between the greeting and the join."""
        if self._is_local or not self.is_behind_router:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PREPARE_SECONDS):
                await self._reserve(seeds)

    async def keep_forever(self) -> None:
        """Ask members now and then whether they reach this agent, and keep reservations while they do not."""
        if self._links.further_addresses:
            self._publish()
        if self._is_local:
            return
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), LOOK_SECONDS)
            self._wake.clear()
            if not self._is_local:  # else this machine has no network for now
                await self.look()

    async def look(self) -> None:
        """Check once."""
        self._follow_outside()
        self._follow_address()
        reached = [peer for peer in self._links.reached_by_dial() if self._links.knows_reachability(peer.node)]
        testers = choose_testers(reached, self._links.reach)
        if self._is_due(testers):
            await self._test(testers)
        elif not testers and self.is_open is None and self._callers and not self.is_behind_router:
            self.is_open = True  # nodes have come in by a dial, and this node has dialled none that could test it
            self._publish()
        if self.is_open is False or (self.is_open is None and self.is_behind_router):
            open_ones = [peer for peer in self._known() if peer.reach.is_open]
            await self._reserve(list({peer.node: peer for peer in (*reached, *open_ones)}.values()))
        elif self.is_open and self._links.reservations.holders:
            self._links.reservations.drop_all()

    def _is_due(self, testers: list[Peer]) -> bool:
        if not testers:
            return False
        if self._tested_at is None or self._tested_address != self._links.address:
            return True
        age = time.monotonic() - self._tested_at
        is_new = not {peer.node for peer in testers} <= self._testers
        return age > (TEST_SOON_SECONDS if is_new or self.is_open is None else TEST_AGAIN_SECONDS)

    async def _test(self, testers: list[Peer]) -> None:
        """Ask members to dial this agent. It is open when all that answer have reached it."""
        address = self._links.address
        self._tested_at, self._tested_address = time.monotonic(), address
        self._testers = frozenset(peer.node for peer in testers)
        answers = await asyncio.gather(*(self._ask_back(peer, address) for peer in testers))
        results = self.results = tuple(answer for answer in answers if answer is not None)
        before = self.is_open
        if results:
            self.is_open = all(not result.reason for result in results)
        if self.is_open != before:
            self._publish()
            if self.is_open is False:
                self._log.info("reach.closed", f"  {self.text}")

    async def _ask_back(self, tester: Peer, address: str) -> DialBackResult | None:
        try:
            answer, link = await self._links.relay_service.ask(
                tester, lambda number: RequestDialBack(number, address), DIAL_BACK_SECONDS + 1.5
            )
        except (OSError, ValueError, RemoteProtocolError):
            return None
        if not isinstance(answer, DialBackAnswer) or answer.reason in ("off", "quota"):
            return None
        return DialBackResult(tester.name or tester.node.short, host_of(link.peer.hello.seen), answer.reason)

    async def _reserve(self, candidates: list[Peer]) -> None:
        now, held = time.monotonic(), self._links.reservations.holders
        if self._only:
            candidates = [peer for peer in candidates if peer.name in self._only]
        for relay in choose_relays(candidates, held, self._zone):
            if now - self._refused_at.get(relay.node, -RESERVE_AGAIN_SECONDS) < RESERVE_AGAIN_SECONDS:
                continue
            if len(self._links.reservations.holders) >= MAX_RESERVED_RELAYS:
                return
            if refused := await self._links.reservations.reserve(relay):
                self._refused_at[relay.node] = now
                self._log.info(
                    "reach.no_reservation", f"  {relay.name or relay.node.short} holds no link for us: {refused}"
                )

    @property
    def text(self) -> str:
        """Describe for users how this agent is reached."""
        if self.is_open:
            return f"other nodes reach this one at {self._links.address}"
        relays = ", ".join(self.relays)
        allowed = f"; agent.relays allows only {', '.join(self._only)}" if self._only else ""
        through = f"they reach it through {relays}" if relays else f"no relay leads to it{allowed}"
        if self.is_open is None:
            return f"not known whether other nodes can dial this one; {through}"
        ports = {True: ", and its router keeps ports", False: ", and its router changes ports", None: ""}[
            self.keeps_ports
        ]
        where = f" (they see it as {self.outside}{ports})" if self.outside else ""
        reasons = ", ".join(f"{result.tester}: {result.reason}" for result in self.results if result.reason)
        return f"other nodes cannot dial this one{where}: {reasons}; {through}"

    @property
    def relays(self) -> tuple[str, ...]:
        """Names of the relays at which this agent has reservations."""
        names = {peer.node: peer.name or peer.node.short for peer in self._known()}
        return tuple(names.get(node, node.short) for node in self._links.reservations.holders)

    @property
    def probable_cause_text(self) -> str:
        """Describe why this agent could not join, when no node can reach it; otherwise empty."""
        return f" Probable cause: {self.text}." if self.is_behind_router and not self.relays else ""

    def document(self) -> dict[str, object]:
        """Return for `doctor` what is known, and the text for people."""
        return {
            "open": self.is_open,
            "outside": self.outside,
            "keeps_ports": self.keeps_ports if self.is_behind_router else None,
            "tests": [
                {"by": result.tester, "seen_as": result.seen_as, "failure": result.reason} for result in self.results
            ],
            "held_by": list(self.relays),
            "text": "" if self._is_local else self.text,
        }

    @property
    def token_addresses(self) -> tuple[str, ...]:
        """Addresses for a token: of this agent and of open ones, this agent first unless others cannot dial it."""
        mine = self._links.address
        others = [peer.address for peer in self._known() if peer.reach.is_open and peer.address != mine]
        listed = [*others[:MAX_TOKEN_ADDRESSES], mine] if self.is_open is False else [mine, *others]
        return tuple(listed[:MAX_TOKEN_ADDRESSES])

    # ---- events of links

    def _note_seen(self, peer: Peer, address: str, local_port: int) -> None:
        if self._is_local:
            return
        host, port = parse_address(address)
        if host not in own_addresses():
            self.keeps_ports = port == local_port
        if host in own_addresses() and (self.outside or not peer.reach.is_open):
            return  # a neighbour in the same network says nothing about others
        is_nearer = is_private(host) and bool(self.outside) and not is_private(self.outside)
        if is_nearer:
            return
        self._other_outside = host if host != self.outside else ""
        self._follow_outside()

    def _follow_outside(self) -> None:
        """Take the host that was seen last for the outside one, unless the present one is too new: see `OUTSIDE_SECONDS`."""
        now = time.monotonic()
        if not self._other_outside or (self.outside and now - self._outside_at < OUTSIDE_SECONDS):
            return
        self.outside, self._other_outside, self._outside_at = self._other_outside, "", now
        self._tested_at = None
        self._publish()

    def _follow_address(self) -> None:
        """Say to the ring that this machine has another address than at the last look, as after DHCP or in another network."""
        before, self._published_address = self._published_address, self._links.address
        if before not in ("", self._published_address):
            self._publish(is_moved=True)

    def _note_caller(self, peer: Peer, host: str) -> None:
        if host not in own_addresses() and len(self._callers) < MAX_RESERVED_RELAYS:
            self._callers.add(peer.node)

    def _publish(self, *, is_moved: bool = False) -> None:
        """Say to others how this agent is reached, if that has changed."""
        before, holders = self._links.reach, self._links.reservations.holders[:MAX_RESERVED_RELAYS]
        is_open, addresses = bool(self.is_open) and not holders, self._links.further_addresses
        now = Reachability(before.revision + 1, self.outside, holders, is_open, addresses)
        if is_moved or now != msgspec.structs.replace(before, revision=now.revision):
            self._links.publish(now)
        self._wake.set()

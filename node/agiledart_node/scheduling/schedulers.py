"""`Schedulers`: the parts of scheduling, composed, as the node sees them."""

from collections.abc import Callable
from typing import Any

from agiledart_kernel.instants import Duration
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.desk.desk import Desk
from agiledart_node.forming.submission import Submissions
from agiledart_node.hosting.hosting import Hosting
from agiledart_node.hosting.watching import Watching
from agiledart_node.records.order_checks import Orders
from agiledart_node.records.records import Records
from agiledart_node.scheduling import messages as wire
from agiledart_node.scheduling.advertisements import Advertisements
from agiledart_node.scheduling.claims import Claims
from agiledart_node.scheduling.dispatching import Dispatching
from agiledart_node.scheduling.electing import Electing
from agiledart_node.scheduling.estate import TIMER as ESTATE
from agiledart_node.scheduling.estate import Estate
from agiledart_node.scheduling.finding import Finding
from agiledart_node.scheduling.gossip import TIMER as GOSSIP
from agiledart_node.scheduling.gossip import Gossip
from agiledart_node.scheduling.keeping import TIMER as KEEP
from agiledart_node.scheduling.keeping import Keeping
from agiledart_node.scheduling.role import Role
from agiledart_node.scheduling.serving import TIMER as DUTY
from agiledart_node.scheduling.serving import Serving

ANSWERS = (wire.Candidate, wire.Registered, wire.Renewed, wire.HandOverTaken, wire.Outcome)
"""Messages that answer a numbered question of a conversation."""


class Schedulers:
    """Scheduling of one node.

    Attributes:
        role: what this node is as a scheduler.
        known: advertisements of schedulers.
        keeping: who serves the applications that this node coordinates.
        by_message, by_timer: what takes a message or a timer.
    """

    def __init__(
        self,
        desk: Desk,
        records: Records,
        hosting: Hosting,
        watching: Watching,
        submissions: Submissions,
        orders: Orders,
        random: RandomStream,
    ) -> None:
        self._desk = desk
        life = Duration(desk.config.gossip_life * desk.config.gossip_interval_ns)
        self.known = known = Advertisements(life)
        self._gossip = gossip = Gossip(desk, known, random)
        claims = Claims(desk, records)
        self.role = role = Role(desk, gossip)
        electing = Electing(desk, known, gossip, claims, random)
        finding = Finding(desk, known, gossip, electing, random)
        self._serving = serving = Serving(desk, records, role, known, claims)
        self.estate = estate = Estate(desk, records, role, watching)
        self.keeping = keeping = Keeping(desk, records, hosting, finding, random)
        self.dispatching = dispatching = Dispatching(desk, records, submissions, gossip, finding, role, orders, random)
        self.by_message: dict[type, Callable[[Peer, Any], None]] = {
            wire.SchedulerNews: gossip.on_news,
            wire.FindScheduler: finding.on_find,
            wire.SchedulerFound: finding.on_found,
            wire.Canvass: lambda sender, message: serving.on_canvass(sender, message, hosting.operators),
            wire.Register: serving.on_register,
            wire.Release: serving.on_release,
            wire.Renew: serving.on_renew,
            wire.HandOver: dispatching.on_hand_over,
            wire.AskOutcome: dispatching.on_ask_outcome,
            wire.HandOverProgress: dispatching.on_progress,
            wire.SchedulerCopy: estate.on_copy,
            wire.FindAnother: keeping.on_find_another,
        }
        self.by_timer: dict[object, Callable[[], None]] = {
            GOSSIP: gossip.on_timer,
            DUTY: serving.on_timer,
            KEEP: keeping.on_timer,
            ESTATE: estate.on_timer,
        }

    @property
    def served(self) -> int | None:
        """Applications that this node serves; None: it is no scheduler."""
        return len(self.role.served) if self.role.office is not None else None

    @property
    def waiting(self) -> tuple[str, ...]:
        """Applications that wait here until some node has room for them."""
        return self.dispatching.room.waiting

    def neighbours_changed(self) -> None:
        """The leaf set is not what it was."""
        self.estate.touch()

    def peer_gone(self, peer: Peer) -> None:
        """A peer was declared dead or left."""
        self.known.drop(peer, self._desk.now)
        self.estate.peer_gone(peer)
        self.keeping.peer_gone(peer)

    async def leave(self) -> None:
        """This node is about to go."""
        await self._serving.leave()

    def violations(self) -> list[str]:
        """Of all parts."""
        parts = (self._gossip, self.role, self._serving, self.estate, self.keeping, self.dispatching)
        return [line for part in parts for line in part.violations()]

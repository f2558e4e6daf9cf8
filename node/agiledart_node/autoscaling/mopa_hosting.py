"""MOPA at a host: the applications with `moves = mopa` of which it runs instances. No node sees a whole application.

    reports, coordinate → `MopaRun` → positions to neighbours' hosts; at rest: nodes near the point → the coordinator's next look

Source: spec of placement §3, algorithm 1, and §10, "MOPA among hosts".
"""

from collections.abc import Sequence
from typing import Final

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import SECOND, Duration, Instant
from agiledart_kernel.machine import SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.node_context import NodeContext
from agiledart_node.context.pending_requests import PeerRequest
from agiledart_node.forming.network_of_loads import space_position
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.hosting.hosted_application import HostedApplication, Key
from agiledart_node.live_placement.mopa_run import Copy, MopaRun, PositionMail, RunView
from agiledart_node.live_placement.move_controller import MOPA
from agiledart_node.records.command_verifier import moves_of
from agiledart_node.records.summary import measures_of
from agiledart_node.recovery.recovery_service import RecoveryService
from agiledart_node.wire.formation_messages import Acknowledged
from agiledart_node.wire.mopa_messages import (
    ClusterPull,
    InstanceCopy,
    InstancePosition,
    NearestNodes,
    NearNode,
    PlaceNoted,
    QueryNearest,
    RequestPlace,
    SpacePoint,
)
from agiledart_placement.latency_space.mopa_instance import MAX_PAUSE_NS, PositionNews
from agiledart_placement.latency_space.nearest_walk import ACQUAINTANCES, NearestWalk, near_acquaintances
from agiledart_placement.latency_space.points import Point, distance
from agiledart_placement.problem.network_view import SpacePosition
from agiledart_recovery.wire.names import RunId

TIMER: Final = ("node", "mopa")

STEADY_MS: Final = 2.0
"""Move of this node's coordinate that counts: coordinates swing a little with every round trip."""

_PLAN: Codec[StagePlan] = Codec(StagePlan)
_MILLI = 1_000
_NS_PER_MS = 1_000_000
_FARTHEST_NS = 60 * SECOND


class MopaHosting:
    """The part of MOPA at one host.

    Args:
        draw: of pauses.
    """

    def __init__(
        self, context: NodeContext, hosting: ApplicationHost, recovery_service: RecoveryService, draw: RandomStream
    ) -> None:
        self._context, self._hosting, self._recovery_service = context, hosting, recovery_service
        self._draw = draw
        self._runs: dict[Key, MopaRun] = {}
        self._at: Point | None = None
        self._is_timed = False
        self.sent: dict[str, int] = {}
        """Messages that this host has sent, by kind: `position` of an instance, `question` for near nodes, `wish` for a place."""

    def look(self) -> None:
        """Start the timer if this node runs instances of an application with `moves = mopa`."""
        if not self._is_timed and self._hosted():
            self._begin()

    def on_timer(self) -> None:
        """Let all machines here react."""
        self._is_timed, hosted = False, self._hosted()
        self._runs = {key: run for key, run in self._runs.items() if key in hosted}
        if not hosted:
            return
        self._begin()
        place = space_position(self._context.overlay.coordinate)
        if place is None:
            return  # its own place is not sure yet
        if self._at is None or distance(self._at, place.point) >= STEADY_MS:
            self._at = place.point
        for key, application in hosted.items():
            run = self._runs.setdefault(key, MopaRun())
            view = self._view(application, self._at)
            if view is not None and not self._context.requests.is_full:
                self._step(key, run, view)

    def _begin(self) -> None:
        """Set the timer; the pause is random, since neighbours that react at the same time chase each other."""
        self._is_timed = True
        pause = SECOND + self._draw.index(MAX_PAUSE_NS // _NS_PER_MS) * _NS_PER_MS
        self._context.emit(SetTimer(TIMER, Instant(self._context.now + pause)))

    def _count(self, kind: str, number: int = 1) -> None:
        self.sent[kind] = self.sent.get(kind, 0) + number

    def _hosted(self) -> dict[Key, HostedApplication]:
        """Return the saved, flowing applications of this node with `moves = mopa`."""
        default = self._context.config.placement_moves
        return {
            key: hosted
            for key, hosted in self._hosting.table.items()
            if hosted.instances
            and hosted.is_flowing
            and not hosted.is_closing
            and hosted.part.by_epoch
            and (moves_of(hosted.part.signed_command) or default) == MOPA
        }

    @staticmethod
    def _view(hosted: HostedApplication, at: Point) -> RunView | None:
        try:
            plan = _PLAN.decode(hosted.part.plan)
        except RemoteProtocolError:
            return None  # another version wrote it
        rates = {
            (copy, edge.edge): edge.sent[-1] * SECOND / measures.span_ns * max(1, edge.row_bytes)
            for copy in hosted.instances
            if (measures := measures_of(hosted.reports.get(copy, {}))) is not None
            for edge in measures.edges
            if edge.edge < len(plan.edges)
        }
        return RunView(plan, hosted.part.places(), frozenset(hosted.instances), at, rates)

    def _step(self, key: Key, run: MopaRun, view: RunView) -> None:
        mails = run.step(view, self._context.now)
        if mails:
            self._context.requests.begin(self._send_positions(key, run, mails))
        for copy, point in run.resting(view, self._context.now):
            if not self._context.requests.is_full:
                self._context.requests.begin(self._find_place(key, copy, point))

    # ---- positions

    async def _send_positions(self, key: Key, run: MopaRun, mails: Sequence[PositionMail]) -> None:
        """Send positions; those that no host confirms are due again."""
        asked = {self._context.requests.number(): mail for mail in mails}
        questions: dict[int, PeerRequest | None] = {
            number: PeerRequest(mail.to, _message(number, key, mail), Acknowledged) for number, mail in asked.items()
        }
        self._count("position", len(questions))
        answers = await self._context.requests.answers(questions, Duration(self._context.config.ask_timeout_ns))
        for number, mail in asked.items():
            answer = answers.get(number)
            if not isinstance(answer, Acknowledged) or answer.reason:
                run.failed(mail)

    def position_received(self, sender: Peer, message: InstancePosition) -> None:
        """Take the position of a neighbour, from the node that runs it only."""
        hosted = self._hosting.table.get((message.application, message.version))
        run = self._runs.get((message.application, message.version))
        reason = ""
        if hosted is None or run is None or _copy(message.receiver) not in run.machines:
            reason = "the instance does not move here"
        elif (place := hosted.part.places().get(_copy(message.sender))) is None or place.node != sender.node:
            reason = "the sender does not run the instance"
        else:
            pulls = {
                (_copy(pull.member), _copy(pull.neighbour)): (_point(pull.at), pull.rate_milli / _MILLI)
                for pull in message.pulls
            }
            rate = None if message.rate_milli is None else message.rate_milli / _MILLI
            news = PositionNews(_point(message.at), pulls)
            run.received(_copy(message.sender), _copy(message.receiver), news, rate, self._context.now)
        self._context.send(sender, Acknowledged(message.request, reason))

    # ---- a place near the point

    def nearest(self, sender: Peer, message: QueryNearest) -> None:
        """Answer with the acquaintances that are nearest to a point."""
        self._context.send(sender, NearestNodes(message.request, self._near(_point(message.at))))

    def _near(self, point: Point) -> tuple[NearNode, ...]:
        overlay = self._context.overlay
        peers = {peer.node: peer for peer in overlay.known_peers()}
        near = near_acquaintances(point, self._acquaintances())
        coordinates = {node: overlay.coordinate_of(node) for node in near}
        return tuple(NearNode(peers[node], known) for node, known in coordinates.items() if known is not None)

    def _acquaintances(self) -> dict[NodeId, SpacePosition]:
        overlay = self._context.overlay
        places = {peer.node: space_position(overlay.coordinate_of(peer.node)) for peer in overlay.known_peers()}
        return {node: place for node, place in places.items() if place is not None}

    async def _find_place(self, key: Key, copy: Copy, point: Point) -> None:
        """Walk to the nodes near a point, and tell the coordinator: it knows measured delays, room and rules.

        A node that is a little farther by coordinates may be nearer by measurement, so this host names all of them.
        """
        me, own = self._context.me, space_position(self._context.overlay.coordinate)
        if own is None:
            return
        peers = {me.node: me} | {peer.node: peer for peer in self._context.overlay.known_peers()}
        walk = NearestWalk(point, {me.node: own} | self._acquaintances())
        while (node := walk.question()) is not None:
            near = self._near(point) if node == me.node else await self._ask_near(peers[node], point)
            if near is None:
                walk.failed(node)
                continue
            places = {other.peer.node: space_position(other.coordinate) for other in near}
            peers = {other.peer.node: other.peer for other in near} | peers
            walk.answered(node, {other: place for other, place in places.items() if place is not None})
        others = tuple(peers[node] for node in walk.best() if node != me.node)
        await self._ask_coordinator(key, copy, others)

    async def _ask_near(self, peer: Peer, point: Point) -> tuple[NearNode, ...] | None:
        self._count("question")
        requests, number = self._context.requests, self._context.requests.number()
        timeout = Duration(self._context.config.report_timeout_ns)
        answer = await requests.ask(peer, QueryNearest(number, _wire(point)), number, NearestNodes, timeout)
        return answer.nodes[:ACQUAINTANCES] if answer is not None else None

    async def _ask_coordinator(self, key: Key, copy: Copy, candidates: tuple[Peer, ...]) -> None:
        """Send a wish, which may be empty, to the coordinator, which is one of the voters."""
        part = self._recovery_service.machine.participants.get(RunId(*key))
        if part is None or part.value is None:
            return
        self._count("wish")
        requests, timeout = self._context.requests, Duration(self._context.config.report_timeout_ns)
        for voter in (*part.value.voters, *part.value.old_voters):
            number = requests.number()
            message = RequestPlace(number, *key, InstanceCopy(*copy), candidates)
            answer = await requests.ask(voter.peer, message, number, PlaceNoted, timeout)
            if answer is not None and not answer.is_not_coordinator:
                return


def _message(number: int, key: Key, mail: PositionMail) -> InstancePosition:
    pulls = tuple(
        ClusterPull(InstanceCopy(*member), InstanceCopy(*other), _wire(point), round(rate * _MILLI))
        for (member, other), (point, rate) in mail.news.pulls.items()
    )
    rate = None if mail.rate is None else round(mail.rate * _MILLI)
    sender, receiver = InstanceCopy(*mail.sender), InstanceCopy(*mail.receiver)
    return InstancePosition(number, *key, sender, receiver, _wire(mail.news.at), rate, pulls)


def _wire(point: Point) -> SpacePoint:
    return SpacePoint(*(max(-_FARTHEST_NS, min(_FARTHEST_NS, round(part * _NS_PER_MS))) for part in point))


def _point(wire: SpacePoint) -> Point:
    return wire.x / _NS_PER_MS, wire.y / _NS_PER_MS, wire.z / _NS_PER_MS


def _copy(wire: InstanceCopy) -> Copy:
    return wire.stage, wire.index

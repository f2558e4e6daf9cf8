"""JOIN paths: routed from the source nodes to the sink nodes, recorded on the way, merged into a tree at the sinks.

Source: [AgileDART] §IV-A; spec of the dataflow graph, section 3 steps 2 to 4.
"""

from hashlib import sha256

from agiledart_kernel.instants import Duration
from agiledart_kernel.limits import MAX_PATH, MAX_STAGES
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.context.pending_requests import PeerRequest
from agiledart_node.forming.formation import JoinSoftState, is_path, merged_tree
from agiledart_node.wire.formation_messages import (
    ROUTED_CODEC,
    Acknowledged,
    CollectJoins,
    Join,
    JoinArrived,
    JoinTree,
    SendJoins,
)
from agiledart_overlay.wire.effects import Delivered, Forwarding
from agiledart_overlay.wire.events import RouteMessage

Paths = tuple[tuple[Peer, ...], ...]


class JoinProtocol:
    """This node's part in JOINs: as source, as forwarder, as sink, and as scheduler."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self.soft_state = JoinSoftState(Duration(context.config.soft_state_ns))
        self._collecting: dict[tuple[NodeId, int], JoinTree | None] = {}
        self._waiting: dict[tuple[int, NodeId], list[int]] = {}

    def key_of(self, sink: NodeId) -> NodeId:
        """Return the key to which JOINs to a sink node are routed."""
        if self._context.config.join_key == "node_id":
            return sink
        return NodeId.from_bytes16(sha256(sink.to_bytes16()).digest()[:16])

    def send_joins(self, sender: Peer, message: SendJoins) -> None:
        """Route a JOIN to each of the sinks, as source node."""
        for sink in message.sinks[:MAX_STAGES]:
            join = Join(message.number, sink, self._context.me)
            self._context.deliver_to_overlay(RouteMessage(self.key_of(sink.node), ROUTED_CODEC.encode(join)))
        self._context.send(sender, Acknowledged(message.request))

    def forwarding(self, effect: Forwarding, join: Join) -> None:
        """Note the previous and the next hop of a JOIN, as forwarder."""
        previous = effect.previous.node if effect.previous is not None else None
        self.soft_state.passed(join.number, join.sink.node, previous, effect.next.node, self._context.now)

    def delivered(self, effect: Delivered, join: Join) -> None:
        """Handle a JOIN at the end of its route: this node is the sink, or the rendezvous with one more link to it."""
        if join.source.node != effect.source.node:
            self._context.drop("join source")
        elif join.sink.node == self._context.me.node:
            self._arrived(join.number, effect.path)
        elif self._context.config.join_key == "hash":
            self._context.send(join.sink, JoinArrived(join.number, effect.path))
        else:
            self._context.drop("join delivered elsewhere")

    def arrived(self, sender: Peer, message: JoinArrived) -> None:
        """Accept a JOIN from the rendezvous, as sink."""
        if message.path and message.path[-1].node == sender.node:
            path = message.path if sender.node == self._context.me.node else (*message.path, self._context.me)
            self._arrived(message.number, path)

    def _arrived(self, number: int, path: tuple[Peer, ...]) -> None:
        source = path[0].node
        if not is_path(path, source, self._context.me.node):
            self._context.drop("join path")
            return
        previous = path[-2].node if len(path) > 1 else None
        self.soft_state.passed(number, self._context.me.node, previous, None, self._context.now)
        self.soft_state.arrived(number, source, path, self._context.now)
        for waiting in self._waiting.pop((number, source), []):
            self._context.requests.resolve(waiting, path)

    def collect(self, sender: Peer, message: CollectJoins) -> None:
        """Collect the JOINs of these sources for the scheduler, as sink."""
        key = (sender.node, message.request)
        if key in self._collecting:
            answer = self._collecting[key]
            if answer is not None:
                self._context.send(sender, answer)
            return
        if self._context.requests.is_full or len(message.sources) > MAX_STAGES:
            self._context.drop("collect refused")
            return
        if len(self._collecting) >= MAX_PATH:
            del self._collecting[next(iter(self._collecting))]
        self._collecting[key] = None
        self._context.requests.begin(self._collect(sender, message))

    async def _collect(self, sender: Peer, message: CollectJoins) -> None:
        numbers: dict[int, PeerRequest | None] = {}
        for source in message.sources:
            if message.are_new or self.soft_state.path_from(message.number, source) is None:
                number = self._context.requests.number()
                numbers[number] = None
                self._waiting.setdefault((message.number, source), []).append(number)
        if numbers:
            await self._context.requests.answers(numbers, Duration(self._context.config.join_timeout_ns))
        paths, missing = [], []
        for source in message.sources:
            self._waiting.pop((message.number, source), None)
            path = self.soft_state.path_from(message.number, source)
            if path is None:
                missing.append(source)
            else:
                paths.append(path)
        tree = JoinTree(message.request, merged_tree(tuple(paths)), tuple(missing))
        if (sender.node, message.request) in self._collecting:
            self._collecting[sender.node, message.request] = tree
        self._context.send(sender, tree)

    async def form(
        self, number: int, wanted: dict[NodeId, tuple[Peer, tuple[Peer, ...]]], *, are_new: bool = False
    ) -> Paths:
        """Return the tree of each sink node, as scheduler.

        Args:
            number: of the application.
            wanted: sink node → (its peer, its source nodes).
            are_new: the paths of now, not those that sinks have recorded.

        Raises:
            CommandRefused: sources or sinks cannot be reached, after `join_attempts`.
        """
        paths: dict[NodeId, Paths] = {}
        missing: dict[NodeId, list[str]] = {}
        for _ in range(self._context.config.join_attempts):
            open_sinks = {sink: pair for sink, pair in sorted(wanted.items()) if sink not in paths}
            if not open_sinks:
                break
            missing = await self._attempt(number, open_sinks, paths, are_new=are_new)
        if len(paths) < len(wanted):
            lines = [
                f"{self._context.names().get(sink, wanted[sink][0].name)} was not reached from {', '.join(names)}"
                for sink, names in sorted(missing.items())
            ]
            raise CommandRefused(
                f"The nodes of the sinks cannot be reached: {'; '.join(lines)}. Check: agiledart nodes"
            )
        return tuple(path for sink in sorted(paths) for path in paths[sink])

    async def _attempt(
        self,
        number: int,
        wanted: dict[NodeId, tuple[Peer, tuple[Peer, ...]]],
        paths: dict[NodeId, Paths],
        *,
        are_new: bool,
    ) -> dict[NodeId, list[str]]:
        """Send one JOIN from each source to each remaining sink; return the unreached sources by sink."""
        requests = self._context.requests
        by_source: dict[NodeId, tuple[Peer, list[Peer]]] = {}
        questions: dict[int, PeerRequest | None] = {}
        asked: dict[NodeId, int] = {}
        for sink, (peer, sources) in wanted.items():
            asked[sink] = requests.number()
            collect = CollectJoins(asked[sink], number, tuple(source.node for source in sources), are_new)
            questions[asked[sink]] = PeerRequest(peer, collect, JoinTree)
            for source in sources:
                by_source.setdefault(source.node, (source, []))[1].append(peer)
        for _, (source, sinks) in sorted(by_source.items()):
            request = requests.number()
            send = SendJoins(request, number, tuple(sinks), self._context.me)
            questions[request] = PeerRequest(source, send, Acknowledged)
        timeout = Duration(self._context.config.join_timeout_ns + self._context.config.resend_ns * 2)
        answers = await requests.answers(questions, timeout)
        # None, unlike a missing answer, means a dead peer: repeating the JOIN cannot help.
        for number_asked, question in questions.items():
            if question is not None and number_asked in answers and answers[number_asked] is None:
                name = question.to.name or question.to.node.short
                raise CommandRefused(f"{name} is gone; a source or sink is pinned to it. Check: agiledart nodes")
        missing: dict[NodeId, list[str]] = {}
        for sink, (_, sources) in wanted.items():
            tree = answers.get(asked[sink])
            expected = [source.node for source in sources]
            if tree is not None and not tree.missing and _is_tree(tree.paths, expected, sink):
                paths[sink] = tree.paths
            else:
                lost = tree.missing if tree is not None else tuple(expected)
                missing[sink] = [source.name or source.node.short for source in sources if source.node in lost]
        return missing


def _is_tree(paths: Paths, sources: list[NodeId], sink: NodeId) -> bool:
    """Return whether a sink's answer has one path from each source to it."""
    return [path[0].node for path in paths if path] == sources and all(
        is_path(path, path[0].node, sink) for path in paths
    )

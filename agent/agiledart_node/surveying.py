"""Who could host: loads of the nodes on the JOIN paths and of those around them."""

from agiledart_dataflow.formation_messages import Load, Survey
from agiledart_kernel.instants import Duration
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.conversations import Question
from agiledart_node.desk import Desk
from agiledart_node.hosting import Hosting

MAX_CANDIDATES = 24
"""Overflow candidates that a node names."""

SPARE = 8
"""Nodes surveyed beyond two for each instance, so that a full one can be passed over."""


class Surveying:
    """Asks for loads, and answers."""

    def __init__(self, desk: Desk, hosting: Hosting) -> None:
        self._desk, self._hosting = desk, hosting

    def load(self, request: int) -> Load:
        """What this node says of itself."""
        config = self._desk.config
        return Load(
            request,
            self._hosting.operators,
            self._hosting.applications,
            config.capacity,
            config.executors,
            self._desk.is_leaving,
            self._desk.nearest(MAX_CANDIDATES),
        )

    async def loads(self, peers: list[Peer], timeout: int) -> dict[NodeId, tuple[Peer, Load]]:
        """Answers of these nodes; the silent ones are missing."""
        asked: dict[int, Question | None] = {}
        for peer in peers:
            number = self._desk.talks.number()
            asked[number] = Question(peer, Survey(number), Load)
        answers = await self._desk.talks.answers(asked, Duration(timeout))
        found = {}
        for number, question in asked.items():
            load = answers.get(number)
            if question is not None and load is not None:
                found[question.to.node] = (question.to, load)
        return found

    async def around(self, nodes: list[Peer], instances: int) -> dict[NodeId, tuple[Peer, Load]]:
        """Loads of these nodes, then of as many of their candidates as this many instances may need."""
        config = self._desk.config
        found = await self.loads(nodes[: config.max_survey], config.ask_timeout_ns)
        limit = min(config.max_survey, 2 * instances + SPARE + len(found))
        more: dict[NodeId, Peer] = {}
        for rank in range(MAX_CANDIDATES):
            for _, load in list(found.values()):
                if rank < len(load.candidates) and len(found) + len(more) < limit:
                    candidate = load.candidates[rank]
                    if candidate.node not in found:
                        more.setdefault(candidate.node, candidate)
        found.update(await self.loads(list(more.values()), config.report_timeout_ns))
        return found

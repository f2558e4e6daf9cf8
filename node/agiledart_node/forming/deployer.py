"""Deployment of a plan along the paths: waves of parts, from the sinks to the sources.

Source: [AgileDART] §IV-A; spec of the dataflow graph, section 3 step 5.
"""

from dataclasses import dataclass, field

from agiledart_dataflow.plan.delivery import DEFAULT, Delivery
from agiledart_dataflow.plan.deployment import DeploymentPart, InstanceAddress, InstancePlace, PlacedInstance
from agiledart_kernel.instants import Duration
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.context.pending_requests import PeerRequest
from agiledart_node.forming.blueprint import Blueprint
from agiledart_node.forming.formation import waves
from agiledart_node.wire.formation_messages import Acknowledged, Deploy, Deployed, StartFlow

DEPLOY_RESEND_INTERVALS = 5
"""Resend intervals before a part is sent again: it may contain megabytes of code, and executors start slowly."""


class NodeFull(Exception):
    """Nodes have too little capacity for the plan; `reason` is that of one of them."""

    def __init__(self, nodes: list[NodeId], reason: str) -> None:
        super().__init__(reason)
        self.nodes, self.reason = nodes, reason


@dataclass(slots=True)
class Deployment:
    """One attempt to deploy an application.

    Attributes:
        nodes: hosts sorted by id, then guards.
        placement: (stage, index) → node.
        executors: executor processes per node.
        limits: operator instances that a node may have including its part; missing: its capacity.
        away: of each stage, why its instances are not on the node of its path.
        touched: nodes that were sent a part, in order; they must be halted when the deployment fails.
        goes_on: it starts with the state of another run.
    """

    blueprint: Blueprint
    application: str
    version: int
    number: int
    attempt: int
    bundle: bytes
    nodes: tuple[Peer, ...]
    guards: tuple[Peer, ...]
    placement: dict[tuple[int, int], NodeId]
    executors: dict[NodeId, int]
    coordinator: Peer
    domain: str = ""
    delivery: Delivery = DEFAULT
    signed_command: bytes = b""
    owner: bytes = b""
    limits: dict[NodeId, int] = field(default_factory=dict)
    away: tuple[str, ...] = ()
    signed_entries: tuple[bytes, ...] = ()
    touched: list[Peer] = field(default_factory=list)
    goes_on: bool = False

    @property
    def everyone(self) -> tuple[Peer, ...]:
        """Hosts, then guards."""
        return (*self.nodes, *self.guards)

    def assignment(self) -> tuple[InstancePlace, ...]:
        """Return every instance with the position of its node."""
        position = {peer.node: index for index, peer in enumerate(self.nodes)}
        return tuple(
            InstancePlace(stage, index, position[node]) for (stage, index), node in sorted(self.placement.items())
        )

    def slots(self) -> dict[tuple[int, int], int]:
        """Return (stage, index) → executor slot: a node's instances use its executors round-robin."""
        counts: dict[NodeId, int] = {}
        slots = {}
        for copy, node in sorted(self.placement.items()):
            position = counts.get(node, 0)
            counts[node] = position + 1
            slots[copy] = position % self.executors[node]
        return slots

    def downstream(self, stages: list[int]) -> frozenset[int]:
        """Return the stages that these stages send to."""
        return frozenset(below for above, below in self.blueprint.edges if above in stages)


def _is_full(answer: object) -> bool:
    return isinstance(answer, Deployed) and answer.is_full


class Deployer:
    """Sends parts and starts the flow, as scheduler."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    async def deploy(self, work: Deployment) -> None:
        """Start all instances, wave after wave. All other hosts get the code with the first wave, to load it meanwhile.

        Raises:
            NodeFull: a node refused for lack of capacity; all touched nodes must be halted.
            CommandRefused: a node could not start its part, or is gone.
        """
        addresses: dict[tuple[int, int], str] = {}
        assignment, slots = work.assignment(), work.slots()
        first = True
        for wave in waves(len(work.blueprint.stages), work.blueprint.edges):
            questions: dict[int, PeerRequest | None] = {}
            by_node: dict[NodeId, list[tuple[int, int]]] = {}
            for copy, node in sorted(work.placement.items()):
                if copy[0] in wave:
                    by_node.setdefault(node, []).append(copy)
            for peer in work.nodes:
                if peer.node in by_node:
                    part = self._part(work, assignment, slots, addresses, peer, by_node[peer.node])
                    self._ask(questions, peer, part)
                    if peer not in work.touched:
                        work.touched.append(peer)
            hosts = list(questions)
            # The other hosts and the guards get their part with the first wave, without instances: hosts load the code while the
            # sinks start. A guard's refusal does not matter, so guards are not among `hosts`.
            if first:
                waiting = [peer for peer in work.nodes if peer not in work.touched]
                for peer in (*waiting, *work.guards):
                    self._ask(questions, peer, self._part(work, assignment, slots, {}, peer, []))
                hosts = list(questions)[: len(questions) - len(work.guards)]
                work.touched += waiting
                work.touched += work.guards
                first = False
            timeout = Duration(self._context.config.start_timeout_ns + self._context.config.ask_timeout_ns)
            answers = await self._context.requests.answers({number: questions[number] for number in questions}, timeout)
            # A full node calls for another plan; it is checked before failures, which end the deployment.
            full = [questions[number] for number in hosts if _is_full(answers.get(number))]
            if full:
                reason = next(answers[number].reason for number in hosts if _is_full(answers.get(number)))
                raise NodeFull([question.to.node for question in full if question is not None], reason)
            for number in hosts:
                question = questions[number]
                assert question is not None
                self._check(work, question.to, answers.get(number), addresses)

    def _ask(self, questions: dict[int, PeerRequest | None], peer: Peer, part: DeploymentPart) -> None:
        number = self._context.requests.number()
        questions[number] = PeerRequest(peer, Deploy(number, part), Deployed, DEPLOY_RESEND_INTERVALS)

    def _part(
        self,
        work: Deployment,
        assignment: tuple[InstancePlace, ...],
        slots: dict[tuple[int, int], int],
        addresses: dict[tuple[int, int], str],
        peer: Peer,
        copies: list[tuple[int, int]],
    ) -> DeploymentPart:
        below = work.downstream([stage for stage, _ in copies])
        known = tuple(
            InstanceAddress(stage, index, address)
            for (stage, index), address in sorted(addresses.items())
            if stage in below
        )
        return DeploymentPart(
            work.application,
            work.version,
            work.number,
            work.attempt,
            work.blueprint.specification,
            work.blueprint.plan,
            work.bundle if peer not in work.touched and peer not in work.guards else b"",
            work.everyone,
            tuple(PlacedInstance(stage, index, slots[stage, index]) for stage, index in copies),
            assignment,
            known,
            work.coordinator,
            self._context.me,
            work.executors.get(peer.node, 1),
            work.domain,
            work.limits.get(peer.node, 0),
            work.delivery.is_saved,
            work.signed_command,
            work.owner,
            work.signed_entries,
            goes_on=work.goes_on,
            duplicates=work.delivery.duplicates,
            saves_less=work.delivery.saves_less,
        )

    def whole_part(self, work: Deployment) -> DeploymentPart:
        """Return the common content of all parts."""
        return self._part(work, work.assignment(), work.slots(), {}, self._context.me, [])

    def _check(
        self, work: Deployment, peer: Peer, answer: Deployed | None, addresses: dict[tuple[int, int], str]
    ) -> None:
        name = peer.name or peer.node.short
        if answer is None:
            raise CommandRefused(f"{name} is gone or does not answer; it was to run a part of {work.application}.")
        if answer.reason:
            raise CommandRefused(answer.reason)
        for given in answer.addresses:
            if work.placement.get((given.stage, given.index)) == peer.node:
                addresses[given.stage, given.index] = given.address

    async def start_flow(self, work: Deployment) -> list[Peer]:
        """Start the flow on all nodes; return hosts that did not acknowledge."""
        timeout = Duration(self._context.config.ask_timeout_ns)
        answers = await self._context.requests.ask_all(
            work.everyone, lambda number, _: StartFlow(number, work.application, work.version), Acknowledged, timeout
        )
        return [peer for peer, answer in answers if answer is None and peer in work.nodes]

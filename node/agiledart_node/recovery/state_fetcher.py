"""The state of an instance that another host had: found on this disk, or rebuilt from any m fragments of its neighbours.

An element that lies here is taken only when it is whole; a damaged one is rebuilt like one that never was here.
"""

from collections.abc import Callable, Container

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.instants import Duration
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.wire.checkpoint_effects import FetchSnapshot
from agiledart_node.wire.fragment_effects import FetchFragment, FindSnapshot, RebuildSnapshot, StoreFragment
from agiledart_recovery.fragments.arithmetic import fragment_bytes
from agiledart_recovery.fragments.snapshot_rebuild import RebuildState, SnapshotRebuild
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire import effects as asked
from agiledart_recovery.wire.names import RunId
from agiledart_recovery.wire.register_value import InstanceRole, InstanceSnapshot, RegisterValue, SavedState

_PLAN: Codec[StagePlan] = Codec(StagePlan)

ReportProgress = Callable[[int, int], None]
"""(bytes that are here, of how many)"""


DIRECT_FETCH_BYTES = 32 << 20
"""Larger elements are fetched from their holders, who are told how far that is: in one go nobody would hear for minutes."""


class StateUnavailable(OperationFailed):
    """A state cannot be rebuilt of the fragments that there are.

    Attributes:
        holders: of all its fragments.
    """

    def __init__(self, text: str, replica_nodes: tuple[NodeId, ...]) -> None:
        super().__init__(text)
        self.replica_nodes = replica_nodes


class StateFetcher:
    """Brings fragments to holders and back.

    Args:
        step: hands an outcome to the recovery machine; `flush` carries out what it was asked outside of a step.
    """

    def __init__(
        self, context: NodeContext, machine: RecoveryMachine, step: Callable[[Event], None], flush: Callable[[], None]
    ) -> None:
        self._context, self._machine, self._step, self._flush = context, machine, step, flush
        self._rebuilding: dict[int, tuple[SnapshotRebuild, ReportProgress | None]] = {}

    # ---- one fragment

    def send(self, effect: asked.SendFragment, secret: bytes) -> None:
        """Bring a fragment to its holder."""
        self._context.requests.begin(self._send_fragment(effect, secret))

    async def _send_fragment(self, effect: asked.SendFragment, secret: bytes) -> None:
        replica_node, number = self._peer(effect.replica_node), self._context.requests.number()
        if replica_node is None:
            self._step(Failed(effect.request, "nobody knows where it is"))
            return
        command = StoreFragment(number, replica_node, effect.key, effect.snapshot, secret, effect.attempt)
        answers = await self._context.ask_driver(number, command, self._timeout_ns(effect.snapshot))
        self._step(_outcome(effect.request, answers.get(number)))

    def fetch(self, effect: asked.FetchStripe) -> None:
        """Fetch a fragment, or a stripe of it."""
        self._context.requests.begin(self._fetch_stripe(effect))

    async def _fetch_stripe(self, effect: asked.FetchStripe) -> None:
        replica_node, number = self._peer(effect.replica_node), self._context.requests.number()
        if replica_node is None:
            outcome: Event = Failed(effect.request, "nobody knows where it is")
        else:
            command = FetchFragment(number, replica_node, effect.key, effect.snapshot, effect.offset, effect.length)
            answers = await self._context.ask_driver(number, command, self._timeout_ns(effect.snapshot))
            outcome = _outcome(effect.request, answers.get(number))
        self._step(outcome)
        for waiting, (rebuild, report_progress) in list(self._rebuilding.items()):
            if rebuild.state in (RebuildState.READY, RebuildState.LOST):
                self._context.requests.answered(waiting, True)
            else:
                self._report_progress(rebuild, report_progress)

    def _timeout_ns(self, snapshot: InstanceSnapshot) -> int:
        config = self._context.config.recovery
        return config.ack_timeout_ns + snapshot.length * config.slowest_ns

    def _peer(self, node: NodeId) -> Peer | None:
        if node == self._context.me.node:
            return self._context.me  # who takes over may hold a fragment itself
        return next((peer for peer in self._context.overlay.known_peers() if peer.node == node), None)

    # ---- one element

    async def ensure_local(
        self,
        run: RunId,
        saved: SavedState,
        value: RegisterValue,
        known: Container[bytes] = (),
        report_progress: ReportProgress | None = None,
        origin: Peer | None = None,
    ) -> list[InstanceSnapshot]:
        """See to it that the elements of a party lie here; those that did not.

        Args:
            known: digests of elements of which that was seen before.
            told: of how much of one is here; None: the coordinator of the life.
            origin: who has saved them, and is asked before their holders are.

        Raises:
            StateLacking: too few of its fragments can be had; says of whom.
        """
        fetched: list[InstanceSnapshot] = []
        for snapshot in saved.chain:
            if snapshot.digest in known:
                continue
            number = self._context.requests.number()
            find = FindSnapshot(number, run, snapshot.digest)
            found = (await self._context.ask_driver(number, find, self._timeout_ns(snapshot))).get(number)
            if isinstance(found, Completed) and found.result is True:
                continue
            if value.is_brought:
                await self._fetch_initial_checkpoint(run, saved, snapshot)
            elif origin is not None and await self._fetch_from_origin(origin, run, snapshot):
                pass
            else:
                await self._rebuild(run, saved, snapshot, value, report_progress)
            fetched.append(snapshot)
        return fetched

    async def _fetch_from_origin(self, origin: Peer, run: RunId, snapshot: InstanceSnapshot) -> bool:
        """Fetch an element from who has saved it; is it here?"""
        is_near = origin.node == self._context.me.node or self._context.requests.is_gone(origin)
        if is_near or (snapshot.length > DIRECT_FETCH_BYTES and snapshot.replica_nodes):
            return False
        number = self._context.requests.number()
        command = FetchSnapshot(number, origin, run, snapshot.digest, snapshot.length)
        return isinstance(
            (await self._context.ask_driver(number, command, self._timeout_ns(snapshot))).get(number), Completed
        )

    async def _fetch_initial_checkpoint(self, run: RunId, saved: SavedState, snapshot: InstanceSnapshot) -> None:
        """Fetch an element of a checkpoint from the agent that was asked to begin with it."""
        replica_node, number = (
            self._peer(snapshot.replica_nodes[0]) if snapshot.replica_nodes else None,
            self._context.requests.number(),
        )
        if replica_node is None and snapshot.replica_nodes[:1] == (self._context.me.node,):
            replica_node = self._context.me
        if replica_node is not None:
            command = FetchSnapshot(number, replica_node, run, snapshot.digest, snapshot.length)
            answer = (await self._context.ask_driver(number, command, self._timeout_ns(snapshot))).get(number)
            if isinstance(answer, Completed):
                return
            why = answer.reason if isinstance(answer, Failed) else "it took too long"
        else:
            why = "it cannot be reached"
        names = ", ".join(self._machine.name_of(one) for one in snapshot.replica_nodes)
        raise StateUnavailable(
            f"the checkpoint with which {saved.instance} begins lies on {names}: {why}", snapshot.replica_nodes
        )

    async def _rebuild(
        self,
        run: RunId,
        saved: SavedState,
        snapshot: InstanceSnapshot,
        value: RegisterValue,
        report_progress: ReportProgress | None,
    ) -> None:
        if not any(snapshot.replica_nodes):
            # Of what is bound to its node: nobody else can help, so it is this node that is waited for, as of another one a holder.
            raise StateUnavailable(_only_here(run, saved, snapshot, value, self._context.me), (self._context.me.node,))
        rebuild = self._machine.rebuild(run, saved.instance, snapshot)
        self._flush()
        while True:
            await self._until_decided(rebuild, report_progress)
            if rebuild.state is not RebuildState.READY:
                raise StateUnavailable(
                    self._too_few_fragments(saved, snapshot),
                    tuple(replica_node for replica_node in snapshot.replica_nodes if replica_node),
                )
            number = self._context.requests.number()
            key = asked.FragmentKey(run, saved.instance, snapshot.checkpoint, 0)
            command = RebuildSnapshot(number, key, snapshot, tuple(rebuild.pieces), value.key)
            answers = await self._context.ask_driver(number, command, self._timeout_ns(snapshot))
            if isinstance(answers.get(number), Completed):
                return
            rebuild.on_wrong_hash()
            self._flush()

    async def _until_decided(self, rebuild: SnapshotRebuild, report_progress: ReportProgress | None) -> None:
        while rebuild.state not in (RebuildState.READY, RebuildState.LOST):
            number = self._context.requests.number()
            self._rebuilding[number] = rebuild, report_progress
            try:
                timeout_ns = Duration(2 * self._timeout_ns(rebuild.snapshot))
                if not await self._context.requests.answers({number: None}, timeout_ns):
                    return
            finally:
                del self._rebuilding[number]

    def _report_progress(self, rebuild: SnapshotRebuild, report_progress: ReportProgress | None) -> None:
        part = self._machine.participants.get(rebuild.run)
        got = sum(len(piece) for stripe in rebuild.pieces for piece in stripe.values())
        of = rebuild.snapshot.m * fragment_bytes(rebuild.snapshot.length, rebuild.snapshot.m)
        if report_progress is not None:
            report_progress(got, of)
        elif part is not None:
            self._machine.report_entering(rebuild.run, part.attempt, "fetch", got, of)
            self._flush()

    def _too_few_fragments(self, saved: SavedState, snapshot: InstanceSnapshot) -> str:
        replica_nodes = sorted(
            self._machine.name_of(replica_node) for replica_node in snapshot.replica_nodes if replica_node
        )
        where = ", ".join(replica_nodes)
        return f"the state of {saved.instance} needs {snapshot.m} of its fragments, which lie on {where}: fewer could be had whole"


def _only_here(run: RunId, saved: SavedState, snapshot: InstanceSnapshot, value: RegisterValue, me: Peer) -> str:
    """What is the matter with an element of which there is one copy, and what to do."""
    roles = {each.instance: each.role for each in value.plan.assignments}
    stages = _PLAN.decode(value.plan.body).stages if value.plan.body else ()
    stage_name = next((stage.name for stage in stages if str(stage.index) == saved.instance.stage), str(saved.instance))
    return (
        f"what the {roles.get(saved.instance, InstanceRole.STAGE)} {stage_name} saved at epoch {snapshot.checkpoint.epoch} is damaged or gone on"
        f" {me.name or me.node.short}, and lies nowhere else. Put back the file elements/{snapshot.digest.hex()[:16]}… of {run.app}"
        f" there, or end it (agiledart stop {run.app} --now) and begin it anew"
    )


def _outcome(request: int, answer: Completed | Failed | None) -> Event:
    if isinstance(answer, Completed):
        return Completed(request, answer.result)
    return Failed(request, answer.reason if isinstance(answer, Failed) else "the holder did not answer in time")

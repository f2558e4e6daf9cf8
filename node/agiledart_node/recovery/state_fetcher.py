"""State of an instance that ran on another host: found on this disk, or rebuilt from any m fragments of its replica nodes.

A snapshot on this disk is used only when it is intact; a damaged one is rebuilt like a missing one.
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
"""Callback of a transfer: (bytes that are here, total bytes)."""


DIRECT_FETCH_BYTES = 32 << 20
"""Size up to which a snapshot is fetched whole from its host.

Larger ones are fetched in stripes from their replica nodes, with reports of progress; a whole transfer would be silent for
minutes.
"""


NO_KEY = "the key of the run's state did not come: too few of its voters, and no other host, gave their part of it"


class StateUnavailable(OperationFailed):
    """Failure to rebuild a state, because too few of its fragments can be read.

    Attributes:
        replica_nodes: nodes that hold its fragments.
    """

    def __init__(self, text: str, replica_nodes: tuple[NodeId, ...]) -> None:
        super().__init__(text)
        self.replica_nodes = replica_nodes


class StateFetcher:
    """Sends fragments to their replica nodes, and fetches them.

    Args:
        step: passes an outcome to the recovery machine.
        flush: carries out effects that the machine has produced outside of a step.
    """

    def __init__(
        self, context: NodeContext, machine: RecoveryMachine, step: Callable[[Event], None], flush: Callable[[], None]
    ) -> None:
        self._context, self._machine, self._step, self._flush = context, machine, step, flush
        self._rebuilding: dict[int, tuple[SnapshotRebuild, ReportProgress | None]] = {}
        self._without_key: dict[int, RunId] = {}

    # ---- one fragment

    def send(self, effect: asked.SendFragment) -> None:
        """Send a fragment to its replica node."""
        self._context.requests.begin(self._send_fragment(effect))

    async def _send_fragment(self, effect: asked.SendFragment) -> None:
        replica_node, number = self._peer(effect.replica_node), self._context.requests.number()
        if replica_node is None:
            self._step(Failed(effect.request, "its address is not known"))
            return
        run_key = await self._run_key(effect.key.run, self._timeout_ns(effect.snapshot))
        if not run_key:
            self._step(Failed(effect.request, NO_KEY))
            return
        command = StoreFragment(number, replica_node, effect.key, effect.snapshot, run_key, effect.attempt)
        answers = await self._context.ask_driver(number, command, self._timeout_ns(effect.snapshot))
        self._step(_outcome(effect.request, answers.get(number)))

    async def _run_key(self, run: RunId, timeout_ns: int) -> bytes:
        """Return the run's key, once this host has it; empty when neither voters nor hosts give it in time."""
        key = self._machine.run_key(run)
        self._flush()
        if not key:
            number = self._context.requests.number()
            self._without_key[number] = run
            try:
                await self._context.requests.answers({number: None}, Duration(timeout_ns))
            finally:
                del self._without_key[number]
            key = self._machine.run_key(run)
        return key

    def on_run_key(self, run: RunId) -> None:
        """Continue what waits for the key of a run."""
        for number, waiting in list(self._without_key.items()):
            if waiting == run:
                self._context.requests.resolve(number, True)

    def fetch(self, effect: asked.FetchStripe) -> None:
        """Fetch a fragment, or a stripe of one."""
        self._context.requests.begin(self._fetch_stripe(effect))

    async def _fetch_stripe(self, effect: asked.FetchStripe) -> None:
        replica_node, number = self._peer(effect.replica_node), self._context.requests.number()
        if replica_node is None:
            outcome: Event = Failed(effect.request, "its address is not known")
        else:
            command = FetchFragment(number, replica_node, effect.key, effect.snapshot, effect.offset, effect.length)
            answers = await self._context.ask_driver(number, command, self._timeout_ns(effect.snapshot))
            outcome = _outcome(effect.request, answers.get(number))
        self._step(outcome)
        for waiting, (rebuild, report_progress) in list(self._rebuilding.items()):
            if rebuild.state in (RebuildState.READY, RebuildState.LOST):
                self._context.requests.resolve(waiting, True)
            else:
                self._report_progress(rebuild, report_progress)

    def _timeout_ns(self, snapshot: InstanceSnapshot) -> int:
        config = self._context.config.recovery
        return config.ack_timeout_ns + snapshot.length * config.slowest_ns

    def _peer(self, node: NodeId) -> Peer | None:
        if node == self._context.me.node:
            return self._context.me  # the node that takes over may hold a fragment itself
        return next((peer for peer in self._context.overlay.known_peers() if peer.node == node), None)

    # ---- one snapshot

    async def ensure_local(
        self,
        run: RunId,
        saved: SavedState,
        value: RegisterValue,
        known: Container[bytes] = (),
        report_progress: ReportProgress | None = None,
        origin: Peer | None = None,
    ) -> list[InstanceSnapshot]:
        """Fetch the snapshots of an instance that are missing on this disk, and return them.

        Args:
            known: digests of snapshots that were found here before.
            report_progress: receives the progress of a snapshot; None: the coordinator of the attempt does.
            origin: the node that has saved them; it is asked before their replica nodes.

        Raises:
            StateUnavailable: too few fragments of a snapshot can be read.
        """
        fetched: list[InstanceSnapshot] = []
        for snapshot in saved.chain:
            if snapshot.digest in known:
                continue
            number = self._context.requests.number()
            find = FindSnapshot(number, run, snapshot.digest, snapshot.content)
            answer = (await self._context.ask_driver(number, find, self._timeout_ns(snapshot))).get(number)
            if isinstance(answer, Completed) and answer.result is True:
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
        """Fetch a snapshot from the node that has saved it. Return whether it is here."""
        is_near = origin.node == self._context.me.node or self._context.requests.is_gone(origin)
        if is_near or (snapshot.length > DIRECT_FETCH_BYTES and snapshot.replica_nodes):
            return False
        number = self._context.requests.number()
        command = FetchSnapshot(number, origin, run, snapshot.digest, snapshot.length)
        return isinstance(
            (await self._context.ask_driver(number, command, self._timeout_ns(snapshot))).get(number), Completed
        )

    async def _fetch_initial_checkpoint(self, run: RunId, saved: SavedState, snapshot: InstanceSnapshot) -> None:
        """Fetch a snapshot of the initial checkpoint from the agent at which the run was submitted."""
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
            reason = answer.reason if isinstance(answer, Failed) else "it took too long"
        else:
            reason = "it cannot be reached"
        names = ", ".join(self._machine.name_of(node) for node in snapshot.replica_nodes)
        raise StateUnavailable(
            f"the checkpoint with which {saved.instance} begins is on {names}: {reason}", snapshot.replica_nodes
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
            # The snapshot of a pinned instance has no fragments. Only this node has it, so the run waits for this node.
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
            run_key = await self._run_key(run, self._timeout_ns(snapshot))
            if not run_key:
                raise StateUnavailable(NO_KEY, tuple(voter.peer.node for voter in value.voters))
            command = RebuildSnapshot(number, key, snapshot, tuple(rebuild.pieces), run_key)
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
        return f"the state of {saved.instance} needs {snapshot.m} of its fragments, stored on {where}, and fewer are readable"


def _only_here(run: RunId, saved: SavedState, snapshot: InstanceSnapshot, value: RegisterValue, me: Peer) -> str:
    """Return an explanation for a damaged or missing snapshot that has no other copy, with the remedies."""
    roles = {assignment.instance: assignment.role for assignment in value.plan.assignments}
    stages = _PLAN.decode(value.plan.body).stages if value.plan.body else ()
    stage_name = next((stage.name for stage in stages if str(stage.index) == saved.instance.stage), str(saved.instance))
    return (
        f"what the {roles.get(saved.instance, InstanceRole.STAGE)} {stage_name} saved at epoch {snapshot.checkpoint.epoch} is"
        f" damaged or gone on {me.name or me.node.short}, and lies nowhere else. Put back the file"
        f" elements/{snapshot.digest.hex()[:16]}… of {run.app} there,"
        f" or stop it (agiledart stop {run.app} --now) and submit it anew"
    )


def _outcome(request: int, answer: Completed | Failed | None) -> Event:
    if isinstance(answer, Completed):
        return Completed(request, answer.result)
    return Failed(request, answer.reason if isinstance(answer, Failed) else "the replica node did not answer in time")

"""Rebuild of a snapshot on a new host: fetch m fragments' worth of bytes from all live replica nodes at once.

| state | trigger |
|---|---|
| STRIPES | each fragment is cut into P stripes, stripe j comes from the m providers j, j + 1 … (mod P); failed ones are left out |
| WHOLE | the decoded snapshot's hash was wrong: fetch whole fragments, each with its own hash, to find the bad one |
| READY | every stripe has m pieces (or m whole fragments are good): decode |
| LOST | fewer than m providers are left: wait for replica nodes that may come back, then the run's policy |

The awkward case: a provider fails with half of its stripes served. What it served stays good until the snapshot's hash says
otherwise.
"""

from enum import Enum

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.fragments.arithmetic import fragment_bytes, stripe_providers, stripe_range
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire.effects import FetchStripe, FragmentKey
from agiledart_recovery.wire.names import InstanceId, RunId
from agiledart_recovery.wire.register_value import InstanceSnapshot


class RebuildState(Enum):
    """State of a rebuild; the module's head has the table."""

    STRIPES = "stripes"
    WHOLE = "whole"
    READY = "ready"
    LOST = "lost"


class SnapshotRebuild:
    """Rebuild of one snapshot.

    Attributes:
        pieces: stripe → index of the fragment → its bytes. In state WHOLE there is one stripe, with all available fragments:
            one of
            them may still be wrong.
    """

    def __init__(
        self,
        context: RecoveryContext,
        run: RunId,
        instance: InstanceId,
        snapshot: InstanceSnapshot,
        live: dict[NodeId, None],
    ) -> None:
        self._context, self.run, self.instance, self.snapshot = context, run, instance, snapshot
        self._providers = {
            index: replica_node
            for index, replica_node in enumerate(snapshot.replica_nodes)
            if replica_node and replica_node in live
        }
        self._asked: dict[tuple[int, int], None] = {}
        self.is_whole = False
        self._stripes = max(1, min(len(self._providers), fragment_bytes(snapshot.length, snapshot.m)))
        self.pieces: list[dict[int, bytes]] = [{} for _ in range(self._stripes)]
        self.state = RebuildState.STRIPES
        self._ask()

    def _ask(self) -> None:
        """Request pieces from so many providers that m of each stripe are there or requested."""
        m, indices = self.snapshot.m, list(self._providers)
        if self.state not in (RebuildState.STRIPES, RebuildState.WHOLE):
            return
        if len(indices) < m and any(len(pieces) < m for pieces in self.pieces):
            self.state = RebuildState.LOST
            return
        wanted = m if self.state is RebuildState.STRIPES else len(indices)
        size = fragment_bytes(self.snapshot.length, m)
        for stripe, pieces in enumerate(self.pieces):
            requested = sum((stripe, index) in self._asked for index in indices)
            start = stripe_providers(stripe, len(indices), len(indices)) if indices else ()
            for place in start:
                index = indices[place]
                if requested + sum(i not in self._providers for i in pieces) >= wanted:
                    break
                if (stripe, index) not in self._asked:
                    offset, length = stripe_range(stripe, self._stripes, size)
                    self._fetch(stripe, index, offset, length)
                    requested += 1
        self._look()

    def _fetch(self, stripe: int, index: int, offset: int, length: int) -> None:
        self._asked[stripe, index] = None
        replica_node = self._providers[index]
        key = FragmentKey(self.run, self.instance, self.snapshot.checkpoint, index)
        state = self.state
        length = 0 if state is RebuildState.WHOLE else length
        self._context.ask(
            self.run,
            lambda request: FetchStripe(request, replica_node, key, self.snapshot, offset, length),
            lambda result, reason: self._answered(state, stripe, index, result, reason),
        )

    def _answered(self, state: RebuildState, stripe: int, index: int, result: object, reason: str) -> None:
        if state is not self.state:
            return
        if not reason and isinstance(result, bytes):
            self.pieces[stripe][index] = result
            self._look()
        elif index in self._providers:
            del self._providers[index]
            self._ask()

    def _look(self) -> None:
        wanted = self.snapshot.m if self.state is RebuildState.STRIPES else max(self.snapshot.m, len(self._providers))
        if self.state in (RebuildState.STRIPES, RebuildState.WHOLE) and all(
            len(piece) >= wanted for piece in self.pieces
        ):
            self.is_whole, self.state = self.state is RebuildState.WHOLE, RebuildState.READY

    def on_wrong_hash(self) -> None:
        """Fetch whole fragments, whose own hashes reveal the bad one: the decoded bytes are not the snapshot."""
        if self.is_whole or len(self._providers) < self.snapshot.m:
            self.state = RebuildState.LOST
            return
        self.state = RebuildState.WHOLE
        self._stripes, self.pieces, self._asked = 1, [{}], {}
        self._ask()

"""Whose fragments a node keeps: those of hosts of the run, in the current attempt; all other nodes get the reason."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observation
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.recovery.fragment_admission import FragmentAdmission
from agiledart_node.wire.fragment_effects import FragmentDecision, FragmentOffered
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.recovery_machine import RecoveryMachine
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId
from tests.unit.recovery.bench import RUN, peer

HOST, STRANGER = peer(2), Peer(NodeId(9), 1, "mallory")


class Holder:
    """A node that neither votes on a run nor hosts it, and asks the ring for its members."""

    def __init__(self, record: Any) -> None:
        self.said: list[FragmentDecision] = []
        self._record = record
        seen: list[Observation] = []
        self.machine = RecoveryMachine(peer(7), RecoveryConfig(), RandomStream(1), seen.append)
        requests = SimpleNamespace(is_full=False, begin=asyncio.run, pause=self._pause)
        config = SimpleNamespace(max_hosted=8)
        context = SimpleNamespace(requests=requests, emit=self.said.append, now=0, me=peer(7), config=config)
        records = SimpleNamespace(application=self._read)
        self._fragment_admission = FragmentAdmission(cast(Any, context), cast(Any, records), self.machine)

    async def _pause(self, _: int) -> None: ...

    async def _read(self, name: str) -> tuple[int, Any]:
        if self._record is CommandRefused:
            raise CommandRefused("the ring does not answer")
        return 1, self._record

    def offered(self, sender: Peer, run: RunId = RUN, attempt: int = 3) -> FragmentDecision:
        key = FragmentKey(run, InstanceId("stage"), CheckpointId(attempt, 4), 0)
        self._fragment_admission.offered(FragmentOffered(1, sender, key, attempt))
        return self.said.pop()


def record(attempt: int = 3, **changes: Any) -> Any:
    return SimpleNamespace(version=1, attempt=attempt, is_final=False, hosts=lambda: (peer(1), HOST), **changes)


def test_a_host_of_the_run_may_store_fragments_here() -> None:
    assert Holder(record()).offered(HOST) == FragmentDecision(1)


@pytest.mark.parametrize(
    ("there", "sender", "attempt", "reason", "text"),
    [
        (record(), STRANGER, 3, "not a host", "mallory hosts nothing of taxi"),
        (record(4), HOST, 3, "old attempt", "attempt 3 is over, the current one is 4"),
        (None, HOST, 3, "unknown run", "nothing is known of taxi here"),
        (CommandRefused, HOST, 3, "unknown run", "nothing is known of taxi here"),
        (SimpleNamespace(version=2, is_final=False), HOST, 3, "unknown run", "nothing is known of taxi here"),
        (SimpleNamespace(version=1, is_final=True), HOST, 3, "unknown run", "nothing is known of taxi here"),
    ],
    ids=["stranger", "old attempt", "no run", "silent ring", "another version", "a run that is over"],
)
def test_a_node_that_may_not_store_fragments_gets_the_reason(
    there: Any, sender: Peer, attempt: int, reason: str, text: str
) -> None:
    assert Holder(there).offered(sender, attempt=attempt) == FragmentDecision(1, reason, text)


def test_fragments_of_an_attempt_are_refused_once_a_later_one_is_known() -> None:
    replica_node = Holder(record())
    replica_node.machine.fragment_store.observe_attempt(RUN, 4)
    assert replica_node.offered(HOST) == FragmentDecision(1, "old attempt", "attempt 3 is over, the current one is 4")

"""A run whose key is split among its voters: it ends as others do, and only its hosts ever have the key."""

from collections.abc import Sequence

import pytest

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Effect, Event, Received
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.wire.messages import ProposeGeneration
from agiledart_simulation.pipeline.recovery_host import RecoveryHost
from agiledart_simulation.runs.recovery_run import RUN_KEY, RecoveryRun
from agiledart_simulation.runs.scenario import draw


class KeyedRun(RecoveryRun):
    """A run with a key.

    Attributes:
        named: nodes that some acknowledged value named as hosts or standby hosts, or a change that its coordinator proposed.
        holders: nodes whose machine or disk had the key.
    """

    splits_key = True

    def __init__(self, seed: int, name: str = "recovery") -> None:
        super().__init__(draw(seed, name=name))
        self.named: dict[NodeId, None] = {}
        self.holders: dict[NodeId, None] = {}

    def _make(self, peer: Peer, random: RandomStream) -> RecoveryHost:
        host = super()._make(peer, random)
        step = host.machine.step

        def noted(event: Event, now: Instant) -> Sequence[Effect]:
            if isinstance(event, Received) and isinstance(event.message, ProposeGeneration):
                self.named |= dict.fromkeys(event.message.after.hosts)
            return step(event, now)

        host.machine.step = noted  # type: ignore[method-assign]
        return host

    def _pass(self, span_ns: int) -> None:
        super()._pass(span_ns)
        self.look()

    def look(self) -> None:
        """Note the nodes that are hosts, and those that have the key."""
        for value in self.ledger.acknowledged.values():
            self.named |= dict.fromkeys((*value.plan.hosts, *(standby.host.node for standby in value.standbys)))
        for node, disk in self.disks.items():
            machine = self.world.nodes[node].machine.machine
            keys = [part.run_key.key for part in machine.participants.values()]
            keys += [file.key for file in disk.attempts.values()]
            if RUN_KEY in keys:
                self.holders[node] = None


def _run(seed: int, name: str = "recovery") -> KeyedRun:
    run = KeyedRun(seed, name)
    run.run()
    assert run.ledger.violations == {}, (name, seed)
    return run


def test_only_hosts_have_the_key_and_the_run_ends() -> None:
    for seed in range(1, 5):
        run = _run(seed)
        assert run.holders, seed
        assert set(run.holders) <= set(run.named), seed


@pytest.mark.soak
@pytest.mark.parametrize("name", ["recovery", "losses", "scaling"])
@pytest.mark.parametrize("first", range(5, 65, 20))
def test_only_hosts_have_the_key_in_many_runs(first: int, name: str) -> None:
    for seed in range(first, first + 20):
        run = _run(seed, name)
        assert set(run.holders) <= set(run.named), seed

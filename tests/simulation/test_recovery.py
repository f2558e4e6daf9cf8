"""Hostile runs of an application with state: committed rows equal those of a run without failures."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.events import FragmentDamaged
from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import InstanceSnapshot, RegisterValue
from agiledart_simulation.runs.campaign import Campaign, play
from agiledart_simulation.runs.recovery_faults import RUN
from agiledart_simulation.runs.recovery_run import REACHED, RecoveryRun
from agiledart_simulation.runs.scenario import OF_RECOVERY, draw

FAST = range(1, 51)
SOAK = range(51, 2_051)

_PROGRAM = """
from agiledart_simulation.runs.recovery_run import RecoveryRun
from agiledart_simulation.runs.scenario import draw
print([RecoveryRun(draw(seed, name="recovery")).run().digest for seed in (3, 8)])
"""


@cache
def played(seed: int) -> tuple[str, ...]:
    """Events reached in a correct run."""
    scenario = draw(seed, name="recovery")
    report = play(scenario)
    assert report.violations == (), f"replay: {scenario.command}"
    return tuple(what for what, count in report.reached if count)


def check(seed: int) -> None:
    played(seed)


@pytest.mark.xdist_group("recovery")
@pytest.mark.parametrize("first", range(FAST.start, FAST.stop, 10))
def test_whole_runs(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed)


@pytest.mark.xdist_group("recovery")
def test_a_new_leader_is_followed_by_hosts_that_missed_a_change_of_voters() -> None:
    check(147)  # it never ended while PREPARE counted from confirmed voters only


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SOAK.start, SOAK.stop, 100))
def test_whole_runs_deeper(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


@pytest.mark.xdist_group("recovery")
def test_the_fast_seeds_reach_everything() -> None:
    """Events that never happen test nothing."""
    reached = {what: None for seed in FAST for what in played(seed)}
    assert [what for what in (*OF_RECOVERY, *REACHED) if what not in reached] == []


@pytest.mark.soak
@pytest.mark.slow
def test_a_campaign_reaches_everything() -> None:
    campaign = Campaign("recovery")
    campaign.run(range(1, 101), lambda scenario, report: not report.violations)
    assert campaign.failed == []
    assert campaign.unreached == []


def _digests(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=240
    ).stdout


def test_two_processes_with_different_hash_seeds_agree() -> None:
    assert _digests("0") == _digests("12345")


def test_a_run_without_faults_needs_one_attempt() -> None:
    run = RecoveryRun(draw(1, name="recovery", fixed={"steps": 0, "loss": 0.0, "duplicate": 0.0, "reorder": 0.0}))
    report = run.run()
    value = run.ledger.newest
    assert report.violations == ()
    assert value is not None
    assert value.attempt == 1
    assert len(run.ledger.committed_rows()) == 2 * run.rows


class Rests(RecoveryRun):
    """A run without faults whose epochs are far apart, so that only repair can make a lost fragment again."""

    def __init__(self, seed: int) -> None:
        super().__init__(draw(seed, name="recovery", fixed={"steps": 0, "loss": 0.0, "duplicate": 0.0, "reorder": 0.0}))
        self.snapshot_bytes, self.rows = 4 << 20, 10_000
        self._build()
        self.world.run_until(lambda: self.ledger.newest is not None and self.whole(), 30 * SECOND)
        quiet = replace(self.config, checkpoint_interval_ns=1_000 * SECOND)
        for host in self.hosts:
            host.machine._context.config = quiet
        self._pass(5 * SECOND)  # a begun epoch is committed
        self.at = self.value.committed

    @property
    def value(self) -> RegisterValue:
        assert self.ledger.newest is not None
        return self.ledger.newest

    def snapshots(self) -> list[tuple[InstanceId, InstanceSnapshot]]:
        """Of the committed epoch, with fragments."""
        return [(saved.instance, one) for saved in self.value.saved for one in saved.chain if one.replica_nodes]

    def whole(self) -> bool:
        """Every fragment that the register names is on the disk of a replica node that is up, and is not its owner."""
        owners = {each.instance: each.host.node for each in self.value.plan.assignments}
        return bool(self.snapshots()) and all(
            replica_node
            and replica_node != owners[instance]
            and self.world.nodes[replica_node].is_up
            and FragmentKey(RUN, instance, snapshot.checkpoint, index) in self.disks[replica_node].fragments
            for instance, snapshot in self.snapshots()
            for index, replica_node in enumerate(snapshot.replica_nodes)
        )


def rests(seed: int) -> tuple[Rests, NodeId]:
    """A run in which all is whole, and a replica node that hosts nothing and does not vote; seeds that have none are
    passed over.
    """
    run = Rests(seed)
    busy = [*run.value.plan.hosts, *(voter.peer.node for voter in run.value.voters)]
    idle = [node for _, snapshot in run.snapshots() for node in snapshot.replica_nodes if node and node not in busy]
    spare = [node for node in run.ids if all(node not in snapshot.replica_nodes for _, snapshot in run.snapshots())]
    if not idle or not run.whole() or not spare:
        pytest.skip("no such holder")
    return run, idle[0]


@pytest.mark.parametrize("seed", [2, 5, 12])
def test_fragments_of_a_dead_replica_node_are_rebuilt_before_the_next_epoch(seed: int) -> None:
    run, replica_node = rests(seed)
    run.crash(replica_node, is_power=False)
    run._pass(8 * SECOND)
    assert run.value.committed == run.at, "no epoch has done it"
    assert run.whole()
    assert all(replica_node not in snapshot.replica_nodes for _, snapshot in run.snapshots())
    assert not run.ledger.violations


@pytest.mark.parametrize("seed", [2, 5, 12])
def test_a_fragment_damaged_on_its_replica_nodes_disk_is_rebuilt(seed: int) -> None:
    run, replica_node = rests(seed)
    gone = next(
        key
        for key in run.disks[replica_node].fragments
        if any(one.checkpoint == key.checkpoint for _, one in run.snapshots())
    )
    del run.disks[replica_node].fragments[gone]
    run.world.inject(replica_node, FragmentDamaged(gone))
    run._pass(5 * SECOND)
    assert run.value.committed == run.at
    assert run.whole()
    assert not run.ledger.violations

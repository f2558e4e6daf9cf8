"""The checkers can fail: with a bug planted in the overlay each of them speaks up."""

from typing import Any

import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import ID_BITS, key_of_name, ring_distance
from agiledart_overlay.liveness.failure_detector import FailureDetector
from agiledart_overlay.liveness.peer_gossip import PeerGossip
from agiledart_overlay.records.record_directory import RecordDirectory
from agiledart_overlay.tables.leaf_set import LeafSet
from agiledart_simulation.checkers.leaf_sets import leaf_violations
from agiledart_simulation.checkers.record_ledger import RecordLedger
from agiledart_simulation.runs.ring_run import run_seed
from tests.simulation.bench import all_violations, built_ring, lookups


def nothing(*_: Any, **__: Any) -> None:
    """Does nothing."""


def test_a_leaf_set_that_never_decides_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ring, _ = built_ring(40, is_judged=False)
    monkeypatch.setattr(LeafSet, "covers", lambda self, key: False)
    assert any(line.startswith("I4") for line in all_violations(ring))
    assert lookups(ring, 50)


def test_ignored_news_of_peers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that join at once on both sides of a member never learn of each other."""
    monkeypatch.setattr(PeerGossip, "receive_sightings", nothing)
    violations = [run_seed(seed).violations for seed in (7, 9)]
    assert any(line.startswith("I2") for lines in violations for line in lines)


def test_copies_that_are_not_moved_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordDirectory, "on_leaves_changed", nothing)
    ring, ids = built_ring(12, 8, is_judged=False)
    key = key_of_name("app", "taxi")
    assert ring.store(ids[0], key, 0, b"gold").ok
    ledger = RecordLedger()
    ledger.confirm(key, 1, b"gold")
    for _ in range(5):
        ring.world.crash(min(ring.members, key=lambda node: ring_distance(node, key)))
        ring.world.run_for(4 * SECOND)
    assert any("holds nothing" in line for line in ledger.violations(ring.machines, ID_BITS, 4))


def test_ignored_helper_answers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of the broken link in `test_failures` fails without indirect probes."""
    monkeypatch.setattr(FailureDetector, "on_indirect_probe_ack", nothing)
    ring, _ = built_ring(6, is_judged=False)
    members = ring.members
    ring.world.network.clog(members[0], members[1])
    ring.world.network.clog(members[1], members[0])
    ring.world.run_for(10 * SECOND)
    assert ring.failures


def test_missing_probes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FailureDetector, "on_round", nothing)
    ring, ids = built_ring(8, is_judged=False)
    ring.world.crash(ids[2], silent=True)
    ring.world.run_for(10 * SECOND)
    assert any("extra" in line for line in leaf_violations(ring.machines, 24))

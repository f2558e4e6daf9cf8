"""Replicas that the ledger of records knows to be wrong."""

from types import SimpleNamespace
from typing import Any

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.records.record_store import Record
from agiledart_simulation.checkers.record_ledger import RecordLedger

KEY = NodeId(10)


def holders(*copies: tuple[int, bytes]) -> Any:
    """Nodes 10, 11, … with one copy each; version 0: none."""
    return [
        SimpleNamespace(
            me=Peer(NodeId(10 + index), 1),
            records=[Record(KEY, version, value, (NodeId(1), 1, 1))] if version else [],
        )
        for index, (version, value) in enumerate(copies)
    ]


def said(ledger: RecordLedger, *copies: tuple[int, bytes]) -> list[str]:
    return ledger.violations(holders(*copies), 8, 2)


def ledger(*, is_single: bool) -> RecordLedger:
    made = RecordLedger()
    made.is_single = is_single
    made.write(KEY, 1, b"one")
    made.write(KEY, 2, b"left")
    made.write(KEY, 2, b"right")
    made.confirm(KEY, 2, b"left")
    return made


def test_all_replicas_with_the_confirmed_copy_are_right() -> None:
    assert said(ledger(is_single=True), (2, b"left"), (2, b"left"), (2, b"left")) == []


def test_a_lower_version_than_the_confirmed_one_is_wrong_cut_or_not() -> None:
    for is_single in (True, False):
        assert any("holds version 1" in line for line in said(ledger(is_single=is_single), *[(1, b"one")] * 3))
        assert any("holds nothing" in line for line in said(ledger(is_single=is_single), *[(0, b"")] * 3))


def test_the_other_side_may_win_with_the_same_version_after_a_cut_only() -> None:
    assert said(ledger(is_single=False), *[(2, b"right")] * 3) == []
    assert any("another value" in line for line in said(ledger(is_single=True), *[(2, b"right")] * 3))


def test_replicas_agree_after_a_cut() -> None:
    assert any("disagree" in line for line in said(ledger(is_single=False), (2, b"left"), (2, b"right"), (2, b"left")))


def test_invented_values_are_wrong() -> None:
    assert any("no node wrote" in line for line in said(ledger(is_single=False), *[(3, b"one")] * 3))

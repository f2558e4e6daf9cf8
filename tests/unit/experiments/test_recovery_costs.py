"""Experiments of recovery: their links say what the formulas say, and their figures come from real fragments."""

import pytest

from agiledart_agent.fragments.erasure_code import cut
from agiledart_experiments.recovery import fragments, replication_cost
from agiledart_experiments.recovery.emulated_links import PIECE, Transfer, arrivals
from agiledart_experiments.registry import find, run_experiment
from agiledart_experiments.report import Settings


def test_an_uplink_serves_transfers_one_after_another() -> None:
    assert arrivals([Transfer(0, 1_000), Transfer(0, 500)], 1_000, 1e12, 0.0) == pytest.approx([1.0, 1.5])


def test_uplinks_share_the_downlink() -> None:
    done = arrivals([Transfer(number, 10 * PIECE) for number in range(4)], 1e9, 1_000 * PIECE, 0.0)
    assert max(done) == pytest.approx(0.04, rel=0.01)


def test_an_empty_transfer_takes_one_round_trip() -> None:
    assert arrivals([Transfer(0, 0)], 1.0, 1.0, 0.25) == [0.5]


def test_rebuild_times_follow_the_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "SMALL", (600_000, 5_000_000))
    report, _ = run_experiment(find("fragments"), Settings(7))
    assert len(report.rows) == 32
    assert all(row["is_exact"] for row in report.rows)
    assert report.passed, [goal.what for goal in report.goals if not goal.met]


def test_a_wrong_fragment_is_visible_in_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exactness of a row is no constant."""

    def flipped(data: bytes, m: int, n: int) -> list[bytes]:
        made = cut(data, m, n)
        return [bytes([piece[0] ^ 1]) + piece[1:] for piece in made]

    monkeypatch.setattr(fragments, "SMALL", (1_000, 5_000))
    monkeypatch.setattr(fragments, "cut", flipped)
    report, _ = run_experiment(find("fragments"), Settings(7))
    assert not report.goals[0].met


def test_copies_and_fragments_take_the_times_of_the_appendix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication_cost, "SMALL", (2_000, 4_000_000))
    report, _ = run_experiment(find("replication-cost"), Settings(7))
    assert [row["n"] for row in report.rows] == [2, 3, 4, 8, 16]
    assert report.goals[2].met
    assert report.rows[0]["coded_seconds"] is None, "two fragments with k = 2 hold no state"
    assert report.rows[0]["copies_seconds"] > 0
    for row in report.rows[1:]:
        assert row["coded_bytes"] == pytest.approx(4_000_000 * row["n"] / row["m"], rel=1e-5)


def test_a_state_is_rebuilt_from_fragments_before_a_store_has_sent_it() -> None:
    report, _ = run_experiment(find("state-recovery"), Settings(7, sizes=(2, 4)))
    assert [(row["state_mb"], row["code"]) for row in report.rows] == [(2, "4+2"), (2, "16+2"), (4, "4+2"), (4, "16+2")]
    assert report.goals[0].met
    for row in report.rows:
        link = row["recover_seconds"] - row["code_seconds"]  # without influence of this machine's load
        assert link < 0.66 * row["store_recover_seconds"]

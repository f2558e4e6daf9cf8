"""Liars: a node without a vote changes no result of a run; a voter may end its own run, and invents no row."""

import re

import pytest

from agiledart_recovery.register.voter_trust import VoterTrust
from tests.simulation.lying_holders import LIES, LyingHolderRun
from tests.simulation.lying_nodes import KINDS, LyingRun

ENDS_EARLY = re.compile(r"L1: not finished in the end: .*|V8: \d+ rows were read, \d+ are committed, 0 of them twice.*")
"""Outcomes that a lying voter can cause: the run does not end, or ends before all rows are committed."""


def lied(seed: int, role: str) -> LyingRun:
    """Play a hostile run with a liar. Return it."""
    run = LyingRun(seed, role)
    run.run()
    assert sum(run.lies.values()) > 0 or role == "host", "there may be no host without a vote"
    return run


@pytest.mark.parametrize("role", ["outsider", "host"])
@pytest.mark.parametrize("seed", [*range(1, 9), 18, 28])
def test_a_liar_without_a_vote_changes_no_result(seed: int, role: str) -> None:
    assert lied(seed, role).ledger.violations == {}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_lying_voter_ends_its_run_at_most(seed: int) -> None:
    """Voters hold no evidence of the rows, so an early end is believed, as one that an agent writes into the record is."""
    strange = [line for line in lied(seed, "voter").ledger.violations if not ENDS_EARLY.fullmatch(line)]
    assert strange == []


def test_all_lies_are_tried() -> None:
    run = lied(3, "outsider")
    assert set(run.lies) == set(KINDS)


def test_a_lying_holder_of_fragments_changes_no_result() -> None:
    tried: dict[str, int] = {}
    altered = 0
    for seed in range(1, 9):
        run = LyingHolderRun(seed)
        run.run()
        assert run.ledger.violations == {}, seed
        altered += run.counts.get("altered fragment", 0)
        tried |= run.lies
    assert set(tried) == set(LIES)
    assert altered > 0, "no rebuild met an altered fragment"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(9, 1_009, 100))
def test_a_lying_holder_stops_its_run_at_most(first: int) -> None:
    """With the faults of a hostile run, a holder that lies may leave too few fragments; the run waits then."""
    for seed in range(first, first + 100):
        run = LyingHolderRun(seed)
        run.run()
        assert all(line.startswith("L1: not finished in the end") for line in run.ledger.violations), seed


@pytest.mark.soak
@pytest.mark.parametrize("first", range(9, 309, 100))
@pytest.mark.parametrize("role", ["outsider", "host"])
def test_a_liar_without_a_vote_ends_its_run_at_most(first: int, role: str) -> None:
    for seed in range(first, first + 100):
        run = LyingRun(seed, role)
        run.run()
        assert all(ENDS_EARLY.fullmatch(line) for line in run.ledger.violations), seed


@pytest.mark.soak
def test_the_lies_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that believes everybody loses rows, or does not end."""
    monkeypatch.setattr(VoterTrust, "confirms", lambda *_: True)
    assert any(lied(seed, "outsider").ledger.violations for seed in (1, 2))

"""The ledger of recovery and values known only to voters that were given up for lost."""

from agiledart_recovery.wire.names import Ballot, CheckpointId, Stamp
from agiledart_recovery.wire.register_value import Plan, RegisterValue
from agiledart_simulation.checkers.recovery_ledger import RecoveryLedger
from tests.unit.recovery.bench import RUN, peer, value

NOTHING = Plan(())


def made(quorum_generation: int, attempt: int, committed: CheckpointId) -> RegisterValue:
    return RegisterValue(RUN, quorum_generation, attempt, NOTHING, committed, value().voters)


def acknowledged(*values: tuple[int, RegisterValue]) -> list[str]:
    """The ledger's verdict on values that were acknowledged under ballots of these rounds."""
    ledger = RecoveryLedger({})
    for number, one in values:
        ledger.on_acknowledged(Stamp(Ballot(number, peer(1).node, 1), 1), one)
    return list(ledger.violations)


def test_an_attempt_known_only_to_lost_voters_does_not_void_preparations() -> None:
    """The voter that is left has accepted an epoch of attempt 1; the lost ones had begun attempt 2, which is given up."""
    first, second = made(1, 1, CheckpointId(0, 0)), made(1, 2, CheckpointId(0, 0))
    assert acknowledged((1, first), (2, second), (9, made(2, 1_000_000, CheckpointId(1, 1)))) == []


def test_within_a_generation_it_voids_them() -> None:
    first, second = made(1, 1, CheckpointId(0, 0)), made(1, 2, CheckpointId(0, 0))
    (wrong,) = acknowledged((1, first), (2, second), (9, made(1, 3, CheckpointId(1, 1))))
    assert wrong.startswith("V5")

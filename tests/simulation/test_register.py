"""The register alone, under a network that may do anything: no acknowledged value is lost, and all of them lie on one line."""

from typing import Any

import pytest

from agiledart_recovery.register import proposer, quorums
from agiledart_recovery.register.proposer import Proposer
from agiledart_recovery.register.voter_slot import VoterSlot
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Stamp
from tests.simulation.register_storm import Register, search, voter, walk


def test_storms_with_replaced_voters() -> None:
    changed = acknowledged = 0
    for seed in range(1, 101):
        wrong, register = walk(seed)
        assert not wrong, f"seed {seed}: {wrong}"
        changed += register.changed > 0
        acknowledged += len(register.acknowledged)
    assert changed > 15
    assert acknowledged > 100


@pytest.mark.soak
def test_many_storms() -> None:
    assert [seed for seed in range(1, 20_001) if walk(seed)[0]] == []


@pytest.mark.parametrize(("most", "reached"), [(4_000, 0), pytest.param(400_000, 1_000, marks=pytest.mark.soak)])
def test_every_interleaving_of_a_take_over_during_a_voter_change_is_safe(most: int, reached: int) -> None:
    wrong, states, both = search(most)
    assert not wrong
    assert states >= most or both
    assert both >= reached


def numbers_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Under one ballot a late ACCEPT puts an old value back."""

    def late(self: VoterSlot, sender: Any, message: wire.Accept) -> None:
        if message.stamp.ballot < self.promised:
            self.refuse(sender, message.stamp.ballot)
            return
        self._take(message.stamp, message.value)
        self._answer(sender, wire.Accepted(self.run, message.stamp, self.voter_slot))

    patch.setattr(VoterSlot, "on_accept", late)


def new_voters_alone(patch: pytest.MonkeyPatch) -> None:
    """A change of voters needs a majority of the new ones only."""
    patch.setattr(proposer, "is_quorum", lambda value, who: quorums.is_majority(value.voters, who))


def others_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    """A voter that reads of other voters doesn't ask them."""
    patch.setattr(Proposer, "_follow", lambda self, value: None)
    patch.setattr(
        proposer,
        "is_quorum",
        lambda value, who: quorums.is_majority(value.old_voters or value.voters, who) or quorums.is_quorum(value, who),
    )


def one_less(patch: pytest.MonkeyPatch) -> None:
    """One voter of three decides."""
    patch.setattr(
        quorums, "is_majority", lambda voters, who: 2 * sum(each.voter_id in who for each in voters) >= len(voters) - 1
    )


def remembered(patch: pytest.MonkeyPatch) -> None:
    """A proposer prepares, and writes what it remembers."""
    on_promise = Proposer.on_promise

    def forgetful(self: Proposer, sender: Any, message: wire.Promise) -> None:
        import msgspec

        on_promise(self, sender, msgspec.structs.replace(message, value=self._known, accepted=Stamp()))

    patch.setattr(Proposer, "on_promise", forgetful)


@pytest.mark.parametrize(
    "plant",
    [
        numbers_are_not_compared,
        new_voters_alone,
        others_are_not_asked,
        one_less,
        remembered,
    ],
)
def test_planted_bugs_are_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert next((seed for seed in range(1, 2_001) if walk(seed)[0]), None) is not None


def test_a_voter_that_forgets_is_found() -> None:
    assert next((seed for seed in range(1, 2_001) if walk(seed, forgets=True)[0]), None) is not None


def told(register: Register, number: int, *voters: int) -> None:
    """A proposer's request reaches these voters only, and it receives their answers."""
    for to, sender, message in list(register.messages):
        del register.messages[to, sender, message]
        if sender == number and to in voters:
            register.deliver(to, sender, message)
            for answer in [each for each in register.messages if each[:2] == (number, to)]:
                del register.messages[answer]
                register.deliver(*answer)


def half_a_change(register: Register) -> None:
    """Voter 1 alone has accepted that 4 takes the place of 3. The next proposer reads it at 1 and 2, and writes it to 1 and 4."""
    register.begin(101)
    told(register, 101, 1, 2, 3)
    told(register, 101, 1, 2, 3)
    register.change(101, "change", (voter(1), voter(2), voter(4)))
    told(register, 101, 1)
    register.begin(102)
    told(register, 102, 1, 2)
    told(register, 102, 1, 4)
    # A third one knows only the old voters 2 and 3.
    register.begin(103)
    told(register, 103, 2, 3)
    told(register, 103, 2, 3)
    register.change(103, "other")
    told(register, 103, 2, 3)


def test_half_a_voter_change_is_not_confirmed_by_the_new_voters_alone() -> None:
    register = Register(5, 3)
    half_a_change(register)
    assert list(register.acknowledged) == ["", "other"]
    assert register.wrong() == ""


def test_two_values_would_be_acknowledged_if_new_voters_alone_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Proposer._is_chosen
    monkeypatch.setattr(
        Proposer,
        "_is_chosen",
        lambda self: (
            quorums.is_majority(self._want.voters, self._accepted)
            if self.phase is proposer.Phase.CONFIRMING
            else chosen(self)
        ),
    )
    register = Register(5, 3)
    half_a_change(register)
    assert "other" in register.acknowledged
    assert "change" in register.acknowledged
    assert register.wrong()

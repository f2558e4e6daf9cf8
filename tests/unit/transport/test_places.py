"""Places of unproven callers: few, few of them for one address, and the one seated longest gives way."""

import pytest

from agiledart_transport.places import PATIENCE_SECONDS, Caller, Places, block_of


def seat(places: Places, callers: list[Caller], now: float) -> None:
    for one in callers:
        assert places.come(one) is None
        places.speak(one)
    assert places.look(now).seated == callers


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
    ],
)
def test_what_counts_as_one_address(one: str, other: str, same: bool) -> None:
    assert (block_of(one) == block_of(other)) is same


def test_an_address_has_few_of_the_places_and_others_have_theirs() -> None:
    places = Places(total=6, per_block=2, at_door=10)
    seat(places, [Caller("a"), Caller("a")], 0.0)
    third, other = Caller("a"), Caller("b")
    for one in (third, other):
        places.come(one)
        places.speak(one)
    turns = places.look(0.5)
    assert turns.seated == [other]
    assert turns.giving_way == []
    assert turns.look_in == PATIENCE_SECONDS - 0.5


def test_who_has_been_seated_longest_gives_way_to_who_waits_when_its_time_is_over() -> None:
    places = Places(total=9, per_block=2, at_door=10)
    first, second, third = Caller("a"), Caller("a"), Caller("a")
    seat(places, [first], 0.0)
    seat(places, [second], 1.0)
    places.come(third)
    places.speak(third)
    turns = places.look(PATIENCE_SECONDS)
    assert (turns.seated, turns.giving_way) == ([], [first])
    assert places.look(PATIENCE_SECONDS).giving_way == []  # it was told, and is on its way
    places.leave(first)
    assert places.look(PATIENCE_SECONDS).seated == [third]


def test_who_waits_for_us_does_not_give_way() -> None:
    places = Places(total=1, per_block=1, at_door=10)
    judged = Caller("a")
    seat(places, [judged], 0.0)
    judged.waits_for_us = True
    places.come(late := Caller("b"))
    places.speak(late)
    assert places.look(9.0) == ([], [], None)


def test_the_mute_give_way_before_those_who_have_spoken() -> None:
    places = Places(total=1, per_block=1, at_door=3)
    seat(places, [Caller("a")], 0.0)
    spoke, mute, later = Caller("a"), Caller("b"), Caller("c")
    for one in (spoke, mute, later):
        assert places.come(one) is None
    places.speak(spoke)
    assert places.come(Caller("d")) is mute
    assert places.count == 4


def test_when_all_have_spoken_the_one_that_has_waited_longest_gives_way() -> None:
    places = Places(total=0, per_block=1, at_door=2)
    first, second = Caller("a"), Caller("b")
    for one in (first, second):
        places.come(one)
        places.speak(one)
    assert places.come(Caller("c")) is first


def test_nothing_is_left_of_who_has_gone() -> None:
    places = Places(total=2, per_block=1, at_door=4)
    callers = [Caller("a"), Caller("b"), Caller("c")]
    seat(places, callers[:2], 0.0)
    places.come(callers[2])
    for one in [*callers, *callers]:  # leaving twice is no error
        places.leave(one)
    assert places.count == 0
    assert places._by_block == {}
    assert places.look(99.0) == ([], [], None)

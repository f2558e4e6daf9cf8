"""Back-off of dials: dead addresses are dialled ever more rarely, and never all of them are left out."""

from agiledart_kernel.instants import SECOND
from agiledart_node.reaching.dial_backoff import MAX_ADDRESSES, DialBackoff

BOTH = ("192.0.2.1:1", "192.0.2.2:1")


def test_a_failed_address_pauses_and_the_pause_doubles_up_to_ten_minutes() -> None:
    backoff, now, pauses = DialBackoff(), 0, []
    for _ in range(9):
        backoff.failed(BOTH[0], now)
        assert backoff.usable(BOTH, now) == [BOTH[1]]
        began = now
        while len(backoff.usable(BOTH, now)) == 1:
            now += SECOND
        pauses.append((now - began) // SECOND)
    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600, 600]


def test_an_address_that_worked_begins_anew() -> None:
    backoff = DialBackoff()
    backoff.failed(BOTH[0], 0)
    backoff.failed(BOTH[0], 0)
    backoff.worked(BOTH[0])
    assert backoff.usable(BOTH, 0) == list(BOTH)
    backoff.failed(BOTH[0], 0)
    assert backoff.usable(BOTH, 10 * SECOND) == list(BOTH)


def test_the_usual_address_is_dialled_when_all_pause() -> None:
    backoff = DialBackoff()
    for address in BOTH:
        backoff.failed(address, 0)
    assert backoff.usable(BOTH, SECOND) == [BOTH[0]]
    assert backoff.usable((), SECOND) == []


def test_only_a_bounded_number_of_addresses_is_remembered() -> None:
    backoff = DialBackoff()
    for number in range(MAX_ADDRESSES + 1):
        backoff.failed(f"192.0.2.1:{number}", 0)
    assert len(backoff._failed) == MAX_ADDRESSES
    assert backoff.usable(("192.0.2.1:0",), 0) == ["192.0.2.1:0"], "the oldest is forgotten"

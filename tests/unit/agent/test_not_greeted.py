"""Reasons for which no node is greeted: a node's refusal in words that tell users what to do, and whether to ask again."""

import pytest

from agiledart_agent.ring.not_greeted import BUSY_TRIES, SILENT_TRIES, NotGreeted
from agiledart_transport.connecting import NoHello
from agiledart_transport.link import RefusedByPeer

SEED = "192.0.2.1:9464"


def text(error: Exception) -> str:
    return NotGreeted.by(error, SEED).text


def test_a_clock_that_is_ahead_is_named() -> None:
    detail = "not yet valid: valid in 5 min; is a clock wrong?"
    assert text(RefusedByPeer("not yet valid", detail)).endswith(" (our clock is ahead of its: compare the two)")


def test_an_older_agent_that_gives_no_version_is_named() -> None:
    assert text(RefusedByPeer("protocol")) == f"{SEED}: protocol (an older AgileDart runs there: update it)"
    assert text(RefusedByPeer("protocol", "update AgileDart on a3")) == f"{SEED}: protocol: update AgileDart on a3"


def test_other_refusals_stand_as_they_are() -> None:
    assert text(RefusedByPeer("banned")) == f"{SEED}: banned"


def test_an_address_stands_once() -> None:
    assert text(TimeoutError(f"{SEED} did not answer within 3 s")) == f"{SEED} did not answer within 3 s"


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (RefusedByPeer("unregistered", "the ring did not answer in time; try again"), BUSY_TRIES),
        (RefusedByPeer("used up"), 1),
        (NoHello("no answer"), BUSY_TRIES),
        (TimeoutError("no answer"), SILENT_TRIES),
        (ConnectionRefusedError(111, "nothing listens"), 1),
    ],
)
def test_busy_nodes_are_asked_again(error: Exception, tries: int) -> None:
    assert NotGreeted.by(error, SEED).tries == tries

"""Refusals by peers say to users what they can do, also where the peer's software is older."""

import pytest

from agiledart_agent.circuits.agent_links import refusal_hint
from agiledart_transport.link import RefusedByPeer


@pytest.mark.parametrize("detail", ["", "begins in 3600 s"])
def test_a_fast_clock_is_named(detail: str) -> None:
    assert "compare the two" in refusal_hint(RefusedByPeer("not yet valid", detail))


def test_an_older_peer_without_words_is_named() -> None:
    assert "older AgileDart" in refusal_hint(RefusedByPeer("protocol"))
    assert refusal_hint(RefusedByPeer("protocol", "update AgileDart on a3")) == ""


def test_other_refusals_get_no_hint() -> None:
    assert refusal_hint(RefusedByPeer("banned")) == ""

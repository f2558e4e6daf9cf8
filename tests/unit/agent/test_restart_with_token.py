"""A service's restart gives the agent its first day's token again: by then it may have expired."""

import io
import time
from pathlib import Path

import pytest

from agiledart_agent.daemon import _network
from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.identity.identity import Identity
from agiledart_agent.identity.tokens import create_token
from agiledart_agent.settings import AgentSettings
from agiledart_kernel.errors import OperationFailed

NOW = int(time.time())


def token(founder: Identity, *, made: int, lasts: int) -> str:
    return create_token(
        founder.issuer(), now_seconds=made, role="agent", uses=1, expires=lasts, addresses=("127.0.0.1:1",)
    )


@pytest.fixture
def founder(tmp_path: Path) -> Identity:
    identity = Identity.load_or_create(tmp_path / "founder")
    identity.create_network()
    identity.keep_network()
    return identity


def start(identity: Identity, join: str, *, leave_previous_network: bool = False) -> list[str]:
    settings = AgentSettings(
        state_dir=identity.directory, name="x", join=join, leave_previous_network=leave_previous_network
    )
    return _network(settings, identity, AgentLog(stream=io.StringIO()), [])[0]


def test_a_member_no_longer_needs_its_token(founder: Identity, tmp_path: Path) -> None:
    member = Identity.load_or_create(tmp_path / "member")
    assert start(member, token(founder, made=NOW, lasts=3600)) == ["127.0.0.1:1"]
    chain = member.chain
    assert start(member, token(founder, made=NOW - 7200, lasts=3600)) == ["127.0.0.1:1"]
    assert member.chain == chain


def test_an_unknown_node_needs_a_token(founder: Identity, tmp_path: Path) -> None:
    stranger = Identity.load_or_create(tmp_path / "stranger")
    with pytest.raises(OperationFailed, match="expired"):
        start(stranger, token(founder, made=NOW - 7200, lasts=3600))


def test_a_member_of_another_network_is_refused(founder: Identity, tmp_path: Path) -> None:
    other = Identity.load_or_create(tmp_path / "other")
    other.create_network()
    other.keep_network()
    other.touch_network()
    with pytest.raises(OperationFailed, match="belongs to network"):
        start(other, token(founder, made=NOW, lasts=3600))
    with pytest.raises(OperationFailed, match="expired"):
        start(other, token(founder, made=NOW - 7200, lasts=3600))


def test_an_unused_network_is_replaced_by_a_token(founder: Identity, tmp_path: Path) -> None:
    other = Identity.load_or_create(tmp_path / "other")
    other.create_network()
    other.keep_network()
    other.close()
    again = Identity.load_or_create(tmp_path / "other")
    with pytest.raises(OperationFailed, match=r"where nothing ever ran.*--leave-previous-network"):
        start(again, token(founder, made=NOW, lasts=3600))
    assert again.authority is not None
    assert start(again, token(founder, made=NOW, lasts=3600), leave_previous_network=True) == ["127.0.0.1:1"]
    again.close()
    assert Identity.read(tmp_path / "other").is_untouched, "a join that fails afterwards leaves everything as it was"
    again.keep_network()
    kept = Identity.read(tmp_path / "other")
    assert (kept.network, kept.authority) == (founder.network, None)
    assert not (tmp_path / "other" / "authority.key").exists()


def test_a_network_with_past_applications_is_not_replaced(founder: Identity, tmp_path: Path) -> None:
    other = Identity.load_or_create(tmp_path / "other")
    other.create_network()
    other.keep_network()
    other.touch_network()
    other.close()
    with pytest.raises(OperationFailed, match="belongs to network"):
        start(
            Identity.load_or_create(tmp_path / "other"),
            token(founder, made=NOW, lasts=3600),
            leave_previous_network=True,
        )


def test_nothing_is_stored_before_the_start_has_succeeded(founder: Identity, tmp_path: Path) -> None:
    fresh = Identity.load_or_create(tmp_path / "fresh")
    start(fresh, "")
    fresh.close()
    assert Identity.read(tmp_path / "fresh").network == b""
    joiner = Identity.load_or_create(tmp_path / "joiner")
    start(joiner, token(founder, made=NOW, lasts=3600))
    joiner.close()
    assert Identity.read(tmp_path / "joiner").network == b""

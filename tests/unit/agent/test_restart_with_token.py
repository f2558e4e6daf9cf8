"""A service's restart gives the agent its first day's token again: by then it may have expired."""

import io
import time
from pathlib import Path

import pytest

from agiledart_agent.daemon import _network
from agiledart_agent.identity.identity import Identity
from agiledart_agent.identity.tokens import create_token
from agiledart_agent.logs import AgentLog
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
    identity.found_network()
    return identity


def start(identity: Identity, join: str) -> list[str]:
    settings = AgentSettings(state_dir=identity.directory, name="x", join=join)
    return _network(settings, identity, AgentLog(stream=io.StringIO()))[0]


def test_a_member_needs_its_token_no_more(founder: Identity, tmp_path: Path) -> None:
    member = Identity.load_or_create(tmp_path / "member")
    assert start(member, token(founder, made=NOW, lasts=3600)) == ["127.0.0.1:1"]
    chain = member.chain
    assert start(member, token(founder, made=NOW - 7200, lasts=3600)) == ["127.0.0.1:1"]
    assert member.chain == chain


def test_a_stranger_does(founder: Identity, tmp_path: Path) -> None:
    stranger = Identity.load_or_create(tmp_path / "stranger")
    with pytest.raises(OperationFailed, match="expired"):
        start(stranger, token(founder, made=NOW - 7200, lasts=3600))


def test_a_member_of_another_network_is_refused(founder: Identity, tmp_path: Path) -> None:
    other = Identity.load_or_create(tmp_path / "other")
    other.found_network()
    with pytest.raises(OperationFailed, match="belongs to network"):
        start(other, token(founder, made=NOW, lasts=3600))
    with pytest.raises(OperationFailed, match="expired"):
        start(other, token(founder, made=NOW - 7200, lasts=3600))

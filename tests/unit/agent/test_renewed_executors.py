"""An executor's credentials are renewed while it runs: before its grant or its certificate ends, for the same key."""

import asyncio
import math
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from agiledart_agent.executors.executor_credentials import EXECUTOR_GRANT_HOURS, ExecutorCredentials
from agiledart_agent.identity.executor_pass import make_executor_pass
from agiledart_agent.identity.identity import Identity
from agiledart_executor.programs import accepted_links
from agiledart_executor.programs.accepted_links import AcceptedLinks
from agiledart_executor.routes.data_routes import DataRoutes
from agiledart_executor.wire.agent_messages import CredentialsRenewed
from agiledart_executor.wire.executor_address import ExecutorAddress
from agiledart_kernel.frames import Hello
from agiledart_kernel.grants import verify_chain
from agiledart_kernel.node_id import NodeId
from agiledart_transport.certificates import LEAF_DAYS, check_signature, verify_peer_certificate
from agiledart_transport.tls_contexts import TlsCredentials, client_context
from tests.unit.agent.test_identity import founder

DAY = 86_400


class Process:
    """An executor that keeps received credentials."""

    application = "taxi"

    def __init__(self, node: str) -> None:
        self.own_node, self.told = NodeId.from_hex(node), list[Any]()

    def send(self, message: object) -> None:
        """Keep it."""
        self.told.append(message)


class Desk(ExecutorCredentials):
    """Of an agent with one executor, and one that it knows nothing of."""

    def __init__(self, identity: Identity) -> None:
        papers = make_executor_pass(identity, "app:taxi", EXECUTOR_GRANT_HOURS)
        self.papers = papers
        self._identity, self._passes, self._grants = identity, {papers.node_id.hex: papers}, {"taxi": papers.grant}
        self.one, self.stranger = Process(papers.node_id.hex), Process("00")
        self.processes: Any = (self.one, self.stranger)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    identity = founder(tmp_path)
    yield Desk(identity)
    identity.close()


def later(desk: Desk, days: float) -> float:
    """Time passes; return the new time."""
    now = desk._identity.wall_seconds() + days * DAY
    desk._identity.wall_seconds = lambda: now
    return now


def test_nothing_is_renewed_while_it_holds(desk: Desk) -> None:
    desk.renew(desk.processes, later(desk, 20) + 3 * DAY)
    assert not desk.one.told


def test_grant_and_certificate_are_renewed_before_they_end_for_the_same_key(desk: Desk) -> None:
    for days in (LEAF_DAYS - 2, LEAF_DAYS - 2):  # twice: it goes on like that
        now = later(desk, days)
        desk.one.told.clear()
        desk.renew(desk.processes, now + 3 * DAY)
        (said,) = desk.one.told
        assert isinstance(said, CredentialsRenewed)
        grant = verify_chain(desk._identity.network, said.chain, desk.papers.public_key, int(now), check_signature)
        assert grant.not_after > now + 20 * DAY
        assert desk._grants["taxi"] == grant, "others are judged by it"
        leaf = x509.load_pem_x509_certificate(said.credentials.pem)
        assert leaf.not_valid_after_utc.timestamp() > now + 20 * DAY
        assert verify_peer_certificate(leaf.public_bytes(serialization.Encoding.DER)) == desk.papers.public_key
    assert not desk.stranger.told


def test_all_are_renewed_with_the_membership_of_their_agent(desk: Desk) -> None:
    desk.renew(desk.processes, math.inf)
    assert len(desk.one.told) == 1


def test_an_executor_presents_its_renewed_grant_on_new_links(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []
    nothing = cast(Any, None)
    configuration = cast(Any, SimpleNamespace(credentials=desk.papers.credentials, application="taxi"))
    hello = Hello(service="data", chain=desk.papers.chain, name="pi3")
    ways = DataRoutes(configuration, hello, nothing, nothing, nothing, nothing, nothing)
    desk.renew(desk.processes, later(desk, 29) + 3 * DAY)
    (said,) = desk.one.told
    load = ssl.SSLContext.load_cert_chain

    def noting(context: ssl.SSLContext, path: str) -> None:
        loaded.append(context)
        load(context, path)

    ways._tls = client_context(configuration.credentials)  # as its first dial makes it
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", noting)
    after = Hello(service="data", chain=said.chain, name="pi3")
    ways.renewed(after, said.credentials)
    assert loaded == [ways._tls]
    assert ways._hello == after


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    """Return an accepted connection and its other end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        caller = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
    accepted.setblocking(False)
    return accepted, caller


def test_the_first_link_is_taken_with_the_newest_credentials(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = cast(Any, None)
    made: list[object] = []

    def noting(credentials: TlsCredentials) -> ssl.SSLContext:
        made.append(credentials)
        return client_context(credentials)

    monkeypatch.setattr(accepted_links, "server_context", noting)

    async def scenario() -> None:
        own, agent = NodeId(7), "127.0.0.1:9464"
        configuration = cast(
            Any,
            SimpleNamespace(credentials=desk.papers.credentials, node_id=own, agent_address=agent, host="127.0.0.1"),
        )
        links = AcceptedLinks(configuration, nothing, nothing, nothing, nothing)
        early, first = tcp_pair(), tcp_pair()
        links.take(early[0])
        assert early[0].fileno() == -1, "it takes no links yet"
        assert ExecutorAddress.parse(await links.open(has_own_port=False)) == ExecutorAddress(agent, own, at_agent=True)
        desk.renew(desk.processes, later(desk, 29) + 3 * DAY)
        (said,) = desk.one.told
        links.renewed(said.credentials)
        assert made == [], "an application in one executor has no links, so it needs no TLS"
        links.take(first[0])
        assert made == [said.credentials]
        assert links.listener is not None
        await links.listener.close()
        for end in (early[1], first[1]):
            end.close()

    asyncio.run(scenario())

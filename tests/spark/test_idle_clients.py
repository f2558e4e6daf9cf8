"""Connections that outlive a task: one worker process reads with one client, and no forked process uses its parent's."""

import os
from typing import Any

import pytest

from agiledart_agent.identity import reader_identity
from agiledart_transport.agent_connection import ClientIdentity
from pyspark_agiledart import connection, feed_writers
from pyspark_agiledart.connection import PooledClient, open_client
from pyspark_agiledart.feed_writers import feed_client
from pyspark_agiledart.idle_clients import IDLE_SECONDS, MAX_IDLE, ClientKey, IdleClients
from pyspark_agiledart.reader_options import parse_options
from pyspark_agiledart.writer_options import WriterOptions

YORK: ClientKey = (("a:1",), "", "york", "")
PORTO: ClientKey = (("a:1",), "", "porto", "")


class Client:
    """The part of a client that the pool uses."""

    def __init__(self) -> None:
        self.closed = 0
        self.locate = self.ends = self.logs = self.fetch_parts = lambda *_: None

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def idle(now: list[float]) -> Any:
    return IdleClients(lambda: now[0])


def test_a_reader_gets_its_last_client_again_and_no_other_readers(idle: Any) -> None:
    first, second = Client(), Client()
    for client in (first, second):
        pooled = PooledClient(client, YORK, idle)  # type: ignore[arg-type]
        pooled.close()
        pooled.close()  # has no effect: else two tasks would get one client
    assert idle.take(PORTO) is None
    assert (idle.take(YORK), idle.take(YORK), idle.take(YORK)) == (second, first, None)
    assert (first.closed, second.closed) == (0, 0)


def test_unused_clients_are_closed(idle: Any, now: list[float]) -> None:
    clients = [Client() for _ in range(MAX_IDLE + 2)]
    for client in clients:
        idle.give(YORK, client)
    assert [client.closed for client in clients] == [1, 1] + [0] * MAX_IDLE
    now[0] = IDLE_SECONDS + 1
    assert idle.take(YORK) is None
    assert all(client.closed == 1 for client in clients)


def test_a_forked_process_leaves_its_parents_sockets_alone(idle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client()
    idle.give(YORK, client)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert idle.take(YORK) is None
    assert client.closed == 0  # to close TLS would end the parent's connection


def test_tasks_of_a_process_share_a_client_and_each_has_its_own_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def identity(token: str) -> Any:
        made.append(token)
        return ClientIdentity(b"n", b"s", (b"c",)), ("127.0.0.1:1",)

    monkeypatch.setattr(reader_identity, "identity_from_token", identity)
    monkeypatch.setattr(connection, "_IDLE", IdleClients())
    options = parse_options({"sink": "x", "tokenFile": "reader.token"})
    first = open_client(options, 5.0)
    inner = first._client  # type: ignore[attr-defined]
    first.close()
    second = open_client(options, 0.0)
    assert second._client is inner  # type: ignore[attr-defined]
    assert inner.agent_timeout_s == 0.0
    assert open_client(options, 0.0)._client is not inner  # type: ignore[attr-defined]
    assert made == ["@reader.token"] * 2


def test_tasks_that_write_to_a_feed_share_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def identity(token: str) -> Any:
        made.append(token)
        return ClientIdentity(b"n", b"s", (b"c",)), ("127.0.0.1:1",)

    monkeypatch.setattr(reader_identity, "identity_from_token", identity)
    monkeypatch.setattr(feed_writers, "_IDLE", IdleClients())
    options = WriterOptions("prices", token_file="writer.token", agent_timeout_s=7.0)
    with feed_client(options) as first:
        assert first.agent_timeout_s == 7.0
    with feed_client(options, 1.0) as second:
        assert (second is first, second.agent_timeout_s) == (True, 1.0)
        with feed_client(options) as beside:
            assert beside is not second
    assert made == ["@writer.token"] * 2

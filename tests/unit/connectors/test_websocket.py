"""WebSocket against websockets' own server: messages both ways, servers that go away, what is too large, backpressure."""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

websockets = pytest.importorskip("websockets")
from websockets.exceptions import ConnectionClosed  # noqa: E402  after the skip
from websockets.sync.server import Server, ServerConnection, serve  # noqa: E402

from agiledart_connectors.opening import open_sink, open_source  # noqa: E402
from agiledart_connectors.probing import probe_sink, probe_source  # noqa: E402
from agiledart_connectors.remote import connection_health, payload_queue  # noqa: E402
from agiledart_dataflow.plan.connectors import parse_connector  # noqa: E402
from agiledart_kernel.errors import OperationFailed  # noqa: E402
from agiledart_kernel.limits import MAX_LINE_BYTES  # noqa: E402
from tests.unit.connectors.reading import Taken  # noqa: E402


class Row(NamedTuple):
    id: int


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_health, "MIN_BACKOFF_SECONDS", 0.02)


@contextmanager
def serving(handler: Callable[[ServerConnection], None], port: int = 0) -> Iterator[int]:
    def guarded(connection: ServerConnection) -> None:
        try:
            handler(connection)
        except ConnectionClosed:
            return

    server: Server
    with serve(guarded, "127.0.0.1", port, max_size=None, close_timeout=1) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.socket.getsockname()[1]
        server.shutdown()
        thread.join()


def wait_for_end(connection: ServerConnection) -> None:
    for _ in connection:
        pass


def source(port: int, options: str = "") -> Any:
    return open_source(parse_connector(f"ws://127.0.0.1:{port}/feed{options}"), Row)


def test_messages_become_rows_after_the_greeting() -> None:
    greeted: list[Any] = []

    def feed(connection: ServerConnection) -> None:
        greeted.append((connection.request.path if connection.request else "", connection.recv()))
        for i in range(500):
            connection.send(json.dumps({"id": i}))
        connection.send(b'[{"id":500},{"id":501}]')
        connection.send("x")
        wait_for_end(connection)

    with serving(feed) as port:
        reader = source(port, '?hello={"subscribe":"t"}')
        found = Taken(reader).until(lambda it: len(it.rows) == 502 and bool(it.malformed))
        reader.close()
    assert found.rows == [Row(i) for i in range(502)]
    assert found.malformed == {"form": 1}
    assert found.notes[0].startswith(f"127.0.0.1:{port}/feed:502: is no JSON")
    assert greeted == [("/feed", '{"subscribe":"t"}')]


def test_a_disconnected_server_is_reconnected() -> None:
    count = [0]

    def feed(connection: ServerConnection) -> None:
        count[0] += 1
        connection.send(json.dumps({"id": count[0]}))
        if count[0] < 3:
            connection.close(1012, "restart")
        else:
            wait_for_end(connection)

    with serving(feed) as port:
        reader = source(port)
        found = Taken(reader).until(lambda it: len(it.rows) == 3)
        assert found.rows == [Row(1), Row(2), Row(3)]
        assert any("went away (closed: 1012 restart)" in note for note in found.notes)
    found.until(lambda it: "cannot be reached" in reader.connection_status())
    with serving(feed, port):
        found.until(lambda it: len(it.rows) == 4).until(lambda it: not reader.connection_status())
    reader.close()


def test_an_oversized_message_is_counted_and_the_next_ones_arrive() -> None:
    count = [0]

    def feed(connection: ServerConnection) -> None:
        count[0] += 1
        if count[0] == 1:
            connection.send("x" * (MAX_LINE_BYTES + 1))
        connection.send('{"id":1}')
        wait_for_end(connection)

    with serving(feed) as port:
        reader = source(port)
        found = Taken(reader).until(lambda it: bool(it.rows))
        assert found.malformed == {"size": 1}
        reader.close()


def test_while_rows_wait_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_queue, "MAX_WAITING", 10)
    sent = [0]
    text = json.dumps({"id": 1, "more": os.urandom(5_000).hex()})

    def feed(connection: ServerConnection) -> None:
        while sent[0] < 20_000:
            connection.send(text)
            sent[0] += 1
        wait_for_end(connection)

    with serving(feed) as port:
        reader = source(port)
        Taken(reader).until(lambda it: bool(it.rows))
        seen = -1
        while seen != sent[0]:  # until the server, too, waits
            seen = sent[0]
            threading.Event().wait(0.5)
        assert sent[0] < 20_000
        reader.close()


def test_rows_are_sent_and_repeated_after_a_reconnect() -> None:
    came: list[Any] = []

    def take(connection: ServerConnection) -> None:
        for message in connection:
            came.append(json.loads(message))
            if len(came) == 150:  # messages received until then, and answered for, are still taken
                connection.socket.shutdown(socket.SHUT_RDWR)

    with serving(take) as port:
        writer = open_sink(parse_connector(f"ws://127.0.0.1:{port}/in"), Row)
        assert probe_sink(parse_connector(f"ws://127.0.0.1:{port}/in"), Row, {}).text == "connected"
        writer.write([Row(i) for i in range(1_000)])
        writer.close()
    assert {one["id"] for one in came} == set(range(1_000))
    assert len(came) < 1_200  # a batch at most comes twice
    with pytest.raises(OperationFailed, match="cannot be reached"):
        probe_source(parse_connector(f"ws://127.0.0.1:{port}/feed"), Row)


def test_a_refusal_of_a_server_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        reader = source(door.getsockname()[1])
        peer, _ = door.accept()
        peer.recv(10_000)
        peer.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        Taken(reader).until(lambda it: "it answered 401" in reader.connection_status())
        reader.close()
        peer.close()

"""A server that is asked for rows: ETags, cursors, bounds, servers that are away or refuse."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from agiledart import Topology, collect
from agiledart_connectors.opening import open_source
from agiledart_connectors.probing import probe_source
from agiledart_connectors.remote import connection_health
from agiledart_dataflow.plan.connectors import Connector, parse_connector
from agiledart_executor.local_runs.local_run import run_topology
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from tests.unit.connectors.reading import Taken, taken


class Row(NamedTuple):
    id: int
    celsius: float = 0.0


Answer = tuple[int, dict[str, str], bytes]


class Server(ThreadingHTTPServer):
    """Answers as the test says."""

    def __init__(self, answer: Callable[[Any], Answer], port: int = 0) -> None:
        self.answer = answer
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.asked.append(self.path)
        status, headers, body = self.server.answer(self)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return None


@contextmanager
def serving(answer: Callable[[Any], Answer], port: int = 0) -> Iterator[Server]:
    with Server(answer, port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def source(server: Server, options: str = "", path: str = "/rows", kind: Any = Row) -> Any:
    return open_source(
        parse_connector(f"http://127.0.0.1:{server.port}{path}?x=1{options}".replace("?x=1&", "?").replace("?x=1", "")),
        kind,
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_health, "MIN_BACKOFF_SECONDS", 0.02)


def test_without_poll_the_server_is_asked_once_and_the_source_ends() -> None:
    body = json.dumps([{"id": i, "celsius": i / 2} for i in range(1_000)]).encode()
    with serving(lambda _: (200, {}, body)) as server:
        topology = Topology("once")
        found: Connector = parse_connector(f"http://127.0.0.1:{server.port}/rows")
        topology.source("rows", found, rows=Row).sink("out", collect)
        run = run_topology(topology)
    assert run.collected["out"] == [Row(i, i / 2) for i in range(1_000)]
    assert len(server.asked) == 1


def test_an_unchanged_answer_is_not_read_again() -> None:
    version = ["1"]

    def answer(request: Any) -> Answer:
        if request.headers.get("If-None-Match") == version[0]:
            return 304, {}, b""
        return 200, {"ETag": version[0]}, json.dumps({"id": int(version[0])}).encode()

    with serving(answer) as server:
        reader = source(server, "&poll=1s")
        Taken(reader).until(lambda it: it.rows == [Row(1)]).until(lambda it: len(server.asked) >= 3)
        version[0] = "2"
        found = Taken(reader).until(lambda it: bool(it.rows))
        assert found.rows == [Row(2)]
        reader.close()


def test_a_cursor_is_sent_and_pages_are_read_to_the_last() -> None:
    def answer(request: Any) -> Answer:
        query = parse_qs(urlsplit(request.path).query)
        assert query["kind"] == ["t"]
        after = int(query.get("after", ["0"])[0])
        rows = [{"id": i} for i in range(after + 1, min(after + 10, 25) + 1)]
        return 200, {}, json.dumps({"items": rows, "more": True}).encode()

    with serving(answer) as server:
        reader = source(server, "&cursor=id&since=after&member=items", "/rows%3Fkind=t")
        assert taken(reader).rows == [Row(i) for i in range(1, 26)]
        assert [urlsplit(path).query for path in server.asked] == [
            "kind=t", "kind=t&after=10", "kind=t&after=20", "kind=t&after=25"
        ]  # fmt: skip


def test_lines_are_read_and_malformed_ones_reported_with_their_place() -> None:
    with serving(lambda _: (200, {"Content-Type": "application/x-ndjson"}, b'{"id":1}\n\nx\n{"id":2}\n')) as server:
        found = taken(source(server))
    assert found.rows == [Row(1), Row(2)]
    assert found.malformed == {"form": 1}
    assert found.notes[0].startswith("GET /rows:3: is no JSON")


def test_an_oversized_or_malformed_answer_is_counted() -> None:
    with serving(lambda _: (200, {}, b"[" + b'{"id":1},' * 99 + b'{"id":1}]')) as server:
        found = taken(source(server, "&max_bytes=100"))
        assert (found.rows, found.malformed) == ([], {"size": 1})
        assert "an answer of more than 100 bytes" in found.notes[0]
        found = taken(source(server, "&member=rows"))
        assert found.malformed == {"form": 1}


def test_an_absent_server_is_retried_and_its_status_reported() -> None:
    states = iter([503, 429, 200])

    def answer(_: Any) -> Answer:
        return next(states), {"Retry-After": "0"}, b'{"id":1}'

    with serving(answer) as server:
        found = taken(source(server))
    assert found.rows == [Row(1)]
    assert any("gives nothing now (503" in note for note in found.notes)
    assert found.notes[-1].endswith("/rows answers again")
    reader = source(server, "&poll=1s")
    it = Taken(reader).until(lambda it: bool(reader.connection_status()))
    assert "does not answer" in reader.connection_status()
    with serving(lambda _: (200, {}, b'{"id":7}'), server.port):
        assert it.until(lambda it: bool(it.rows)).rows[0] == Row(7)
        it.until(lambda it: not reader.connection_status())
    reader.close()


def test_an_immediate_refusal_is_reported() -> None:
    with serving(lambda _: (404, {}, b"no such thing")) as server:
        with pytest.raises(OperationFailed, match=r"refuses to give /rows \(404 Not Found: no such thing\)"):
            taken(source(server))
        assert probe_source(parse_connector(f"http://127.0.0.1:{server.port}/rows?poll=1s"), Row).text == "takes calls"
    with pytest.raises(OperationFailed, match="does not answer"):
        probe_source(parse_connector(f"http://127.0.0.1:{server.port}/rows?poll=1s"), Row)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://:80/rows?poll=1s", "which server is asked"),
        ("http://h/rows?since=x", "add cursor=FIELD"),
        ("http://h/rows?cursor=id&format=csv", "look into JSON"),
        ("http://:0/rows?listen=1&poll=1s", "poll= is not for a source that listens"),
        ("https://h/rows?cert=a", "cert= is not for a source that asks"),
    ],
)
def test_invalid_poll_options_are_rejected(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        open_source(parse_connector(url), Row)


def test_closing_does_not_wait_for_the_next_poll() -> None:
    with serving(lambda _: (200, {}, b'{"id":1}')) as server:
        reader = source(server, "&poll=1h")
        Taken(reader).until(lambda it: bool(it.rows))
        reader.close()
        reader.close()
        assert threading.active_count() < 50

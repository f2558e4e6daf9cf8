"""HTTP: posted bodies become rows, 202 comes no sooner than they are taken; hostile clients; webhooks that are tried again."""

import contextlib
import gzip
import http.client
import json
import queue
import select
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart_connectors.http import push_reader
from agiledart_connectors.influx.influx_writer import InfluxLines
from agiledart_connectors.opening import open_sink, open_source
from agiledart_connectors.remote import connection_health, delivery_queue
from agiledart_dataflow.data.schema import ReadTime
from agiledart_dataflow.plan.connectors import Connector, parse_connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from tests.unit.connectors.reading import until


class Row(NamedTuple):
    room: str
    celsius: float


@pytest.fixture(autouse=True)
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sensors").write_text("s3cret\n")
    (tmp_path / "sensors").chmod(0o600)
    monkeypatch.setenv("AGILEDART_CREDENTIALS", str(tmp_path))


class Source:
    """A push source, read by a thread as an executor does, until it is stopped."""

    def __init__(self, options: str = "", kind: Any = Row) -> None:
        self.reader: Any = open_source(parse_connector(f"http://:0/in?listen=1{options}"), kind)
        self.rows: list[Any] = []
        self.notices: list[str] = []
        self.malformed: dict[str, int] = {}
        self.reads = threading.Event()
        self.ends = False
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> "Source":
        self.reads.set()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ends = True
        self.reads.set()
        self._thread.join()
        self.reader.close()

    def _read(self) -> None:
        while not self.ends:
            self.reads.wait()
            select.select([self.reader.fileno()], [], [], 0.05)
            if self.reads.is_set():
                reading = self.reader.read(100, 0)
                self.rows += reading.rows
                self.notices += reading.notes
                for reason, count in reading.malformed.items():
                    self.malformed[reason] = self.malformed.get(reason, 0) + count

    def post(self, body: bytes | str, path: str = "/in", method: str = "POST", **headers: str) -> tuple[int, Any, Any]:
        client = http.client.HTTPConnection("127.0.0.1", self.reader.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        client.request(method, path, body, named)
        answer = client.getresponse()
        told = json.loads(answer.read())
        client.close()
        return answer.status, told, answer.headers


def test_objects_arrays_and_lines_become_rows_and_malformed_ones_are_reported() -> None:
    with Source() as source:
        assert source.post('{"room":"a","celsius":1}')[:2] == (202, {"accepted": 1, "malformed": 0})
        assert source.post('[{"room":"b","celsius":2},{"room":"c","celsius":3}]')[0] == 202
        lines = '{"room":"d","celsius":4}\nhello\n{"room":"e","celsius":5}\n'
        told = source.post(lines, Content_Type="application/x-ndjson; charset=utf-8")
        assert told[:2] == (202, {"accepted": 2, "malformed": 1})
        assert source.post("nonsense")[0] == 400
        assert [row.room for row in source.rows] == list("abcde")
        assert any("POST /in:2 is no JSON" in note for note in source.notices)


def test_status_202_waits_until_rows_are_taken_and_429_reports_a_full_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_reader, "MAX_WAITING", 3)
    answers: list[int] = []
    with Source() as source:
        source.reads.clear()
        clients = [
            threading.Thread(target=lambda: answers.append(source.post('{"room":"a","celsius":1}')[0]))
            for _ in range(3)
        ]
        for client in clients:
            client.start()
        deadline = time.monotonic() + 30
        while len(source.reader._waiting) < 3:
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
        assert answers == [], "without a reader nothing is safe"
        status, _, headers = source.post('{"room":"b","celsius":1}')
        assert (status, headers["Retry-After"]) == (429, "1")
        source.reads.set()
        for client in clients:
            client.join(30)
        assert answers == [202, 202, 202]
        assert len(source.rows) == 3


def test_untaken_rows_are_answered_503_and_not_taken_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_reader, "SAFE_SECONDS", 0.2)
    with Source() as source:
        source.reads.clear()
        assert source.post('{"room":"a","celsius":1}')[0] == 503
        source.reads.set()
        assert source.post('{"room":"b","celsius":1}')[0] == 202
        assert [row.room for row in source.rows] == ["b"]


def test_a_request_with_wrong_token_path_or_size_is_refused() -> None:
    with Source("&credentials=sensors&max_bytes=100") as source:
        good = {"Authorization": "Bearer s3cret"}
        assert source.post("{}")[0] == 401
        assert source.post("{}", Authorization="Bearer s3cre")[0] == 401
        assert source.post("{}", Authorization="Bearer s3crét".encode().decode("latin-1"))[0] == 401
        assert source.post("{}", path="/out", **good)[0] == 404
        assert source.post("x" * 101, **good)[0] == 413
        assert source.post("", method="GET")[0] == 405
        assert source.post('{"room":"a","celsius":1}', path="/in?x=1", **good)[0] == 202
        with contextlib.closing(socket.create_connection(("127.0.0.1", source.reader.port))) as raw:
            raw.sendall(b"POST /in HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
            assert b" 401 " in raw.recv(1000)


def test_slow_and_silent_clients_do_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_reader, "CLIENT_SECONDS", 0.5)
    with Source() as source, contextlib.ExitStack() as stack:
        slow = [
            stack.enter_context(contextlib.closing(socket.create_connection(("127.0.0.1", source.reader.port))))
            for _ in range(10)
        ]
        for client in slow[:5]:
            client.sendall(b"POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
        assert source.post('{"room":"a","celsius":1}')[0] == 202
        for client in slow:
            client.settimeout(30)
            with contextlib.suppress(ConnectionError):
                while client.recv(1000):  # until it is hung up
                    pass


def test_a_client_that_trickles_bytes_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_reader, "REQUEST_SECONDS", 0.5)
    with Source() as source, contextlib.closing(socket.create_connection(("127.0.0.1", source.reader.port))) as slow:
        slow.sendall(b"POST /in HTTP/1.1\r\nContent-Length: 100000\r\n\r\n")
        slow.settimeout(0.05)
        deadline = time.monotonic() + 30
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < deadline:
                slow.sendall(b" ")
                with contextlib.suppress(TimeoutError):
                    if not slow.recv(10):
                        break
        assert time.monotonic() < deadline
        assert source.rows == []


def test_beyond_the_limit_a_client_that_has_asked_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_reader, "MAX_CLIENTS", 2)
    with Source() as source, contextlib.ExitStack() as stack:
        idle: list[socket.socket] = []
        for _ in range(2):
            client = stack.enter_context(
                contextlib.closing(socket.create_connection(("127.0.0.1", source.reader.port)))
            )
            client.sendall(b"POST /in HTTP/1.1\r\n")
            client.settimeout(30)
            idle.append(client)
        until(lambda: len(source.reader._server._receiving) == 2)
        assert source.post('{"room":"a","celsius":1}')[0] == 202
        assert idle[0].recv(10) == b""


def test_the_source_listens_when_configured_and_on_loopback() -> None:
    with pytest.raises(ConfigurationError, match="a source that listens says listen=1"):
        open_source(parse_connector("http://:0/in"), Row)
    with Source() as source:
        assert source.reader._server.server_address[0] == "127.0.0.1"
        with pytest.raises(OperationFailed, match="cannot listen"):
            open_source(parse_connector(f"http://:{source.reader.port}/in?listen=1"), Row)
    with pytest.raises(ConfigurationError, match="needs cert=FILE"):
        open_source(parse_connector("https://:0/in?listen=1"), Row)


class Hook:
    """A server that answers as a test wants, in turn, then 200."""

    def __init__(self, *answers: int | tuple[int, dict[str, str]]) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        waiting = list(answers)
        hook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.requests.append((self.path, dict(self.headers), body))
                answer = waiting.pop(0) if waiting else 200
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                self.send_response(status)
                for name, value in {"Content-Length": "2", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]

    def __enter__(self) -> "Hook":
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_health, "MIN_BACKOFF_SECONDS", 0.02)


def test_a_webhook_gets_batches_and_retries_under_the_same_key(quick: None) -> None:
    rows = [Row("a", float(number)) for number in range(25)]
    with Hook(503, (429, {"Retry-After": "0"}), 200, 500) as hook:
        writer: Any = open_sink(parse_connector(f"http://127.0.0.1:{hook.port}/x?batch=10&credentials=sensors"), Row)
        writer.write(rows)
        writer.close()
        taken: dict[str, list[Any]] = {}
        for _, headers, body in hook.requests:
            assert headers["Authorization"] == "Bearer s3cret"
            found = json.loads(body)
            assert taken.setdefault(headers["Idempotency-Key"], found) == found, "a key is of one batch"
        assert [row for batch in taken.values() for row in batch] == [row._asdict() for row in rows]
        assert len(hook.requests) == len(taken) + 3
        notices = writer.take_notices()
        assert any("takes nothing now (503" in note for note in notices)
        assert any("takes rows again" in note for note in notices)


def test_a_refusal_ends_the_application_and_an_absent_server_is_waited_for(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hook(422) as hook:
        writer: Any = open_sink(parse_connector(f"http://127.0.0.1:{hook.port}/x?rejected=fail"), Row)
        writer.write([Row("a", 1.0)])
        with pytest.raises(OperationFailed, match=r"refuses a row .422 Unprocessable.*: ok"):
            writer.close()
    with Hook(403) as hook:
        writer = open_sink(parse_connector(f"http://127.0.0.1:{hook.port}/x"), Row)
        writer.write([Row("a", 1.0)])
        with pytest.raises(OperationFailed, match=r"refuses rows .403 Forbidden.*: ok"):
            writer.close()
        port = hook.port
    monkeypatch.setattr(delivery_queue, "END_SECONDS", 0.3)
    writer = open_sink(parse_connector(f"http://127.0.0.1:{port}/x"), Row)
    writer.write([Row("a", 1.0)])
    with pytest.raises(
        OperationFailed, match=r"1 rows were not taken by 127.0.0.1:\d+ before the end .*does not answer"
    ):
        writer.close()


def test_a_sink_reports_delivered_and_undeliverable_rows(quick: None) -> None:
    told: queue.Queue[Any] = queue.Queue()
    with Hook(503, 503, 200, 403) as hook:
        writer: Any = open_sink(parse_connector(f"http://127.0.0.1:{hook.port}/x?batch=2&duplicates=1"), Row)
        writer.when_delivered(told.put)
        assert told.get_nowait() is None, "it was given nothing"
        writer.write([Row("a", 1.0)])
        writer.when_delivered(told.put)
        assert told.get(timeout=20) is None
        assert len(hook.requests) == 3
        writer.write([Row("a", 1.0)])
        writer.when_delivered(told.put)
        assert "refuses rows" in str(told.get(timeout=20))
        writer.when_delivered(told.put)
        assert "refuses rows" in str(told.get_nowait())
        with pytest.raises(OperationFailed):
            writer.close()


def test_a_sink_accepts_no_more_rows_than_may_wait(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_queue, "MAX_ROWS_WAITING", 10)
    monkeypatch.setattr(delivery_queue, "END_SECONDS", 0.1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        writer: Any = open_sink(parse_connector(f"http://127.0.0.1:{silent.getsockname()[1]}/x"), Row)
        assert writer.ready()
        writer.write([Row("a", 1.0)] * 10)
        assert not writer.ready()
        with pytest.raises(OperationFailed):
            writer.close()


class Point(NamedTuple):
    at: datetime
    room: str
    celsius: float | None
    number: int
    note: str = ""
    is_open: bool = False


NOON = datetime.fromisoformat("2026-01-01T12:00:00.000001")


def lines(options: str, kind: Any = Point) -> Callable[[Any], str]:
    made = InfluxLines(parse_connector(f"influx://h/b?{options}"), kind)
    return lambda row: made.line(row, 1_000_000_000)


@pytest.mark.parametrize(
    ("row", "line"),
    [
        (Point(NOON, "a", 1.5, 2), 'm,room=a celsius=1.5,number=2i,note="",is_open=false 1767268800000001000'),
        (Point(NOON, "a b,c=d", None, -1, 'say "x"\\'),
         'm,room=a\\ b\\,c\\=d number=-1i,note="say \\"x\\"\\\\",is_open=false 1767268800000001000'),
        (Point(NOON, "", float("nan"), 1 << 62), 'm number=4611686018427387904i,note="",is_open=false 1767268800000001000'),
        (Point(NOON, "x\\", 0.0, 0, "a\nb"), 'm,room=x celsius=0.0,number=0i,note="a\nb",is_open=false 1767268800000001000'),
    ],
)  # fmt: skip
def test_rows_are_written_in_line_protocol(row: Point, line: str) -> None:
    assert lines("measurement=m&tags=room&time=at")(row) == line


class Timed(NamedTuple):
    celsius: float | None
    read: ReadTime


def test_latencies_empty_points_and_invalid_options_of_line_protocol() -> None:
    make = lines("measurement=my%20room", Timed)
    assert make(Timed(1.0, ReadTime(500_000_000))) == "my\\ room celsius=1.0,read=500.0"
    for options, why in (
        ("tags=rom&measurement=m", "no field 'rom'"),
        ("tags=room", "which measurement"),
        ("measurement=m&time=when", "no field 'when'"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            lines(options)


@pytest.mark.parametrize(
    ("version", "path", "word"),
    [
        ("2&org=o", "/api/v2/write?bucket=plant&org=o&precision=ns", "Token s3cret"),
        ("1", "/write?db=plant&precision=ns", "Token s3cret"),
        ("3", "/api/v3/write_lp?db=plant&precision=nanosecond", "Bearer s3cret"),
    ],
)
def test_points_are_posted_in_the_form_of_each_version(version: str, path: str, word: str) -> None:
    with Hook(204) as hook:
        url = f"influx://127.0.0.1:{hook.port}/plant?measurement=m&tags=room&time=at&credentials=sensors&version={version}"
        writer: Any = open_sink(parse_connector(url), Point)
        writer.write([Point(NOON, "a", 1.5, 1), Point(NOON, "b", 2.5, 2)])
        writer.close()
        ((asked, headers, body),) = hook.requests
        assert (asked, headers["Authorization"]) == (path, word)
        assert [line.partition(" ")[0] for line in body.decode().split("\n")] == ["m,room=a", "m,room=b"]


@pytest.fixture
def no_leaks() -> Iterator[None]:
    before = threading.active_count()
    yield
    deadline = time.monotonic() + 30
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def test_a_closed_source_leaves_no_thread_and_no_waiting_client(no_leaks: None) -> None:
    answers: list[int] = []
    with Source() as source:
        source.reads.clear()
        client = threading.Thread(target=lambda: answers.append(source.post('{"room":"a","celsius":1}')[0]))
        client.start()
        deadline = time.monotonic() + 30
        while not source.reader._waiting:
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
        source.ends = True
        source.reads.set()
        source._thread.join()
        source.reader.close()
        client.join(30)
    assert answers == [503]


# ---- chunks and packed bodies


def chunked(*pieces: bytes, last: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + last


def raw_post(source: "Source", head: str, body: bytes) -> bytes:
    with contextlib.closing(socket.create_connection(("127.0.0.1", source.reader.port))) as raw:
        raw.settimeout(30)
        raw.sendall(f"POST /in HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n".encode() + body)
        return raw.recv(1_000)


def test_chunked_and_packed_payloads_become_rows() -> None:
    row = b'{"room":"a","celsius":1}'
    with Source() as source:
        assert b" 202 " in raw_post(source, "Transfer-Encoding: chunked", chunked(row[:5], row[5:]))
        for coding, body in (
            ("gzip", gzip.compress(row)), ("gzip", gzip.compress(row[:9]) + gzip.compress(row[9:])),
            ("deflate", zlib.compress(row)), ("deflate", zlib.compress(row)[2:-4]), ("identity", row),
        ):  # fmt: skip
            assert source.post(body, Content_Encoding=coding)[0] == 202, coding
        head = "Transfer-Encoding: chunked\r\nContent-Encoding: gzip"
        assert b" 202 " in raw_post(source, head, chunked(gzip.compress(row)))
        until(lambda: len(source.rows) == 7)
        assert source.rows == [Row("a", 1.0)] * 7


def test_broken_and_endless_payloads_are_refused_and_counted() -> None:
    bomb = gzip.compress(b" " * (4 << 20))
    with Source() as source:
        assert source.post(b"{}", Content_Encoding="br")[0] == 415
        assert source.post(b"no gzip", Content_Encoding="gzip")[0] == 400
        assert source.post(gzip.compress(b"{}")[:-4], Content_Encoding="gzip")[0] == 400
        assert source.post(bomb, Content_Encoding="gzip")[0] == 413
        assert b" 400 " in raw_post(source, "Transfer-Encoding: chunked", b"-1\r\n")
        assert b" 413 " in raw_post(source, "Transfer-Encoding: chunked", b"7fffffff\r\n")
        assert source.post('{"room":"a","celsius":1}')[0] == 202, "it goes on"
        until(lambda: source.malformed == {"form": 3, "size": 2})


# ---- forms of webhooks


def test_a_row_may_be_a_body_of_its_own_with_further_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    (tmp_path / "key").chmod(0o600)
    monkeypatch.setenv("AGILEDART_CREDENTIALS", str(tmp_path))
    with Hook() as hook:
        options = "body=row&header.X-Key=credential:key&header.content-type=application/vnd.x%2Bjson"
        writer: Any = open_sink(parse_connector(f"http://127.0.0.1:{hook.port}/x?{options}"), Row)
        writer.write([Row("a", 1.0), Row("b", 2.0)])
        writer.close()
    assert [json.loads(body) for _, _, body in hook.requests] == [
        {"room": "a", "celsius": 1.0}, {"room": "b", "celsius": 2.0}
    ]  # fmt: skip
    for _, headers, _ in hook.requests:
        assert headers["X-Key"] == "s3cret"
        assert {name: text for name, text in headers.items() if name.lower() == "content-type"} == {
            "content-type": "application/vnd.x+json"
        }


def test_a_template_makes_the_body(tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text('{"text": "Room {room} has {celsius} degrees", "id": {celsius}}')
    with Hook() as hook:
        for template in (f"@{tmp_path}/body.json", "{room}!"):
            connector = Connector("http", f"//127.0.0.1:{hook.port}/x", (("template", template),))
            writer: Any = open_sink(connector, Row)
            writer.write([Row('"a"\n', 1.5)])
            writer.close()
    (_, first, body), (_, second, text) = hook.requests
    assert json.loads(body) == {"text": 'Room "a"\n has 1.5 degrees', "id": 1.5}
    assert (first["Content-Type"], second["Content-Type"]) == ("application/json", "text/plain; charset=utf-8")
    assert text == b'"a"\n!'


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("body=rows", "body is one of array, row"),
        ("body=row&batch=5", "batch= is for body=array"),
        ("body=array&template={room}", "a template makes one body of each row"),
        ("template={rom}", "names {rom}, and rows have no such field; its fields are room, celsius"),
        ("header.Host=x", "'Host' is no header that a sink may set"),
        ("header.a b=x", "'a b' is no header"),
        ("header.X=a%0d%0ab", "is not printable ASCII"),
        ("headr.X=a", "http has no option 'headr.X'"),
    ],
)
def test_invalid_forms_are_rejected(options: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        open_sink(parse_connector(f"http://h/x?{options}"), Row)

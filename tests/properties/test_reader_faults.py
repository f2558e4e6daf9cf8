"""Faults at each door: whatever a library raises, and whenever, no reader's thread ends unseen and no run waits for ever.

A door's library is replaced by a script: answers, and errors of any class between them. After the script it answers well. Then
either all good answers become rows, or the input ends with a reason; the second only where the rule of `ThreadErrors` says so.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.http.http_address import http_address
from agiledart_connectors.http.http_client import HttpResponse
from agiledart_connectors.http.http_poller import HttpPoller
from agiledart_connectors.remote import connection_health
from agiledart_connectors.remote.payload_queue import PayloadQueue, PayloadQueueReader
from agiledart_connectors.remote.thread_errors import MAX_UNEXPECTED, RetryLaterError
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_kernel.errors import AgileDartError, OperationFailed
from tests.unit.connectors.reading import Taken

SECONDS = 60.0


class Row(NamedTuple):
    n: int


class LibraryError(Exception):
    """An error of a class that no code here knows."""


FAULTS: list[Callable[[], BaseException]] = [
    lambda: ValueError("Couldn't parse datetime string 'n/a'"),
    lambda: OverflowError("date value out of range"),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    lambda: RecursionError(),
    lambda: MemoryError(),
    lambda: LibraryError(),
    lambda: StopIteration(),
    lambda: SystemExit(3),
    lambda: KeyboardInterrupt(),
    lambda: OSError(5, "Input/output error"),
    lambda: ConnectionResetError(104, "Connection reset by peer"),
    lambda: TimeoutError(),
    lambda: RetryLaterError("away", 0.0),
    lambda: OperationFailed("no retry helps"),
]
AWAY = (OSError, RetryLaterError)
SCRIPTS = st.lists(st.none() | st.sampled_from(range(len(FAULTS))), max_size=12)


class Script:
    """Errors in the order in which they are raised; None: an answer."""

    def __init__(self, steps: list[int | None]) -> None:
        self._steps = iter(steps)
        self.answers = 0
        self.raised: list[BaseException | None] = []

    def __call__(self) -> int:
        """Return the next number; raises what the script says."""
        step = next(self._steps, None)
        if step is not None:
            error = FAULTS[step]()
            self.raised.append(error)
            raise error
        self.raised.append(None)
        self.answers += 1
        return self.answers

    def reason(self) -> str:
        """Return the class of the error with which the input must have ended; empty: none."""
        in_a_row = 0
        for error in self.raised:
            if error is None:
                in_a_row = 0
            elif isinstance(error, AgileDartError):
                return str(error)
            elif not isinstance(error, AWAY):
                in_a_row += 1
                if in_a_row == MAX_UNEXPECTED:
                    return type(error).__name__
        return ""


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    before = connection_health.MIN_BACKOFF_SECONDS, connection_health.MAX_BACKOFF_SECONDS
    connection_health.MIN_BACKOFF_SECONDS, connection_health.MAX_BACKOFF_SECONDS = 0.001, 0.002
    yield
    connection_health.MIN_BACKOFF_SECONDS, connection_health.MAX_BACKOFF_SECONDS = before


def check(reader: Any, script: Script, wanted: int) -> None:
    """Read until `wanted` rows are there, or until the input ends with a reason."""
    taken, ended = Taken(reader), ""
    try:
        taken.until(lambda it: len(it.rows) >= wanted, SECONDS)
    except AgileDartError as error:
        ended = str(error)
    finally:
        reader.close()
    assert not reader._thread.is_alive()
    if ended:
        assert script.reason()
        assert script.reason() in ended
    else:
        assert [row.n for row in taken.rows[:wanted]] == list(range(1, wanted + 1))


def work_of(script: Script) -> Callable[[PayloadQueue], None]:
    def work(incoming: PayloadQueue) -> None:
        while not incoming.is_closed:
            number = script()
            incoming.report_success()
            incoming.put(b'{"n":%d}' % number, "here")

    return work


FEW = settings(max_examples=40, deadline=None)


@FEW
@given(steps=SCRIPTS)
def test_the_common_thread(steps: list[int | None]) -> None:
    script = Script(steps)
    check(PayloadQueueReader("here", open_decoder("json", Row), work_of(script)), script, 15)


@FEW
@given(steps=SCRIPTS)
def test_http(steps: list[int | None]) -> None:
    script = Script(steps)

    class Client:
        def ask(self, method: str, path: str, *more: Any) -> HttpResponse:
            return HttpResponse(200, "OK", {}, b'{"n":%d}' % script())  # type: ignore[arg-type]

        def close(self) -> None:
            return None

    connector = parse_connector("http://h:1/rows?poll=1s")
    poller = HttpPoller(connector, http_address(connector))
    poller._caller, poller._seconds = Client(), 0.0005  # type: ignore[assignment]
    check(PayloadQueueReader("h:1/rows", open_decoder("json", Row), poller), script, 15)


@FEW
@given(steps=SCRIPTS)
def test_websocket(steps: list[int | None]) -> None:
    pytest.importorskip("websockets")
    from agiledart_connectors.websocket.websocket_listener import WebsocketListener

    script = Script(steps)

    class Connection:
        def recv(self, timeout: float | None, decode: bool) -> bytes:
            return b'{"n":%d}' % script()

        def close(self) -> None:
            return None

    listener = WebsocketListener(parse_connector("ws://h:1/live"))
    listener.session.connected = Connection  # type: ignore[method-assign, assignment]
    reader = PayloadQueueReader("h:1/live", open_decoder("json", Row), listener, listener.interrupt)
    check(reader, script, 15)


@FEW
@given(steps=SCRIPTS)
def test_serial(steps: list[int | None]) -> None:
    serial = pytest.importorskip("serial")
    from agiledart_connectors.serial_line.line_mode import LineMode
    from agiledart_connectors.serial_line.serial_listener import SerialListener

    script = Script(steps)

    class Line:
        in_waiting = 0

        def read(self, size: int) -> bytes:
            return b'{"n":%d}\n' % script()

    @contextmanager
    def opened(*more: Any, **options: Any) -> Iterator[Line]:
        yield Line()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serial, "Serial", opened)
        listener = SerialListener(LineMode("/dev/x", 9_600, 8, "N", 1))
        check(PayloadQueueReader("/dev/x", open_decoder("json", Row), listener), script, 15)


@FEW
@given(steps=SCRIPTS)
def test_modbus(steps: list[int | None], tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("pymodbus")
    from pymodbus.pdu.register_message import ReadHoldingRegistersResponse

    from agiledart_connectors.modbus.modbus_poller import ModbusPoller

    script = Script(steps)

    class Device:
        connected = True

        def __getattr__(self, name: str) -> Any:
            return lambda *more, **options: ReadHoldingRegistersResponse(registers=[script()])

        def close(self) -> None:
            return None

    path = tmp_path_factory.getbasetemp() / "map.toml"
    path.write_text("[n]\naddress = 1\n")
    poller = ModbusPoller(parse_connector(f"modbus://h:1?map={path}"), Row)
    poller._client, poller._seconds = Device(), 0.0005  # type: ignore[assignment]
    check(PayloadQueueReader("h:1", open_decoder("json", Row), poller), script, 15)


@FEW
@given(steps=SCRIPTS)
def test_sql(steps: list[int | None], tmp_path_factory: pytest.TempPathFactory) -> None:
    """A statement raises before, or a row while it is fetched; a row is read once, whatever was raised in between."""
    pytest.importorskip("sqlalchemy")
    import sqlite3

    import sqlalchemy as sa

    from agiledart_connectors.sql import sql_reader

    folder = tmp_path_factory.mktemp("sql")
    (folder / "plant").write_text(f"sqlite:///{folder}/plant.db")
    (folder / "plant").chmod(0o600)
    with sqlite3.connect(folder / "plant.db") as database:
        database.execute("create table readings (n integer primary key)")
        database.executemany("insert into readings values (?)", [[number] for number in range(1, 16)])
    os.environ["AGILEDART_CREDENTIALS"] = str(folder)
    script = Script(steps)

    class Faulty(sa.types.TypeDecorator[int]):
        impl, cache_ok = sa.Integer, False

        def process_result_value(self, value: Any, dialect: Any) -> int:
            if threading.current_thread() is not threading.main_thread():
                script()
            return int(value)

    def reflected(engine: sa.Engine, connector: Any) -> sa.Table:
        return sa.Table("readings", sa.MetaData(), sa.Column("n", Faulty, primary_key=True))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql_reader, "reflected", reflected)
        reader = sql_reader.SqlReader(parse_connector("sql:plant?table=readings&poll=1s"), Row)
    reader._poll_seconds = 0.001
    taken, ended = Taken(reader), ""
    try:
        taken.until(lambda it: len(it.rows) + it.malformed.get("type", 0) >= 15, SECONDS)
    except AgileDartError as error:
        ended = str(error)
    finally:
        reader.close()
    assert not reader._thread.is_alive()
    numbers = [row.n for row in taken.rows]
    assert numbers == sorted(set(numbers))
    assert ended or len(numbers) + taken.malformed.get("type", 0) == 15
    assert not ended or any(isinstance(error, OperationFailed | KeyboardInterrupt) for error in script.raised)


class Message(NamedTuple):
    """A message as paho gives it."""

    topic: str
    payload: bytes
    mid: int
    qos: int = 1
    retain: bool = False


@FEW
@given(steps=SCRIPTS)
def test_mqtt(steps: list[int | None]) -> None:
    """The link connects again after any error of paho's loop, or the source ends with a reason."""
    pytest.importorskip("paho.mqtt.client")
    from agiledart_connectors.mqtt import mqtt_reader
    from agiledart_connectors.mqtt.read_ahead import EagerClient
    from agiledart_connectors.options import ReadOptions

    script, over = Script(steps), threading.Event()

    def loop_forever(client: Any, timeout: float = 1.0, retry_first_connection: bool = False) -> int:
        while script.answers < 15:
            number = script()
            client.on_message(client, None, Message("n", b'{"n":%d}' % number, number))
        over.wait(SECONDS)
        return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EagerClient, "loop_forever", loop_forever)
        patch.setattr(mqtt_reader, "SUBSCRIBE_WAIT_S", 0.0)  # no broker answers here
        reader = mqtt_reader.open_source(parse_connector("mqtt://127.0.0.1:1/n?qos=1"), Row, ReadOptions())
        taken, ended = Taken(reader), ""
        thread = reader._link.client._thread
        try:
            taken.until(lambda it: len(it.rows) >= 15, SECONDS)
        except AgileDartError as error:
            ended = str(error)
        finally:
            over.set()
            reader.close()
    assert thread is None or not thread.is_alive()
    if ended:
        assert script.reason()
        assert script.reason() in ended
    else:
        assert [row.n for row in taken.rows] == list(range(1, 16))


@FEW
@given(steps=st.lists(st.sampled_from(range(len(FAULTS))), max_size=8))
def test_http_port(steps: list[int]) -> None:
    """The port goes on after any error of accepting clients, or the source ends with a reason."""
    from agiledart_connectors.http import push_reader

    script, served = Script(list(steps)), push_reader._Server.serve_forever

    def serve_forever(server: Any, poll_interval: float = 0.5) -> None:
        script()
        served(server, 0.01)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(push_reader._Server, "serve_forever", serve_forever)
        reader: Any = push_reader.open_source(parse_connector("http://:0/in?listen=1"), Row, None)  # type: ignore[arg-type]
        taken, ended, done = Taken(reader), "", threading.Event()

        def post() -> None:
            request = b'POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n{"n":1}'
            with socket.create_connection(("127.0.0.1", reader.port), SECONDS) as client:
                client.sendall(request)
                done.wait(SECONDS)

        client = threading.Thread(target=post)
        client.start()
        try:
            taken.until(lambda it: bool(it.rows), SECONDS)
        except AgileDartError as error:
            ended = str(error)
        finally:
            done.set()
            client.join()
            reader.close()
    assert bool(ended) == bool(script.reason())
    assert script.reason() in ended

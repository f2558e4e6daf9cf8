"""Modbus against pymodbus's own server, serial lines over pseudo terminals, register maps."""

import asyncio
import os
import pty
import re
import select
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pymodbus")
pytest.importorskip("serial")
from pymodbus.server import ModbusSerialServer, ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from agiledart_connectors.modbus.register_map import DeviceValue, RegisterRead, read_map, register_reads
from agiledart_connectors.opening import open_source
from agiledart_connectors.probing import probe_source
from agiledart_connectors.remote import connection_health, payload_queue
from agiledart_connectors.serial_line.serial_listener import SerialLineSplitter
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.limits import MAX_LINE_BYTES
from tests.unit.connectors.reading import Taken


class Plant(NamedTuple):
    at: datetime
    temperature: float
    total: int
    power: float
    running: bool


MAP = """
[temperature]
address = 10
type = "int16"
scale = 0.1
offset = -40

[total]
address = 11
type = "uint32"

[power]
address = 13
type = "float32"
words = "big"

[running]
kind = "coil"
address = 3
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_health, "MIN_BACKOFF_SECONDS", 0.05)


@contextmanager
def device(**where: Any) -> Iterator[Any]:
    """A device with values where `MAP` says, until the block ends."""
    words = [
        SimData(address=10, values=655, datatype=DataType.INT16),
        SimData(address=11, values=70_000, datatype=DataType.UINT32),
        SimData(address=13, values=1.5, datatype=DataType.FLOAT32),
    ]
    bits = [SimData(address=0, count=1, values=[False, False, False, True] * 4, datatype=DataType.BITS)]
    context = SimDevice(1, (bits, bits, words, words))
    loop = asyncio.new_event_loop()
    begun = threading.Event()
    found: list[Any] = []

    async def serve() -> None:
        server = ModbusTcpServer(context, **where) if "address" in where else ModbusSerialServer(context, **where)
        await server.serve_forever(background=True)
        found.append(server)
        begun.set()

    def run() -> None:
        loop.run_until_complete(serve())
        loop.run_forever()

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(30)
    try:
        yield found[0]
    finally:
        asyncio.run_coroutine_threadsafe(found[0].shutdown(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / "plant.toml"
    path.write_text(MAP)
    return str(path)


def port_of(server: Any) -> int:
    return int(server.transport.sockets[0].getsockname()[1])


def assert_is_plant(row: Plant) -> None:
    assert row.temperature == pytest.approx(25.5)
    assert row[2:] == (70_000, 1.5, True)
    assert row.at.year >= 2020


def test_registers_become_rows_at_intervals_and_an_absent_device_is_retried(plan: str) -> None:
    with device(address=("127.0.0.1", 0)) as server:
        port = port_of(server)
        url = f"modbus://127.0.0.1:{port}?map={plan}&poll=1s"
        assert probe_source(parse_connector(url), Plant).text == "connected"
        reader: Any = open_source(parse_connector(url), Plant)
        found = Taken(reader).until(lambda it: len(it.rows) == 2)
        assert_is_plant(found.rows[0])
        assert 0.5 < (found.rows[1].at - found.rows[0].at).total_seconds() < 20
    found.until(lambda it: "does not answer" in reader.connection_status())
    with device(address=("127.0.0.1", port)):
        found.until(lambda it: len(it.rows) == 3).until(lambda it: not reader.connection_status())
        reader.close()
    with pytest.raises(OperationFailed, match="does not answer"):
        probe_source(parse_connector(url), Plant)


def test_registers_are_read_over_a_serial_line(plan: str) -> None:
    with pseudo_line() as (ours, theirs), crossed(ours) as other, device(port=other, baudrate=9600):
        reader: Any = open_source(parse_connector(f"modbus:{theirs}?map={plan}&baud=9600"), Plant)
        found = Taken(reader).until(lambda it: bool(it.rows))
        assert_is_plant(found.rows[0])
        reader.close()


def test_a_device_that_refuses_at_once_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    path.write_text("[pressure]\naddress = 9000\n")
    with device(address=("127.0.0.1", 0)) as server:
        reader: Any = open_source(parse_connector(f"modbus://127.0.0.1:{port_of(server)}?map={path}"), dict[str, Any])
        with pytest.raises(OperationFailed, match="refuses pressure: there is no such address"):
            Taken(reader).until(lambda it: bool(it.rows))
        reader.close()


def test_adjacent_registers_are_read_in_one_request(plan: str) -> None:
    asked = read_map(plan)
    assert [(one.kind, one.address, one.count, len(one.values)) for one in asked] == [
        ("holding", 10, 5, 3), ("coil", 3, 1, 1)
    ]  # fmt: skip
    many = [DeviceValue(f"v{i}", "input", 4 * i, "float64", None, None, "big") for i in range(100)]
    assert [one.count for one in register_reads(many)] == [124, 124, 124, 28]
    assert register_reads(many[::2])[0] == RegisterRead("input", 0, 4, (many[0],))  # no unnamed register


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "names 0 values"),
        ("x", "is no TOML"),
        ("x = 1", r"x: write a table"),
        ("[x]\nadress = 1", "Did you mean address"),
        ("[x]", "address is a number from 0 to 65,535, not None"),
        ("[x]\naddress = 65535\ntype = 'int32'", "from 0 to 65,534"),
        ("[x]\naddress = true", "address is a number"),
        ("[x]\naddress = 1\ntype = 'int8'", "type is one of int16"),
        ("[x]\naddress = 1\nkind = 'coils'", "kind is one of holding"),
        ("[x]\naddress = 1\nkind = 'coil'\nscale = 2", "a coil is true or false: it has no scale"),
        ("[x]\naddress = 1\nscale = '2'", "scale is a number"),
        ("[x]\naddress = 1\nwords = 'middle'", "words is"),
    ],
)
def test_an_invalid_register_map_is_rejected(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "map.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=told):
        open_source(parse_connector(f"modbus://h?map={path}"), dict[str, Any])


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("modbus://h", r"Add map=FILE"),
        ("modbus:h:502?map=x", "write modbus:/dev/DEVICE"),
        ("modbus://h:x?map=x", "write modbus://HOST:PORT"),
        ("modbus://h?baud=9600&map=x", "baud= is for a serial line"),
        ("serial:/dev/x?mode=8X1", "such as 8N1 or 7E1, not '8X1'"),
        ("serial:ttyUSB0", "write serial:/dev/DEVICE"),
        ("serial:/dev/x?format=msgpack", "msgpack does not come in lines"),
    ],
)
def test_invalid_options_are_rejected(url: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        open_source(parse_connector(url), str if url.startswith("serial") else dict[str, Any])


# ---- serial lines


@contextmanager
def pseudo_line() -> Iterator[tuple[int, str]]:
    """(our end, the name of the other) of a pseudo terminal."""
    ours, theirs = pty.openpty()
    tty.setraw(ours)
    tty.setraw(theirs)
    name = os.ttyname(theirs)
    try:
        yield ours, name
    finally:
        os.close(theirs)
        os.close(ours)


@contextmanager
def crossed(ours: int) -> Iterator[str]:
    """The name of a line whose other end is joined with ours."""
    with pseudo_line() as (other, name):
        stops = os.eventfd(0)

        def carry() -> None:
            while True:
                ready, _, _ = select.select([ours, other, stops], [], [])
                if stops in ready:
                    return
                for end, out in ((ours, other), (other, ours)):
                    if end in ready:
                        os.write(out, os.read(end, 4_096))

        thread = threading.Thread(target=carry)
        thread.start()
        try:
            yield name
        finally:
            os.eventfd_write(stops, 1)
            thread.join()
            os.close(stops)


def opened(reader: Any, ours: int, line: bytes) -> Taken:
    """Write a line again and again until one has been read: lines that come while the port is opened are discarded."""
    found = Taken(reader)

    def has_come(it: Taken) -> bool:
        if not it.rows:
            os.write(ours, line)
        return bool(it.rows)

    return found.until(has_come)


class Measured(NamedTuple):
    room: str
    celsius: float


def test_lines_of_a_serial_line_become_rows() -> None:
    with pseudo_line() as (ours, name):
        connector = parse_connector(f"serial:{name}?format=csv&baud=115200&mode=7E1")
        assert probe_source(connector, Measured).text == "is there"
        reader: Any = open_source(connector, Measured)
        found = opened(reader, ours, b"attic,1\n")
        os.write(ours, b"attic,2")
        os.write(ours, b"4.5\r\n\r\ncellar,x\nattic,25\n")
        found.until(lambda it: Measured("attic", 25.0) in it.rows)
        assert found.rows[-2:] == [Measured("attic", 24.5), Measured("attic", 25.0)]
        assert found.malformed == {"number": 1}
        assert re.fullmatch(rf"{name}:\d+: celsius: 'x' is no finite number", found.notes[0])
        reader.close()


def test_rows_that_arrive_too_fast_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_queue, "MAX_WAITING", 10)
    with pseudo_line() as (ours, name):
        reader: Any = open_source(parse_connector(f"serial:{name}"), str)
        found = opened(reader, ours, b"ready\n")
        for _ in range(20):
            os.write(ours, b"a line\n" * 100)  # waits until it is read
        os.write(ours, b"the end\n")
        found.until(lambda it: it.rows.count("a line") + it.malformed.get("overflow", 0) >= 2_000)
        assert found.malformed["overflow"] > 0
        assert "came faster than it was taken" in found.notes[0]
        reader.close()


def test_an_unplugged_line_is_reopened(tmp_path: Path) -> None:
    link = tmp_path / "ttyUSB0"
    with pytest.raises(OperationFailed, match="there is no "):
        probe_source(parse_connector(f"serial:{link}"), str)
    with pseudo_line() as (ours, name):
        link.symlink_to(name)
        reader: Any = open_source(parse_connector(f"serial:{link}"), str)
        found = opened(reader, ours, b"one\n")
    found.until(lambda it: "cannot be read" in reader.connection_status())
    link.unlink()
    with pseudo_line() as (ours, name):
        link.symlink_to(name)
        found.until(lambda it: not reader.connection_status())
        os.write(ours, b"two\n")
        found.until(lambda it: it.rows[-1] == "two")
        reader.close()


def test_an_endless_line_takes_no_memory() -> None:
    cutter = SerialLineSplitter()
    for _ in range(3 * MAX_LINE_BYTES // 4_096):
        assert cutter.lines(b"x" * 4_096) == []
    assert cutter.too_long == 1
    assert len(cutter._rest) <= MAX_LINE_BYTES
    assert cutter.lines(b"x\nnext\nre") == [b"next"]
    assert cutter.lines(b"st\n") == [b"rest"]

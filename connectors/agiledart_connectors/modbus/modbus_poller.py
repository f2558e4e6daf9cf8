"""Source `modbus:`: the registers of a device, read at regular times; each reading is one row.

    modbus://plc:502?map=plant.toml&poll=1s                            over TCP
    modbus:/dev/ttyUSB0?map=plant.toml&unit=3&baud=9600&mode=8E1       RTU, over a serial line

`map` names the file that says which registers hold what (`register_map.py`); its names fill the row's fields, `at` is when it was
read. A device that does not answer is asked again, ever later; readings that were due meanwhile are missed.
"""

import math
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from pymodbus.client import ModbusSerialClient, ModbusTcpClient
from pymodbus.exceptions import ModbusException

from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.modbus.register_map import DeviceValue, RegisterRead, read_map
from agiledart_connectors.options import SPANS_MS, ReadOptions, number, quantity
from agiledart_connectors.remote.payload_queue import PayloadQueue, PayloadQueueReader
from agiledart_connectors.serial_line.line_mode import line_mode
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed

SECONDS: Final = 3.0
DEFAULT_POLL_SECONDS: Final = 1.0
_REASONS: Final = {
    1: "it does not know such registers", 2: "there is no such address", 3: "so many cannot be read", 4: "it has a fault",
    6: "it is busy", 10: "the gateway has no way to it", 11: "it does not answer the gateway",
}  # fmt: skip
"""Exception codes (Modbus Application Protocol 1.1b3, section 7)."""

_WRONG: Final = (1, 2, 3)
"""Those that asking again does not mend."""

Client = ModbusTcpClient | ModbusSerialClient


class ModbusPoller:
    """The thread.

    Args:
        connector: where the device is.
        clock: nanoseconds since 1970.
    """

    def __init__(self, connector: Connector, clock: Callable[[], int] = time.time_ns) -> None:
        self.name, self._client = client_of(connector)
        if not connector.option("map"):
            raise ConfigurationError(
                f"{connector.url()}: which registers? Add map=FILE, a TOML file with a table for each value"
            )
        self._questions = read_map(connector.option("map"))
        self._unit = number(connector, "unit", 1, 0, 255)
        self._seconds = quantity(connector, "poll", SPANS_MS, "1s") / 1_000 or DEFAULT_POLL_SECONDS
        self._clock = clock
        self._has_answered = False

    def __call__(self, incoming: PayloadQueue) -> None:
        try:
            due = time.monotonic()
            while not incoming.is_closed:
                row = self._row(incoming)
                if row is not None:
                    self._has_answered = True
                    incoming.report_success()
                    incoming.offer(msgspec.json.encode(row), self.name)
                    due = max(due + self._seconds, time.monotonic())  # missed polls are not made up for
                if row is not None and not incoming.pause(due - time.monotonic()):
                    return
        finally:
            self._client.close()  # type: ignore[no-untyped-call]

    def _row(self, incoming: PayloadQueue) -> dict[str, Any] | None:
        """A reading; None when there was none, after the time to wait."""
        at = self._clock()
        row: dict[str, Any] = {"at": at / 1e9}
        for register_read in self._questions:
            names = ", ".join(value.name for value in register_read.values[:3])
            try:
                if not self._client.connected and not self._client.connect():
                    incoming.report_failure(f"{self.name} does not answer")
                    return None
                answer = self._read_registers(register_read)
            except (ModbusException, OSError) as error:
                self._client.close()  # type: ignore[no-untyped-call]
                incoming.report_failure(f"{self.name} does not answer for {names} ({_reason(error)})")
                return None
            if answer.isError():
                code = getattr(answer, "exception_code", 0)
                why = f"{self.name} refuses {names}: {_REASONS.get(code, f'exception {code}')}"
                if code in _WRONG and not self._has_answered:
                    raise OperationFailed(why)
                incoming.report_failure(why)
                return None
            for value in register_read.values:
                row[value.name] = value_of(value, register_read, answer)
        return row

    def _read_registers(self, register_read: RegisterRead) -> Any:
        client = self._client
        ask: Any = {
            "holding": client.read_holding_registers,
            "input": client.read_input_registers,
            "coil": client.read_coils,
            "discrete": client.read_discrete_inputs,
        }[register_read.kind]
        return ask(register_read.address, count=register_read.count, device_id=self._unit)


def value_of(value: DeviceValue, register_read: RegisterRead, answer: Any) -> Any:
    """A value out of an answer; None for a float that is no number."""
    at = value.address - register_read.address
    if not value.type:
        return bool(answer.bits[at])
    registers = answer.registers[at : at + value.length]
    kind = ModbusTcpClient.DATATYPE[value.type.upper()]
    order: Any = value.words
    number: Any = ModbusTcpClient.convert_from_registers(registers, kind, word_order=order)
    if value.scale is not None:
        number = number * value.scale
    if value.offset is not None:
        number = number + value.offset
    return None if isinstance(number, float) and not math.isfinite(number) else number


def client_of(connector: Connector) -> tuple[str, Client]:
    """A device's name for users, and a client that is not connected. Raises `ConfigurationError`."""
    if not connector.path.startswith("//"):
        mode = line_mode(connector)
        client = ModbusSerialClient(
            mode.port, baudrate=mode.baud, bytesize=mode.bits, parity=mode.parity, stopbits=mode.stop_bits, timeout=SECONDS,
            retries=0,
        )  # fmt: skip
        return f"unit {connector.option('unit', '1')} at {mode.port}", client
    if wrong := [name for name in ("baud", "mode") if connector.option(name)]:
        raise ConfigurationError(f"{connector.url()}: {wrong[0]}= is for a serial line")
    where = connector.path.removeprefix("//").rstrip("/")
    host, colon, port = where.rpartition(":")
    if not colon or "]" in port:
        host, port = where, "502"
    if not host or "/" in host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ConfigurationError(f"{connector.url()}: write modbus://HOST:PORT?map=FILE or modbus:/dev/DEVICE?map=FILE")
    host = host.removeprefix("[").removesuffix("]")
    return f"{host}:{port}", ModbusTcpClient(host, port=int(port), timeout=SECONDS, retries=0)


def _reason(error: Exception) -> str:
    return str(
        getattr(error, "strerror", None) or getattr(error, "string", "") or error or type(error).__name__
    ).lower()


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> PayloadQueueReader:
    """The reader of a `modbus:` connector."""
    asking = ModbusPoller(connector)
    return PayloadQueueReader(asking.name, open_decoder("json", row_type), asking)


def probe(connector: Connector, row_type: Any) -> str:
    """Does the device take calls? For `submit --dry-run`."""
    asking = ModbusPoller(connector)
    open_decoder("json", row_type)
    if not connector.path.startswith("//"):
        return line_mode(connector).checked()
    _, client = client_of(connector)
    try:
        if not client.connect():
            raise OperationFailed(f"{asking.name} does not answer")
    finally:
        client.close()  # type: ignore[no-untyped-call]
    return "connected"

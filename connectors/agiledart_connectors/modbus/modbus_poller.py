"""Source `modbus:`: the registers of a device, read at regular times; each reading is one row.

    modbus://plc:502?map=plant.toml&poll=1s                            over TCP
    modbus:/dev/ttyUSB0?map=plant.toml&unit=3&baud=9600&mode=8E1       RTU, over a serial line

`map` names the file that says which registers hold what (`register_map.py`); its names fill the row's fields, `at` is when it was
read. A device that does not answer is asked again, ever later; readings that were due meanwhile are missed. An answer that is too
short gives None where the field allows it, else the reading is malformed (`answer`).
"""

import math
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from pymodbus.client import ModbusSerialClient, ModbusTcpClient
from pymodbus.exceptions import ModbusException
from pymodbus.pdu import ExceptionResponse

from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.modbus.register_map import DeviceValue, RegisterRead, read_map
from agiledart_connectors.options import SPANS_MS, ReadOptions, number, quantity
from agiledart_connectors.remote.payload_queue import PayloadQueue, PayloadQueueReader
from agiledart_connectors.remote.thread_errors import RetryLaterError, fault_text
from agiledart_connectors.serial_line.line_mode import line_mode
from agiledart_dataflow.data.inference import optional_stripped
from agiledart_dataflow.data.schema import fields_of, is_named_tuple
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed

ANSWER: Final = "answer"
"""Reason of a reading that a device answered with too little."""

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
        row_type: of its rows; where it allows None, a value that a device did not give is None.
        clock: nanoseconds since 1970.
    """

    def __init__(self, connector: Connector, row_type: Any, clock: Callable[[], int] = time.time_ns) -> None:
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
        names = {value.name for register_read in self._questions for value in register_read.values}
        types = {field.name: field.type for field in fields_of(row_type)} if is_named_tuple(row_type) else {}
        self._optional = {name for name in names if name not in types or optional_stripped(types[name]) != types[name]}

    def __call__(self, incoming: PayloadQueue) -> None:
        """Read until the reader is closed. Raises `RetryLaterError` (no answer), `OperationFailed` (the map is wrong)."""
        try:
            due = time.monotonic()
            while not incoming.is_closed:
                row = self._row(incoming)
                self._has_answered = True
                incoming.report_success()
                if row is not None:
                    incoming.offer(msgspec.json.encode(row), self.name)
                due = max(due + self._seconds, time.monotonic())  # missed polls are not made up for
                if not incoming.pause(due - time.monotonic()):
                    return
        finally:
            self._client.close()  # type: ignore[no-untyped-call]

    def _row(self, incoming: PayloadQueue) -> dict[str, Any] | None:
        """Return a reading; None when an answer could not be read, which is counted."""
        at = self._clock()
        row: dict[str, Any] = {"at": at / 1e9}
        faults: list[str] = []
        is_lost = False
        for register_read in self._questions:
            answer = self._answer(register_read)
            for value in register_read.values:
                try:
                    row[value.name] = value_of(value, register_read, answer)
                except Exception as error:  # noqa: BLE001  what the library raises for what a device answers
                    faults.append(f"{value.name}: {answer_fault(value, register_read, answer, error)}")
                    row[value.name] = None
                    is_lost = is_lost or value.name not in self._optional
        if faults:
            text = f"{self.name}: {'; '.join(faults[:3])}"
            if not is_lost:
                incoming.note(f"{text}; the row has None in its place")
                return row
            incoming.lose(ANSWER, text)
            return None
        return row

    def _answer(self, register_read: RegisterRead) -> Any:
        names = ", ".join(value.name for value in register_read.values[:3])
        try:
            if not self._client.connected and not self._client.connect():
                raise RetryLaterError(f"{self.name} does not answer")
            answer = self._read_registers(register_read)
        except (ModbusException, OSError) as error:
            raise RetryLaterError(f"{self.name} does not answer for {names} ({_reason(error)})") from None
        if isinstance(answer, ExceptionResponse):
            why = f"{self.name} refuses {names}: {_REASONS.get(answer.exception_code, f'exception {answer.exception_code}')}"
            if answer.exception_code in _WRONG and not self._has_answered:
                raise OperationFailed(why)
            raise RetryLaterError(why)
        return answer

    def _read_registers(self, register_read: RegisterRead) -> Any:
        client = self._client
        ask: Any = {
            "holding": client.read_holding_registers,
            "input": client.read_input_registers,
            "coil": client.read_coils,
            "discrete": client.read_discrete_inputs,
        }[register_read.kind]
        return ask(register_read.address, count=register_read.count, device_id=self._unit)


def answer_fault(value: DeviceValue, register_read: RegisterRead, answer: Any, error: Exception) -> str:
    """Return what is wrong with an answer that does not hold a value."""
    unit, came = ("register", answer.registers) if value.type else ("bit", answer.bits)
    if len(came) < register_read.count:
        asked = f"{register_read.count} {unit}{'' if register_read.count == 1 else 's'}"
        return f"the device answered with {len(came)} {unit}{'' if len(came) == 1 else 's'} in place of {asked}"
    return fault_text(error)


def value_of(value: DeviceValue, register_read: RegisterRead, answer: Any) -> Any:
    """Return a value out of an answer; None for a float that is no number. Raises IndexError: the answer is too short."""
    at = value.address - register_read.address
    if not value.type:
        return bool(answer.bits[at])
    registers = answer.registers[at : at + value.length]
    if len(registers) < value.length:
        raise IndexError(at)
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
    text = error.strerror if isinstance(error, OSError) else error.string if isinstance(error, ModbusException) else ""
    return (text or str(error) or type(error).__name__).lower()


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> PayloadQueueReader:
    """The reader of a `modbus:` connector."""
    asking = ModbusPoller(connector, row_type)
    return PayloadQueueReader(asking.name, open_decoder("json", row_type), asking)


def probe(connector: Connector, row_type: Any) -> str:
    """Does the device take calls? For `submit --dry-run`."""
    asking = ModbusPoller(connector, row_type)
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

"""Source `serial:/dev/ttyUSB0`: lines of a serial line, in any format of lines.

    serial:/dev/ttyUSB0?baud=115200&format=csv
    serial:/dev/ttyACM0                                 9600 baud, 8N1, a text a line

Lines that come faster than they are taken are dropped and counted (`overflow`): a serial line does not wait. An unplugged device
is opened again when it is back.
"""

import os
from typing import Any, Final

import serial

from agiledart_connectors.codecs.decoder_options import decoder_options
from agiledart_connectors.codecs.formats import UNLINED, open_decoder
from agiledart_connectors.codecs.malformed_examples import COLUMNS, TOO_LONG
from agiledart_connectors.options import ReadOptions
from agiledart_connectors.remote.payload_queue import PayloadQueue, PayloadQueueReader
from agiledart_connectors.remote.thread_errors import RetryLaterError
from agiledart_connectors.serial_line.line_mode import LineMode, line_mode
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.limits import MAX_LINE_BYTES

_READ_SECONDS: Final = 0.25
"""Longest time until the thread notices that it is to end."""


class SerialLineSplitter:
    """Bytes that come → whole lines; one that is too long is passed over. Sans I/O."""

    def __init__(self) -> None:
        self._rest = b""
        self._discards = False
        self.too_long = 0

    def lines(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their ends."""
        *whole, rest = (self._rest + data).split(b"\n")
        if self._discards and whole:
            whole, self._discards = whole[1:], False
        if self._discards or len(rest) > MAX_LINE_BYTES:
            self.too_long += not self._discards
            rest, self._discards = b"", True
        self._rest = rest
        return [line.removesuffix(b"\r") for line in whole]


class SerialListener:
    """The thread."""

    def __init__(self, mode: LineMode) -> None:
        self.mode = mode
        self._count = 0

    def __call__(self, incoming: PayloadQueue) -> None:
        """Read until the reader is closed. Raises `RetryLaterError`: the line is not there."""
        try:
            self._read(incoming)
        except (OSError, serial.SerialException) as error:
            raise RetryLaterError(f"{self.mode.port} cannot be read ({_reason(error)})") from None

    def _read(self, incoming: PayloadQueue) -> None:
        mode = self.mode
        cutter = SerialLineSplitter()
        with serial.Serial(mode.port, mode.baud, mode.bits, mode.parity, mode.stop_bits, timeout=_READ_SECONDS) as line:
            incoming.report_success()
            while not incoming.is_closed:
                data = line.read(max(1, line.in_waiting))
                for text in cutter.lines(data) if data else ():
                    self._count += 1
                    if text.strip():
                        incoming.offer(text, f"{mode.port}:{self._count}")
                if cutter.too_long:
                    cutter.too_long = 0
                    incoming.lose(COLUMNS, f"{mode.port}:{self._count + 1} {TOO_LONG}")


def _reason(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number).lower() if number else str(error)


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> PayloadQueueReader:
    """The reader of a `serial:` connector."""
    mode, form = line_mode(connector), connector.option("format", "text")
    if form in UNLINED:
        raise ConfigurationError(f"{connector.url()}: {form} does not come in lines")
    return PayloadQueueReader(mode.port, open_decoder(form, row_type, decoder_options(connector)), SerialListener(mode))


def probe(connector: Connector, row_type: Any) -> str:
    """Is it there? For `submit --dry-run`."""
    open_decoder(connector.option("format", "text"), row_type, decoder_options(connector))
    return line_mode(connector).checked()

"""Path and mode of a serial line: `/dev/ttyUSB0?baud=9600&mode=8N1`."""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from agiledart_connectors.options import number
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed

DEFAULT_BAUD: Final = 9_600
_MODE: Final = re.compile(r"([78])([NEO])([12])", re.ASCII)


class LineMode(NamedTuple):
    """A line; `parity` is N (none), E (even) or O (odd)."""

    port: str
    baud: int
    bits: int
    parity: str
    stop_bits: int

    def checked(self) -> str:
        """May it be opened? It is not: some devices begin anew when they are called. Raises `OperationFailed`."""
        if not Path(self.port).exists():
            raise OperationFailed(f"there is no {self.port} here")
        if not os.access(self.port, os.R_OK | os.W_OK):
            raise OperationFailed(f"{self.port} may not be read here: is its group (dialout?) the agent's?")
        return "is there"


def line_mode(connector: Connector) -> LineMode:
    """Return the mode that a connector gives. Raises `ConfigurationError`."""
    if not connector.path.startswith("/"):
        raise ConfigurationError(f"{connector.url()}: write {connector.kind}:/dev/DEVICE, for example /dev/ttyUSB0")
    match = _MODE.fullmatch(connector.option("mode", "8N1"))
    if match is None:
        raise ConfigurationError(
            f"{connector.url()}: mode is bits, parity and stop bits, such as 8N1 or 7E1, not {connector.option('mode')!r}"
        )
    baud = number(connector, "baud", DEFAULT_BAUD, 50, 4_000_000)
    return LineMode(connector.path, baud, int(match[1]), match[2], int(match[3]))

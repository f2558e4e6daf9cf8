"""A name for each row that a sink sends to where it may come twice, so that whoever receives it can tell.

    RUN/STEP/NUMBER-SUM      for example 5f0c2a9e1b7d3344/report/1042-9a3cf01e

NUMBER counts what the sink was given in this run, and goes back with the run to its last epoch, behind which the same rows come
again: then they have the same names. SUM is of the row's content (CRC-32C): after a power cut in which a source's log lost what it
had just let out, another row may have that number, and two rows never share a name. It is left out where rows tell when they were
read, for that is another time then.
"""

import secrets
from typing import TYPE_CHECKING, Any, Final

from crc32c import crc32c

from agiledart_dataflow.data.schema import read_time_index

if TYPE_CHECKING:
    from agiledart_connectors.sink_origin import SinkOrigin

NAME: Final = "row-id"
"""Name of the user property of MQTT 5."""

HEADER: Final = "AgileDart-Row-Ids"
"""Name of the HTTP header: the prefix of all names of a batch, then the rest of each, in row order: `RUN/STEP/ 1042-9a3cf01e …`."""

MAX_HEADER_NAME_BYTES: Final = 400
"""Rows of a batch whose names fit into a header that servers take (8 KiB)."""


class RowIds:
    """Names the rows of one sink.

    Args:
        run: number of the run; 0: it is no run that could be brought back, and has a name of its own.
        step: of the sink.
    """

    def __init__(self, run: int, step: str, row_type: Any) -> None:
        self.prefix = f"{run:016x}/{step}/" if run else f"{secrets.token_hex(8)}/{step}/"
        self._sums = read_time_index(row_type) is None
        self._number = 0

    def resume_at(self, number: int) -> None:
        """So many rows were given before the next."""
        self._number = number

    def skip(self) -> None:
        """A row was given that has no content: numbers are those of all rows given."""
        self._number += 1

    def next(self, content: bytes) -> str:
        """Return the next row's name without the prefix."""
        number = self._number
        self._number = number + 1
        return f"{number}-{crc32c(content):08x}" if self._sums else str(number)


def ids_of(origin: "SinkOrigin | None", row_type: Any) -> RowIds:
    """Return the names for the sink that is being opened. `origin` None: it runs in a single process."""
    return RowIds(0, "sink", row_type) if origin is None else RowIds(origin.run, origin.step, row_type)

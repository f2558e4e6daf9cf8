"""Process that converts rows and columns for an agent, which itself never imports pyarrow: `python -m … FILE-DESCRIPTOR`.

It reads requests from a socket and answers each. It ends when the agent closes the socket, or after `IDLE_SECONDS` without a
request, so that an agent without work has no such process. Columns are users' bytes: whatever they do here ends this process only.
"""

import os
import resource
import socket
import sys
from pathlib import Path
from typing import Final

from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log.column_form import ColumnForm
from agiledart_sink_log.columns_messages import (
    LENGTH_BYTES,
    REQUESTS,
    ColumnsAnswer,
    ColumnsRequest,
    RewriteSegments,
    Rewritten,
    RowsMade,
    length_of,
    message,
)
from agiledart_sink_log.layout import log_directory, read_description
from agiledart_sink_log.protocol import MAX_STORED_BYTES
from agiledart_sink_log.segment_rewriter import full_segments, remove_unfinished, rewrite

IDLE_SECONDS: Final = 30.0
MAX_MEMORY_BYTES: Final = 2 << 30
"""Bound of the address space that the process may add; a batch of four megabytes of rows takes a tenth."""

NICENESS: Final = 10


def answer_to(request: ColumnsRequest) -> ColumnsAnswer:
    """Carry out a request."""
    root = Path(request.root)
    if isinstance(request, RewriteSegments):
        return rewritten(root, request.limit, frozenset(request.left))
    try:
        description = read_description(log_directory(root, request.log))
        if description is None:
            return RowsMade(b"", f"there is no log {request.log}")
        body = ColumnForm(description.fields).rows_of(request.columns, request.rows)
    except (ValueError, IndexError, OperationFailed) as error:
        return RowsMade(b"", str(error))
    if len(body) > 4 * MAX_STORED_BYTES:
        return RowsMade(b"", f"its rows have {len(body):,} bytes")
    return RowsMade(body)


def rewritten(root: Path, limit: int, left: frozenset[tuple[str, int, int]]) -> Rewritten:
    """Rewrite at most `limit` segments that are not in `left`."""
    done, stay = 0, []
    for full in full_segments(root):
        key = (full.log.name, full.partition, full.base)
        if key in left:
            continue
        try:
            description = read_description(full.log)
            remove_unfinished(full)
            if description is not None and rewrite(full, description):
                done += 1
            else:
                stay.append(key)
        except OSError as error:
            return Rewritten(done, tuple(stay), f"{full.log.name}: {error.strerror or error}")
        except OperationFailed:  # the description was damaged since
            stay.append(key)
        if done + len(stay) >= limit:
            break
    return Rewritten(done, tuple(stay))


def serve(connection: socket.socket) -> None:
    """Answer requests until the agent closes, or none came for a while."""
    connection.settimeout(IDLE_SECONDS)
    while True:
        try:
            head = _exactly(connection, LENGTH_BYTES)
            raw = _exactly(connection, length_of(head))
        except (TimeoutError, EOFError, OSError):
            return
        connection.settimeout(None)
        connection.sendall(message(answer_to(REQUESTS.decode(raw))))
        connection.settimeout(IDLE_SECONDS)


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        data = connection.recv(min(size - len(parts), 1 << 20))
        if not data:
            raise EOFError
        parts += data
    return bytes(parts)


def main() -> int:
    """Serve the agent that started this process."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        serve(connection)
    return 0


if __name__ == "__main__":
    sys.exit(main())

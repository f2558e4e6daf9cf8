"""Source `tcp:HOST:PORT`: lines from a TCP connection, in the format of `csv:`. It reads when bytes are there, and never waits.

    tcp:pi2:7000                connects; ends when the peer closes
    tcp::7000?listen=1          listens on 127.0.0.1 (write a host to listen elsewhere); ends when all clients have closed
    …?reconnect=1               does not end: connects again, or waits for the next one

The connection has no encryption and no authentication: it is for programs on one machine or in a private network. A connection
is tried again after 0.1 s, then ever later up to 5 s; without `reconnect` the first one must succeed within 30 s.
A broken connection's incomplete last line is dropped and counted as malformed (`cut`). Memory is bounded: the source receives
nothing while lines wait. Where steps take columns, and one read brings a hundred lines or more, they become columns straight
from bytes.
"""

import errno
import os
import selectors
import socket
import time
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from agiledart_connectors.codecs.column_block import ColumnBlock
from agiledart_connectors.codecs.decoder_options import PLAIN_OPTIONS, decoder_options
from agiledart_connectors.codecs.encodings import Transcoder
from agiledart_connectors.codecs.formats import UNLINED, open_decoder
from agiledart_connectors.codecs.line_block import LineBlock
from agiledart_connectors.codecs.malformed_examples import COLUMNS, CUT, TOO_LONG, MalformedExamples
from agiledart_connectors.codecs.quoted_records import quoted_records
from agiledart_connectors.codecs.record_block import RecordBlock
from agiledart_connectors.codecs.row_parser import RowParser
from agiledart_connectors.options import ReadOptions, flag
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.limits import MAX_LINE_BYTES

if TYPE_CHECKING:
    from agiledart_connectors.codecs.csv_columns_reader import ColumnParser

RECEIVE_BYTES: Final = 256 << 10
"""Bytes taken from one connection at one time where lines become rows: some thousand lines that stay in the processor's cache."""

COLUMN_BYTES: Final = 1 << 20
"""The same where lines become columns, as many as are read of a file. The fixed cost of a batch of columns, in this process and
those after it, equals that of some hundred lines."""

MAX_CONNECTIONS: Final = 64
"""Connections that a listening source has at one time; more wait in the system's queue."""

MIN_BACKOFF_S: Final = 0.1
MAX_BACKOFF_S: Final = 5.0
CONNECT_TIMEOUT_S: Final = 30.0


def _enlarge_receive_buffer(sock: socket.socket, at_once: int) -> None:
    """Let the system keep as much as is taken at one time: it begins with a quarter of that, and where it does not let it grow a
    source as fast as it can be is read in pieces so small that they cost columns three times as much.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * at_once)


class _Peer:
    """One connection: the socket and the beginning of a line that is not yet whole."""

    __slots__ = ("discards", "rest", "socket", "transcoder")

    def __init__(self, sock: socket.socket, encoding: str) -> None:
        self.socket = sock
        self.transcoder = Transcoder(encoding) if encoding else None
        self.rest = b""
        self.discards = False


class LineSocketReader:
    """Reads typed rows from connections; a line that is none is counted by reason and never stops the run.

    Args:
        connector: where they come from.
        row_type: of the rows.
        clock: monotonic seconds.
        columns: makes columns of many lines; without it there are only rows.

    Raises:
        ConfigurationError: the path is no HOST:PORT.
        OperationFailed: the address is not known or cannot be listened on.
    """

    stamps = True

    def __init__(
        self,
        connector: Connector,
        row_type: Any,
        clock: Any = time.monotonic,
        columns: "ColumnParser | None" = None,
    ) -> None:
        self._name = connector.url()
        self._listens = connector.option("listen", "0") == "1"
        self._returns = connector.option("reconnect", "0") == "1"
        self._examples = MalformedExamples()
        self.on_malformed = self._examples.on_malformed
        name, form = f"tcp:{connector.path}", connector.option("format", "csv")
        given = decoder_options(connector)
        options = replace(given, encoding=PLAIN_OPTIONS.encoding)
        self._encoding = "" if given.is_utf8 else given.encoding
        self._dialect = options.dialect
        self._quote = self._dialect.quote_byte if form == "csv" else b""
        self._lines: LineBlock | RecordBlock
        self._block: LineBlock | RecordBlock | ColumnBlock
        if form == "csv":
            lines = self._block = self._lines = LineBlock(
                RowParser(row_type, None, options.dialect), self._examples, name
            )
            if columns is not None:
                self._block = ColumnBlock(lines, columns)
        else:
            self._block = self._lines = RecordBlock(open_decoder(form, row_type, options), self._examples, name)
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._descriptor = self._selector.fileno()
        self._peers: dict[int, _Peer] = {}
        self._malformed: dict[str, int] = {}
        self._came = False
        self._drained = False  # whether the last receiving took all that had come
        self._incoming = memoryview(bytearray(RECEIVE_BYTES if columns is None else COLUMN_BYTES))
        self._pause = MIN_BACKOFF_S
        self._next_try = 0.0
        self._connecting: socket.socket | None = None
        self._family, self._address = self._resolved(connector.path)
        self._door = self._listen() if self._listens else None
        self._deadline = self._clock() + CONNECT_TIMEOUT_S

    # ---- the reader

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        if self._block.is_empty:
            self._receive()
        malformed, self._malformed = self._malformed, {}
        lost = sum(malformed.values())
        rows, lines = self._block.take(max_rows, wall_ns, malformed)
        exhausted = not lines and self._came and not self._returns and not self._peers
        drained = self._drained and self._block.is_empty
        return Reading(rows, lines + lost, malformed, exhausted, drained, self._examples.take())

    def fileno(self) -> int | None:
        """Return a descriptor that becomes readable when a line or a connection comes; None while there is none to wait for."""
        waits = bool(self._peers) or self._door is not None
        return self._descriptor if waits else None

    def close(self) -> None:
        for peer in list(self._peers.values()):
            peer.socket.close()
        self._peers.clear()
        for sock in (self._door, self._connecting):
            if sock is not None:
                sock.close()
        self._selector.close()

    # ---- connections

    def _resolved(self, path: str) -> tuple[socket.AddressFamily, Any]:
        host, colon, port = path.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ConfigurationError(f"{self._name}: write tcp:HOST:PORT, for example tcp:pi2:7000")
        host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
        try:
            family, _, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        except OSError as error:
            raise OperationFailed(f"{self._name}: no such host: {error.strerror or error}") from None
        return family, address

    def _listen(self) -> socket.socket:
        door = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _enlarge_receive_buffer(door, len(self._incoming))  # accepted connections inherit it
            door.bind(self._address)
            door.listen(MAX_CONNECTIONS)
        except OSError as error:
            door.close()
            raise OperationFailed(f"{self._name}: cannot listen: {error.strerror or error}") from None
        door.setblocking(False)
        self._selector.register(door, selectors.EVENT_READ)
        return door

    def _connect(self) -> None:
        """Go on connecting, without waiting."""
        now = self._clock()
        if self._connecting is None:
            if now < self._next_try:
                return
            self._connecting = socket.socket(self._family, socket.SOCK_STREAM)
            self._connecting.setblocking(False)
            _enlarge_receive_buffer(self._connecting, len(self._incoming))
        code = self._connecting.connect_ex(self._address)
        if code in (errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK):
            return
        sock, self._connecting = self._connecting, None
        if code in (0, errno.EISCONN):
            self._pause = MIN_BACKOFF_S
            self._take_in(sock)
            return
        sock.close()
        if not self._returns and now >= self._deadline:
            raise OperationFailed(f"{self._name}: cannot connect: {os.strerror(code).lower()}")
        self._next_try = now + self._pause
        self._pause = min(2 * self._pause, MAX_BACKOFF_S)

    def _take_in(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._came = True
        self._peers[sock.fileno()] = _Peer(sock, self._encoding)
        self._selector.register(sock, selectors.EVENT_READ)

    def _receive(self) -> None:
        """Take what has come: lines of all connections, and new connections."""
        if self._door is None and not self._peers and (self._returns or not self._came):
            self._connect()
        parts: list[bytes] = []
        self._drained = True
        if self._door is None and len(self._peers) == 1:
            self._receive_from(next(iter(self._peers.values())), parts)
        else:
            for key, _ in self._selector.select(0):
                if self._door is not None and key.fd == self._door.fileno():
                    self._accept()
                else:
                    self._receive_from(self._peers[key.fd], parts)
        if parts:
            data = b"\n".join(parts)
            if self._quote and self._quote in data:
                cut = quoted_records(data + b"\n", self._dialect, is_end=True)
                self._lines.fill_records(cut.records, cut.lines)
                return
            if b"\r" in data:
                data = data.replace(b"\r\n", b"\n").removesuffix(b"\r")
            self._block.fill(data)

    def _accept(self) -> None:
        assert self._door is not None
        while len(self._peers) < MAX_CONNECTIONS:
            try:
                sock, _ = self._door.accept()
            except OSError:  # no further client, or one that has gone again
                return
            self._take_in(sock)

    def _receive_from(self, peer: _Peer, parts: list[bytes]) -> None:
        try:
            count = peer.socket.recv_into(self._incoming)
        except BlockingIOError:
            return
        except OSError:
            self._drop_peer(peer)
            if peer.rest:
                self._count_malformed(CUT, "the connection broke within a line")
            return
        data = bytes(self._incoming[:count])
        self._drained = self._drained and count < len(self._incoming)
        if not data:
            self._drop_peer(peer)
            if peer.rest:
                parts.append(peer.rest.removesuffix(b"\n"))
            return
        if peer.transcoder is not None:
            data = peer.transcoder.convert(data)
        end = data.rfind(b"\n")
        if end < 0:
            if not peer.discards:
                peer.rest += data
                if len(peer.rest) > MAX_LINE_BYTES:
                    peer.rest, peer.discards = b"", True
                    self._count_malformed(COLUMNS, TOO_LONG)
            return
        begin = 0
        if peer.discards:
            begin, peer.discards = data.find(b"\n") + 1, False
        whole, peer.rest = peer.rest + data[begin : end + 1] if begin <= end else b"", data[end + 1 :]
        if self._quote and self._quote in whole:  # a record whose end has not come waits for it
            size = quoted_records(whole, self._dialect, is_end=False).size
            whole, peer.rest = whole[:size], whole[size:] + peer.rest
        if whole:
            parts.append(whole[:-1])

    def _drop_peer(self, peer: _Peer) -> None:
        self._selector.unregister(peer.socket)
        del self._peers[peer.socket.fileno()]
        peer.socket.close()
        self._next_try = self._clock() + MIN_BACKOFF_S

    def _count_malformed(self, reason: str, text: str) -> None:
        self._examples.add(reason, f"{self._lines.name}:{self._lines.number + 1}", text)
        self._lines.number += 1
        self._malformed[reason] = self._malformed.get(reason, 0) + 1


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> LineSocketReader:
    """The reader of a `tcp:` connector."""
    for name in ("listen", "reconnect"):
        flag(connector, name)
    parser = None
    if read_options.columns and connector.option("format", "csv") == "csv" and find_spec("pyarrow") is not None:
        from agiledart_connectors.codecs.csv_columns_reader import ColumnParser, supports_columns

        dialect = decoder_options(connector).dialect
        parser = (
            ColumnParser(row_type, read_options.wanted, read_options.may_begin, None, dialect)
            if supports_columns(row_type, dialect)
            else None
        )
    if connector.option("format") in UNLINED:
        raise ConfigurationError(f"{connector.url()}: {connector.option('format')} does not come in lines")
    return LineSocketReader(connector, row_type, columns=parser)

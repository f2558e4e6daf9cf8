"""Control API of an agent: a Unix socket in the state directory, or a TLS link with the service `control`.

A client of the socket is an admin when it can open the file (mode 0600), has the agent's user id or is root, and begins
with the content of `control.cookie` beside it. Users' code runs under the same user id and can open the socket, but it
cannot read the cookie. Over TLS the grant's role decides. Both carry the same CONTROL frames
(`agiledart_node.wire.commands`).
"""

import asyncio
import contextlib
import os
import secrets
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from agiledart_agent.state_files.durable_file import write_durably
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.fair_shares import fits_share
from agiledart_kernel.frames import FrameKind, FrameReader, frame
from agiledart_kernel.limits import MAX_FRAME_BYTES
from agiledart_kernel.permissions import Principal, refusal_before_lookup
from agiledart_node.records.permission_checks import why_not
from agiledart_node.wire.commands import VERB_BY_COMMAND, Submit, named_application
from agiledart_node.wire.control_messages import (
    ControlAnswer,
    ControlMessage,
    ControlProgress,
    ControlRefusal,
    ControlRequest,
)

CONTROL: Codec[ControlMessage] = Codec(ControlMessage)

MAX_CONTROL_CLIENTS = 64
"""Command lines that may wait for answers at one time."""

MAX_OPEN_REQUESTS = 32
"""Unanswered requests of one client."""

MAX_OPEN_BYTES = 64 << 20
"""Bytes of all unanswered requests together: a submission brings its bundle. Each key has its share of them."""

SMALL_BYTES = 4 << 10
"""A request up to this size needs no share."""

CLOSE_SECONDS = 1.0
"""Time for connections to end when the agent does."""

MAX_SOCKET_PATH_BYTES = 107
"""Linux's `sun_path` without its final zero."""

COOKIE = "control.cookie"
COOKIE_BYTES = 32
"""Size of the file beside the socket that a client must present first."""

PROOF_SECONDS = 5.0
"""Time for a client to present the cookie."""

MAX_UNPROVEN = 16
"""Clients that have not presented it yet; for one more, the oldest is hung up. A command line presents it at once."""

_ENVELOPE_BYTES = 64
"""Bytes of an answer around its document."""

_PEER_CREDENTIALS = struct.Struct("3i")


class ControlPeer:
    """One connected client. `write` takes a whole frame; `origin` is the client's address or process."""

    def __init__(
        self,
        principal: Principal,
        requester: str,
        write: Callable[[int, bytes], None],
        *,
        origin: str = "",
        is_local: bool = False,
    ) -> None:
        self.principal, self.requester, self._write, self.origin, self.is_local = (
            principal,
            requester,
            write,
            origin,
            is_local,
        )
        self.open: set[int] = set()
        self.gone = False

    def send(self, message: ControlMessage) -> None:
        """Send an answer, if the client still listens."""
        if not self.gone:
            self._write(FrameKind.CONTROL, CONTROL.encode(message))


class ControlApi:
    """Numbers the requests of all clients, checks roles, and returns answers to the clients.

    Args:
        ask: called with (request number, request, client) for each request that may be permitted. It looks up which
            application the request concerns, and verifies its signature.
        local: the requester at the Unix socket.
        count_refused: called with a reason for each request or connection that is refused.
        refused: called with (request, client, reason, sentence) for each request of a client without any right to ask.
    """

    def __init__(
        self,
        ask: Callable[[int, ControlRequest, ControlPeer], None],
        count_refused: Callable[[str, str], None],
        local: Principal,
        refused: Callable[[ControlRequest, ControlPeer, str, str], None],
    ) -> None:
        self._ask, self._count_refused, self._local, self._refused = ask, count_refused, local, refused
        self._asked: dict[int, tuple[ControlPeer, int]] = {}
        self._held: dict[
            int, tuple[bytes, int]
        ] = {}  # key and bytes of each unanswered request, also when its client has gone
        self._number = 0
        self._clients = 0
        self._unproven: dict[asyncio.StreamWriter, asyncio.WriteTransport] = {}
        self._connections: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}
        self._server: asyncio.AbstractServer | None = None
        self._path: Path | None = None
        self._cookie = b""

    # ---- requests, over the socket or TLS

    def receive(self, client: ControlPeer, body: bytes) -> None:
        """Take one CONTROL frame of a client. Raises RemoteProtocolError when it holds no request."""
        message = CONTROL.decode(body)
        if not isinstance(message, ControlRequest):
            raise RemoteProtocolError("form", "only requests are taken here")
        if not self._may_ask(client, message):
            return
        if message.request in client.open or len(client.open) >= MAX_OPEN_REQUESTS:
            client.send(ControlRefusal(message.request, "Too many open requests on this connection."))
            return
        if not self._fits(client.principal.key, len(body)):
            self._count_refused("quota", client.requester)
            text = "Earlier requests hold as many bytes here as this agent takes. Wait for their answers, then repeat this one."
            client.send(ControlRefusal(message.request, text, reason="quota"))
            return
        self._number += 1
        self._held[self._number] = client.principal.key, len(body)
        client.open.add(message.request)
        self._asked[self._number] = (client, message.request)
        self._ask(self._number, message, client)

    def _fits(self, key: bytes, size: int) -> bool:
        """Return whether a request of so many bytes may wait here for its answer."""
        if size <= SMALL_BYTES:
            return True
        of_key = sum(held for holder, held in self._held.values() if holder == key)
        return fits_share(of_key, size, sum(held for _, held in self._held.values()), MAX_OPEN_BYTES)

    def _may_ask(self, client: ControlPeer, message: ControlRequest) -> bool:
        verb = VERB_BY_COMMAND.get(type(message.command), "")
        principal, name = client.principal, named_application(message.command)
        # the name stands in the specification, which the node reads
        if isinstance(message.command, Submit) and not name:
            principal = Principal(principal.role)
        reason = refusal_before_lookup(principal, verb, name)
        if reason:
            self._count_refused(reason, client.requester)
            text = why_not(client.principal, verb, reason, name)
            self._refused(message, client, reason, text)
            client.send(ControlRefusal(message.request, text, reason=reason))
        return not reason

    def progress(self, request: int, text: str) -> None:
        """Send the progress of a request to its client."""
        if pending := self._asked.get(request):
            pending[0].send(ControlProgress(pending[1], text))

    def answer(self, request: int, body: Any) -> None:
        """End a request with its result."""
        self._held.pop(request, None)
        if pending := self._asked.pop(request, None):
            pending[0].open.discard(pending[1])
            document = msgspec.json.encode(body, enc_hook=str)
            if len(document) > MAX_FRAME_BYTES - _ENVELOPE_BYTES:
                pending[0].send(
                    ControlRefusal(pending[1], f"The answer has {len(document):,} bytes, more than fit into a frame.")
                )
            else:
                pending[0].send(ControlAnswer(pending[1], document))

    def refuse(self, request: int, text: str, exit_code: int = 1, reason: str = "") -> None:
        """End a request without a result. `reason`: why the client may not do it."""
        self._held.pop(request, None)
        if pending := self._asked.pop(request, None):
            pending[0].open.discard(pending[1])
            pending[0].send(ControlRefusal(pending[1], text, exit_code, reason))

    def forget(self, client: ControlPeer) -> None:
        """Forget a client that has gone; its answers have no reader."""
        client.gone = True
        for number in [n for n, (principal, _) in self._asked.items() if principal is client]:
            del self._asked[number]

    # ---- the Unix socket

    async def listen(self, path: Path) -> None:
        """Listen at a socket file. An old file of a dead agent is replaced (this agent holds the state lock).

        Raises:
            OperationFailed: the path is longer than the system allows for a socket.
        """
        if (size := len(os.fsencode(path))) > MAX_SOCKET_PATH_BYTES:
            raise OperationFailed(
                f"{path} has {size} bytes, and a socket's path at most {MAX_SOCKET_PATH_BYTES}: "
                f"choose a shorter --state-dir."
            )
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._cookie = secrets.token_bytes(COOKIE_BYTES)
        write_durably(path.with_name(COOKIE), self._cookie)
        mask = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, path)
        finally:
            os.umask(mask)
        self._path = path

    async def close(self) -> None:
        """Refuse open requests, stop listening, end all connections and remove the socket file."""
        for request in list(self._asked):
            self.refuse(request, "This agent ends now. What it has begun goes on; ask another one: --agent.")
        if self._server is not None:
            self._server.close()
        for writer in self._connections.values():
            writer.close()  # a task that the loop must cancel instead is reported as an internal error
        if self._connections:
            await asyncio.wait(list(self._connections), timeout=CLOSE_SECONDS)
        if self._path is not None:
            for path in (self._path, self._path.with_name(COOKIE)):
                path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = self._admit(writer)
        if client is None:
            writer.close()
            return
        frames = FrameReader(MAX_FRAME_BYTES)
        task = asyncio.current_task()
        assert task is not None  # asyncio's server runs each connection as a task
        self._connections[task] = writer
        try:
            await self._take_proof(reader, writer)
        except (RemoteProtocolError, OSError) as error:
            reason = error.reason if isinstance(error, RemoteProtocolError) else "cookie"
            self._count_refused(reason, client.requester)
            self._connections.pop(task, None)
            writer.close()
            return
        self._clients += 1
        try:
            while data := await reader.read(1 << 16):
                frames.feed(data)
                while (item := frames.next()) is not None:
                    if item[0] != FrameKind.CONTROL:
                        raise RemoteProtocolError("kind", "only CONTROL frames are taken here")
                    self.receive(client, item[1])
                await writer.drain()
        except RemoteProtocolError as error:
            self._count_refused(error.reason, client.requester)
        except OSError:
            pass
        finally:
            self._clients -= 1
            self._connections.pop(task, None)
            self.forget(client)
            writer.close()

    async def _take_proof(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the cookie, and not a byte more. Raises RemoteProtocolError, or OSError: the client has gone."""
        wanted = frame(FrameKind.HELLO, self._cookie)
        while len(self._unproven) >= MAX_UNPROVEN:
            self._unproven.pop(next(iter(self._unproven))).abort()
        self._unproven[writer] = writer.transport
        try:
            async with asyncio.timeout(PROOF_SECONDS):
                head = len(wanted) - COOKIE_BYTES  # no secret: another frame is refused at once
                proof = await reader.readexactly(head)
                if proof == wanted[:head]:
                    proof += await reader.readexactly(COOKIE_BYTES)
        except asyncio.IncompleteReadError as error:
            proof = error.partial
        finally:
            self._unproven.pop(writer, None)
        if not secrets.compare_digest(proof, wanted):
            raise RemoteProtocolError("cookie", "the first frame must hold the content of control.cookie")
        if self._clients >= MAX_CONTROL_CLIENTS:
            raise RemoteProtocolError("too many clients", "all places are taken")

    def _admit(self, writer: asyncio.StreamWriter) -> ControlPeer | None:
        """Return the client of a connection.

        The file's mode keeps other users out already; the kernel's credentials are checked as well.
        """
        sock = writer.get_extra_info("socket")
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        pid, uid, _ = _PEER_CREDENTIALS.unpack(raw)
        if uid not in (os.getuid(), 0):
            self._count_refused("another user", f"uid {uid}")
            return None

        def write(kind: int, body: bytes) -> None:
            if not writer.is_closing():
                writer.write(frame(kind, body))

        return ControlPeer(self._local, f"uid {uid}", write, origin=f"process {pid} here", is_local=True)

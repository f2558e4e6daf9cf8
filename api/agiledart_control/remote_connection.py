"""The control API of an agent on another machine: a TLS link with the service `control`.

An identity is a token, or the key that the first use of a token stored. The key is derived from the token's secret, so that a
user can stop an application from any machine with the same token.
"""

import asyncio
import contextlib
import secrets
import time

from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_agent.identity.user_identity import identity_of
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.frames import FrameKind, Hello
from agiledart_kernel.signed_commands import sign_command
from agiledart_node.records.command_verifier import command_terms
from agiledart_node.wire.commands import Command
from agiledart_transport.certificates import make_credentials
from agiledart_transport.connecting import connect
from agiledart_transport.link import Link, RefusedByPeer
from agiledart_transport.local_peer_verifier import LocalPeerVerifier
from agiledart_transport.tls_contexts import client_context

CLOSE_SECONDS = 1.0


class RemoteConnection:
    """A `Connection` to HOST:PORT. The event loop runs only during a call.

    Raises `OperationFailed` when the agent refuses the token, OSError when no agent listens there.
    """

    def __init__(self, address: str, identity: str, timeout: float) -> None:
        user = identity_of(identity)
        key = ed25519.Ed25519PrivateKey.from_private_bytes(user.seed)
        self._key, self._chain, self._network = key, user.chain, user.network
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._why = "it closed the connection"
        self._loop = asyncio.new_event_loop()
        try:
            self._link: Link = self._loop.run_until_complete(
                connect(
                    address,
                    service="control",
                    context=client_context(make_credentials(key, user.network, int(time.time()))),
                    hello=Hello(service="control", chain=user.chain, name="command line", token=user.token),
                    verifier=LocalPeerVerifier(user.network, time.time),
                    on_frame=self._take,
                    on_closed=self._closed,
                    timeout=timeout,
                )
            )
        except RefusedByPeer as error:
            self._loop.close()
            if error.reason == "unregistered":
                text = (
                    f"{address} could not register the use of this token: {error.detail}. Try again in a few seconds."
                )
                raise OperationFailed(text) from None
            raise OperationFailed(
                f"{address} refused the token: {error}. Create a new one where the network was founded:  agiledart token create"
            ) from None
        except RemoteProtocolError as error:
            self._loop.close()
            raise OperationFailed(f"{address} is not an agent of this network ({error}).") from None
        except BaseException:
            self._loop.close()
            raise

    def sign(self, command: Command) -> bytes:
        """Return the signed command; empty for a command that only reads."""
        terms = command_terms(command)
        if terms is None:
            return b""
        wall_ms = time.time_ns() // 1_000_000
        return sign_command(self._key.sign, self._chain, self._network, terms, wall_ms, secrets.token_bytes)

    def send(self, body: bytes) -> None:
        """Send one frame."""
        self._link.send(FrameKind.CONTROL, body)
        self._loop.run_until_complete(self._link.drain())

    def receive(self, timeout: float) -> bytes:
        """Return the next CONTROL frame."""
        body = self._loop.run_until_complete(asyncio.wait_for(self._frames.get(), timeout))
        if body is None:
            raise ConnectionResetError(self._why)
        return body

    def interrupt(self) -> None:
        """End a `receive` of another thread."""
        with contextlib.suppress(RuntimeError):  # closed meanwhile
            self._loop.call_soon_threadsafe(self._frames.put_nowait, None)

    def close(self) -> None:
        """Close the connection with TLS's closing message."""
        if self._loop.is_closed():
            return
        if not self._link.closed:
            self._link.close("done")
            with contextlib.suppress(TimeoutError):
                self._loop.run_until_complete(asyncio.wait_for(self._until_closed(), CLOSE_SECONDS))
        self._loop.close()

    async def _until_closed(self) -> None:
        while await self._frames.get() is not None:
            pass

    def _take(self, link: Link, kind: int, body: bytes) -> None:
        if kind == FrameKind.CONTROL:
            self._frames.put_nowait(body)

    def _closed(self, link: Link, reason: str) -> None:
        self._why = reason
        self._frames.put_nowait(None)

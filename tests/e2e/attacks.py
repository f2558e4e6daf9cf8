"""What strangers try at an agent's port. Each attack says for which reasons it may be refused."""

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_agent.identity.identity import Identity
from agiledart_kernel.frames import FrameKind, Hello, encode_hello, frame
from agiledart_kernel.grants import sign_link
from agiledart_transport.certificates import make_credentials, public_bytes
from agiledart_transport.contexts import client_context

Key = ed25519.Ed25519PrivateKey


@dataclass
class Target:
    """An agent under attack, and what an insider could have got hold of."""

    address: str
    network: bytes
    authority: Key

    @classmethod
    def of(cls, address: str, founder: Path) -> "Target":
        """From the state directory of the agent that founded the network."""
        identity = Identity.read(founder)
        assert identity.authority is not None
        return cls(address, identity.network, identity.authority)

    def chain(
        self, key: Key, role: str = "agent", *, since: int = -60, until: int = 3600, scope: str = ""
    ) -> tuple[bytes, ...]:
        """authority → token → key."""
        now = int(time.time())
        token = Key.generate()
        invited = sign_link(
            self.network, self.authority.sign, (), key=public_bytes(token), use="invite", role=role,  # type: ignore[arg-type]
            not_before=now + since, not_after=now + until, scope=scope,
        )  # fmt: skip
        return sign_link(
            self.network, token.sign, invited, key=public_bytes(key), use="act", role=role,  # type: ignore[arg-type]
            not_before=now + since, not_after=now + until, scope=scope,
        )  # fmt: skip


Attack = Callable[[Target], Coroutine[Any, Any, None]]


async def _raw(target: Target, data: bytes) -> None:
    host, _, port = target.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(data)
        await writer.drain()
        await asyncio.wait_for(reader.read(1 << 16), 8)
    except (OSError, TimeoutError):
        pass
    finally:
        writer.close()


async def garbage(target: Target) -> None:
    """Bytes that are no TLS."""
    await _raw(target, b"\x00\xff" * 500)


async def http(target: Target) -> None:
    """A browser that got lost."""
    await _raw(target, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


async def _tls(target: Target, key: Key, network: bytes, data: bytes, *, trust: bytes | None = None) -> None:
    """Speak after TLS with a leaf for `key`."""
    host, _, port = target.address.rpartition(":")
    context = client_context(make_credentials(key, network, int(time.time())))
    if trust is not None:
        context.verify_mode = ssl.CERT_NONE
    try:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="")
    except (OSError, ssl.SSLError):
        return
    try:
        writer.write(data)
        await writer.drain()
        await asyncio.wait_for(reader.read(1 << 16), 8)
    except (OSError, TimeoutError, ssl.SSLError):
        pass
    finally:
        writer.transport.abort()


def _hello(chain: tuple[bytes, ...], service: str = "overlay") -> bytes:
    return frame(FrameKind.HELLO, encode_hello(Hello(service=service, chain=chain, incarnation=1, name="thief")))


async def other_network(target: Target) -> None:
    """A node of another network: its leaf is signed by another CA."""
    key, authority = Key.generate(), Key.generate()
    other = Target(target.address, public_bytes(authority), authority)
    await _tls(target, key, other.network, _hello(other.chain(key)), trust=b"any")


async def foreign_chain(target: Target) -> None:
    """The right CA (it is public), but grants of another network's authority."""
    key, authority = Key.generate(), Key.generate()
    other = Target(target.address, public_bytes(authority), authority)
    await _tls(target, key, target.network, _hello(other.chain(key)))


async def no_token(target: Target) -> None:
    """The right form, no grant at all."""
    await _tls(target, Key.generate(), target.network, _hello(()))


async def expired(target: Target) -> None:
    """A grant that ended an hour ago."""
    key = Key.generate()
    await _tls(target, key, target.network, _hello(target.chain(key, since=-7200, until=-3600)))


async def forged_grant(target: Target) -> None:
    """A bit of the signature is wrong."""
    key = Key.generate()
    first, last = target.chain(key)
    await _tls(target, key, target.network, _hello((first, bytes((last[0] ^ 1,)) + last[1:])))


async def stolen_chain(target: Target) -> None:
    """Somebody else's chain with one's own key: a forged peer id."""
    victim, thief = Key.generate(), Key.generate()
    await _tls(target, thief, target.network, _hello(target.chain(victim)))


async def reader_at_overlay(target: Target) -> None:
    """A reader's grant at the port of agents."""
    key = Key.generate()
    await _tls(target, key, target.network, _hello(target.chain(key, "reader")))


async def submitter_at_overlay(target: Target) -> None:
    """A submitter's grant where only agents may be."""
    key = Key.generate()
    await _tls(target, key, target.network, _hello(target.chain(key, "submitter")))


async def unknown_service(target: Target) -> None:
    """An agent that asks for a service that is not there."""
    key = Key.generate()
    await _tls(target, key, target.network, _hello(target.chain(key), "shell"))


async def oversized(target: Target) -> None:
    """A frame that says it has 16 MiB before anybody knows who is there."""
    await _tls(target, Key.generate(), target.network, (16 << 20).to_bytes(4, "big") + b"\x00" + bytes(9000))


async def garbage_hello(target: Target) -> None:
    """TLS, then a HELLO that is none."""
    await _tls(target, Key.generate(), target.network, frame(FrameKind.HELLO, b"\xc1" * 50))


async def truncated(target: Target) -> None:
    """Half a HELLO, then gone."""
    host, _, port = target.address.rpartition(":")
    context = client_context(make_credentials(Key.generate(), target.network, int(time.time())))
    try:
        _, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="")
        writer.write(_hello(())[:20])
        await writer.drain()
        writer.close()
        await writer.wait_closed()
    except (OSError, ssl.SSLError):
        pass


async def slow(target: Target) -> None:
    """A byte now and then: cut after the time for HELLO."""
    host, _, port = target.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for _ in range(40):
            writer.write(b"\x16")
            await writer.drain()
            if await asyncio.wait_for(_eof(reader), 0.25):
                return
    except (OSError, TimeoutError):
        pass
    finally:
        writer.close()


async def _eof(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(1), 0.2) == b""
    except TimeoutError:
        return False


REFUSED_FOR: dict[Attack, tuple[str, ...]] = {
    garbage: ("tls",),
    http: ("tls",),
    other_network: ("tls", "lost"),
    foreign_chain: ("another network",),
    no_token: ("length",),
    expired: ("expired",),
    forged_grant: ("signature",),
    stolen_chain: ("another key",),
    reader_at_overlay: ("role",),
    submitter_at_overlay: ("role",),
    unknown_service: ("service",),
    oversized: ("oversize",),
    garbage_hello: ("form",),
    truncated: ("truncated", "lost"),
    slow: ("timeout", "tls"),
}

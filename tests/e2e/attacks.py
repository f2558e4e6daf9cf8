"""Attacks of unknown callers on an agent's port. Each attack says for which reasons it may be refused."""

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_agent.control.control_api import CONTROL
from agiledart_agent.identity.identity import Identity
from agiledart_kernel.codec import encode
from agiledart_kernel.frames import FrameKind, Hello, encode_hello, frame
from agiledart_kernel.grants import sign_link
from agiledart_kernel.signed_commands import sign_command
from agiledart_node.records.command_verifier import command_terms
from agiledart_node.wire.commands import Command, CreateToken, Nodes, ShutDownAgent, Stop, Submit, Tap
from agiledart_node.wire.control_messages import ControlRequest
from agiledart_transport.certificates import make_credentials, public_bytes
from agiledart_transport.tls_contexts import client_context
from tests.simulation.mesh import pipeline

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
        self,
        key: Key,
        role: str = "agent",
        *,
        since: int = -60,
        until: int = 3600,
        scope: str = "",
        by_token: bool = False,
    ) -> tuple[bytes, ...]:
        """authority → key, without a use count; or authority → token → key."""
        now = int(time.time())
        sign = self.authority.sign
        chain: tuple[bytes, ...] = ()
        if by_token:
            token = Key.generate()
            chain = sign_link(
                self.network, sign, (), key=public_bytes(token), use="invite", role=role,  # type: ignore[arg-type]
                not_before=now + since, not_after=now + until, scope=scope,
            )  # fmt: skip
            sign = token.sign
        return sign_link(
            self.network, sign, chain, key=public_bytes(key), use="act", role=role,  # type: ignore[arg-type]
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
    first, last = target.chain(key, by_token=True)
    await _tls(target, key, target.network, _hello((first, bytes((last[0] ^ 1,)) + last[1:])))


async def stolen_chain(target: Target) -> None:
    """Another node's chain with one's own key: a forged peer id."""
    victim, thief = Key.generate(), Key.generate()
    await _tls(target, thief, target.network, _hello(target.chain(victim)))


async def never_counted(target: Target) -> None:
    """A good chain from a token, but nothing of what the token allows."""
    key = Key.generate()
    await _tls(target, key, target.network, _hello(target.chain(key, by_token=True)))


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
    """A frame header of 16 MiB before the peer is identified."""
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


async def _member(
    target: Target, key: Key, role: str, service: str, scope: str = ""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A link with a valid grant: HELLOs are exchanged, frames may follow."""
    host, _, port = target.address.rpartition(":")
    context = client_context(make_credentials(key, target.network, int(time.time())))
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="")
    writer.write(_hello(target.chain(key, role, scope=scope), service))
    await writer.drain()
    await reader.readexactly(int.from_bytes((await reader.readexactly(5))[:4], "big"))
    return reader, writer


async def _until_closed(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(40):
            while await reader.read(1 << 16):
                pass


async def many_links(target: Target) -> None:
    """One reader opens more links than any reader needs."""
    key = Key.generate()
    links: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while len(links) < 20:
            links.append(await _member(target, key, "reader", "control"))
    for _, writer in links:
        writer.transport.abort()


async def long_question(target: Target) -> None:
    """A reader announces a frame as long as a bundle."""
    reader, writer = await _member(target, Key.generate(), "reader", "control")
    writer.write((8 << 20).to_bytes(4, "big") + bytes((FrameKind.CONTROL,)) + bytes(1 << 16))
    await _until_closed(reader)
    writer.transport.abort()


async def nonsense_question(target: Target) -> None:
    """A submitter sends what is no request."""
    reader, writer = await _member(target, Key.generate(), "submitter", "control")
    writer.write(frame(FrameKind.CONTROL, b"\xc1" * 100))
    await _until_closed(reader)
    writer.transport.abort()


async def unfinished(target: Target, role: str, service: str, links: int) -> None:
    """On each link, of a key of its own, the longest frame there is but for its last bytes."""
    size = 16 << 20
    opened = [await _member(target, Key.generate(), role, service) for _ in range(links)]

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(size.to_bytes(4, "big") + bytes((FrameKind.CONTROL,)))
        with contextlib.suppress(OSError):
            for _ in range(size // 65_536 - 1):
                writer.write(bytes(65_536))
                await writer.drain()
            await _until_closed(reader)
        writer.transport.abort()

    await asyncio.gather(*(send(*one) for one in opened))


async def _ask(
    target: Target, role: str, command: Command, scope: str = "", *, key: Key | None = None, order: bytes = b""
) -> None:
    """One request with a valid grant."""
    reader, writer = await _member(target, key or Key.generate(), role, "control", scope)
    with contextlib.suppress(OSError, TimeoutError):
        writer.write(frame(FrameKind.CONTROL, CONTROL.encode(ControlRequest(1, command, order))))
        await asyncio.wait_for(reader.read(1 << 16), 8)
    writer.transport.abort()


async def submitter_makes_a_token(target: Target) -> None:
    """A submitter wants to appoint others."""
    await _ask(target, "submitter", CreateToken("admin"))


async def reader_taps(target: Target) -> None:
    """A reader wants to see the rows of a step."""
    await _ask(target, "reader", Tap("theirs", "trips"))


async def submitter_ends_a_node(target: Target) -> None:
    """A submitter wants a node to leave."""
    await _ask(target, "submitter", ShutDownAgent(now=True))


async def stops_out_of_scope(target: Target) -> None:
    """A submitter of one application ends another."""
    await _ask(target, "submitter", Stop("theirs", now=True), "app:mine")


async def submits_out_of_scope(target: Target) -> None:
    """A submitter of one application brings another, whose name stands only in its specification."""
    await _ask(target, "submitter", Submit("", encode(pipeline("theirs")), b""), "app:mine")


async def looks_out_of_scope(target: Target) -> None:
    """A reader of one sink log asks how the network is made."""
    await _ask(target, "reader", Nodes(), "sink:mine")


async def submits_unsigned(target: Target) -> None:
    """A submitter sends code that it has not signed."""
    await _ask(target, "submitter", Submit("", encode(pipeline("theirs")), b""))


async def submits_with_anothers_signature(target: Target) -> None:
    """A submitter brings what another has signed."""
    command = Submit("", encode(pipeline("theirs")), b"")
    await _ask(target, "submitter", command, order=_order(target, command))


async def replaces_the_code(target: Target) -> None:
    """The order is his own, but for other code."""
    key = Key.generate()
    order = _order(target, Submit("", encode(pipeline("theirs")), b""), key)
    await _ask(target, "submitter", Submit("", encode(pipeline("theirs")), b"evil"), key=key, order=order)


async def ends_a_node_unsigned(target: Target) -> None:
    """An admin's link without an admin's signature."""
    await _ask(target, "admin", ShutDownAgent(now=True))


def _order(target: Target, command: Command, key: Key | None = None, role: str = "submitter", scope: str = "") -> bytes:
    key, terms = key or Key.generate(), command_terms(command)
    assert terms is not None
    wall_ms = time.time_ns() // 1_000_000
    return sign_command(key.sign, target.chain(key, role, scope=scope), target.network, terms, wall_ms, os.urandom)


@contextlib.asynccontextmanager
async def strangers(target: Target, count: int, *, apart: bool) -> AsyncIterator[None]:
    """So many hold connections without a word and come back when they are closed: from one address, or each from its own."""
    host, _, port = target.address.rpartition(":")

    async def one(number: int) -> None:
        source = (f"127.0.{2 + number // 200}.{1 + number % 200}", 0) if apart else None
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(host, int(port), local_addr=source)
                with contextlib.closing(writer):
                    await reader.read()
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(one(number)) for number in range(count)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


REFUSED_FOR: dict[Attack, tuple[str, ...]] = {
    garbage: ("tls",),
    http: ("tls",),
    other_network: ("tls", "lost"),
    foreign_chain: ("another network",),
    no_token: ("length",),
    expired: ("expired",),
    forged_grant: ("signature",),
    stolen_chain: ("another key",),
    never_counted: ("unregistered",),
    reader_at_overlay: ("role",),
    submitter_at_overlay: ("role",),
    unknown_service: ("service",),
    oversized: ("oversize",),
    garbage_hello: ("form",),
    truncated: ("truncated", "lost"),
    slow: ("timeout", "tls"),
    many_links: ("too many links",),
    long_question: ("oversize",),
    nonsense_question: ("form",),
    submitter_makes_a_token: ("role",),
    submitter_ends_a_node: ("role",),
    reader_taps: ("role",),
    stops_out_of_scope: ("scope",),
    submits_out_of_scope: ("scope",),
    looks_out_of_scope: ("scope",),
    submits_unsigned: ("command",),
    submits_with_anothers_signature: ("command",),
    replaces_the_code: ("command",),
    ends_a_node_unsigned: ("command",),
}

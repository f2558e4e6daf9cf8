"""Outgoing TCP connections: to the addresses of a name until one of them answers, or through the proxy of a site.

The addresses are tried 250 ms apart, of both IP families in turn (RFC 8305). A proxy is asked by HTTP CONNECT.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from ipaddress import ip_address
from itertools import chain, zip_longest
from typing import Any, Final, TypeVar

T = TypeVar("T")

CANDIDATE_SECONDS: Final = 0.25
"""Time for one candidate before the next is tried beside it."""

MAX_CANDIDATES: Final = 4
"""Addresses that are tried for one connection."""

MAX_PROXY_ANSWER: Final = 8_192
"""Bytes of a proxy's answer to CONNECT."""

Dial = Callable[[], Coroutine[Any, Any, T]]
OpenConnection = Callable[[str, int, bytes], Coroutine[Any, Any, socket.socket]]
"""(host, port, initial bytes); raises OSError"""


class ProxyError(ConnectionError):
    """Refusal of a proxy, in a sentence for the user."""


async def first_opened(dials: Sequence[Dial[T]], discard: Callable[[T], None]) -> T:
    """Return what the first dial that succeeds has opened. Each starts 250 ms after the one before, or when that failed.

    Args:
        dials: at least one.
        discard: closes what a slower dial has opened.

    Raises:
        OSError, RemoteProtocolError: the error of the first dial.
    """
    if len(dials) == 1:
        return await dials[0]()
    waiting, tasks = list(dials), list[asyncio.Task[T]]()
    try:
        while True:
            if waiting:
                tasks.append(asyncio.ensure_future(waiting.pop(0)()))
            if running := [task for task in tasks if not task.done()]:
                timeout = CANDIDATE_SECONDS if waiting else None
                await asyncio.wait(running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if opened := [task for task in tasks if task.done() and task.exception() is None]:
                for late in opened[1:]:
                    discard(late.result())
                return opened[0].result()
            if not waiting and all(task.done() for task in tasks):
                return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()


async def open_connection(host: str, port: int, initial_bytes: bytes = b"", proxy: str = "") -> socket.socket:
    """Return a connection on which these bytes were sent.

    Args:
        proxy: HOST:PORT of an HTTP proxy that leads to other networks; empty: there is none.

    Raises:
        OSError: `ProxyError` when the proxy refuses.
    """
    if proxy and not _is_near(host):
        connection = await _open_through_proxy(proxy, host, port)
    else:
        addresses = await _addresses(host, port)
        dials = [partial(_connect, family, where) for family, where in addresses]
        connection = await first_opened(dials, lambda late: late.close())
    try:
        if initial_bytes:
            await asyncio.get_running_loop().sock_sendall(connection, initial_bytes)
    except BaseException:
        connection.close()
        raise
    return connection


def plain_host(host: str) -> str:
    """Return an IPv4 address as such that a socket for both families names `::ffff:A.B.C.D`."""
    return host.removeprefix("::ffff:") if "." in host else host


def _is_near(host: str) -> bool:
    """Report whether an address is of this machine or network, which a proxy does not lead to."""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return host == "localhost"


async def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    """Return the addresses of a host, those of both families in turn."""
    try:
        family = socket.AF_INET if ip_address(host).version == 4 else socket.AF_INET6
        return [(family, (host, port))]
    except ValueError:
        pass  # a name
    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys((info[0], info[4]) for info in infos)
    of_first = [row for row in addresses if row[0] == infos[0][0]]
    others = [row for row in addresses if row[0] != infos[0][0]]
    in_turn = chain.from_iterable(zip_longest(of_first, others))
    return [row for row in in_turn if row is not None][:MAX_CANDIDATES]


async def _connect(family: socket.AddressFamily, where: Any) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, where)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        connection.close()
        if error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno)) from None  # uvloop's text names no cause
    except BaseException:
        connection.close()
        raise
    return connection


async def _open_through_proxy(proxy: str, host: str, port: int) -> socket.socket:
    loop, target = asyncio.get_running_loop(), f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    proxy_host, _, proxy_port = proxy.rpartition(":")
    try:
        connection = await open_connection(proxy_host.strip("[]"), int(proxy_port))
    except OSError as error:
        raise ProxyError(f"the proxy {proxy} does not answer ({error.strerror or error})") from None
    try:
        request = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n"
        await loop.sock_sendall(connection, request.encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            data = await loop.sock_recv(connection, MAX_PROXY_ANSWER)
            answer += data
            if not data or len(answer) > MAX_PROXY_ANSWER:
                raise ProxyError(f"the proxy {proxy} answers with no HTTP")
        _check_answer(proxy, target, answer)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_answer(proxy: str, target: str, answer: bytes) -> None:
    """Raise `ProxyError` unless the proxy leads to the target. The target sends nothing before this node does."""
    words = answer.partition(b"\r\n")[0].decode("latin-1").split(" ", 2)
    if not words[0].startswith("HTTP/") or len(words) < 2:
        raise ProxyError(f"the proxy {proxy} answers with no HTTP")
    if words[1] == "407":
        raise ProxyError(
            f"the proxy {proxy} wants a password, and AgileDART gives none: let the proxy allow this machine by its address"
        )
    if words[1] != "200":
        raise ProxyError(f"the proxy {proxy} refuses {target}: {' '.join(words[1:])}")

"""TLS over a blocking socket: bytes arrive whole, an end is seen, silence ends in a timeout, a wrong peer is refused."""

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_transport.blocking_tls import READ_BYTES, BlockingTls
from agiledart_transport.certificates import make_credentials
from agiledart_transport.tls_contexts import TlsCredentials, client_context, server_context

NETWORK = b"n" * 32
SIZE = 3 * READ_BYTES + 7

Dial = Callable[[Callable[[ssl.SSLSocket], None]], BlockingTls]


def credentials() -> TlsCredentials:
    return make_credentials(ed25519.Ed25519PrivateKey.generate(), NETWORK, int(time.time()))


@pytest.fixture
def dial() -> Iterator[Dial]:
    """Connects to a peer that serves one connection."""
    threads: list[threading.Thread] = []
    listeners: list[socket.socket] = []

    def connect(serve: Callable[[ssl.SSLSocket], None]) -> BlockingTls:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            accepted, _ = listener.accept()
            with server_context(credentials()).wrap_socket(accepted, server_side=True) as peer:
                serve(peer)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        raw = socket.create_connection(listener.getsockname())
        raw.settimeout(5.0)
        return BlockingTls(raw, client_context(credentials()))

    yield connect
    for thread in threads:
        thread.join(10.0)
    for listener in listeners:
        listener.close()


def received(tls: BlockingTls, size: int) -> bytes:
    whole = bytearray(size)
    at = 0
    while at < size and (count := tls.receive_into(memoryview(whole)[at:])):
        at += count
    return bytes(whole[:at])


def test_long_messages_arrive_in_order(dial: Dial) -> None:
    body = os.urandom(SIZE)

    def echo(peer: ssl.SSLSocket) -> None:
        whole = b""
        while len(whole) < SIZE:
            whole += peer.recv(1 << 16)
        peer.sendall(whole)
        with contextlib.suppress(OSError):  # the dialer hangs up without the end of TLS
            peer.unwrap()

    tls = dial(echo)
    tls.send(body)
    assert received(tls, SIZE + 1) == body
    assert tls.certificate()
    tls.close()


def test_a_silent_peer_ends_in_a_timeout(dial: Dial) -> None:
    done = threading.Event()

    def wait(peer: ssl.SSLSocket) -> None:
        done.wait(10.0)

    tls = dial(wait)
    tls.set_timeout(0.05)
    with pytest.raises(TimeoutError):
        tls.receive_into(memoryview(bytearray(1)))
    done.set()
    tls.close()


def test_a_peer_that_hangs_up_in_the_handshake_is_an_os_error() -> None:
    one, other = socket.socketpair()
    other.close()
    with pytest.raises(OSError):  # SSLEOFError or BrokenPipeError, as the kernel is quick
        BlockingTls(one, client_context(credentials()))
    one.close()

"""TLS over a blocking socket with few system calls.

`ssl.SSLSocket` asks the kernel twice for each record of 16 KiB. Here each request takes all that has arrived, up to `READ_BYTES`: a
fifth of the reader's CPU time for large answers.
"""

import contextlib
import socket
import ssl
from typing import Any, Final

READ_BYTES: Final = 256 << 10
WRITE_BYTES: Final = 64 << 10
"""Bytes that are encrypted at a time, so that the buffers of TLS stay in the processor's caches."""


class BlockingTls:
    """One end of a TLS connection, of the dialer.

    Args:
        raw: connected socket with a timeout; it belongs to this object from now on.

    All methods raise OSError: `ssl.SSLError` for a fault of TLS, TimeoutError when the peer is silent for the socket's timeout.
    """

    def __init__(self, raw: socket.socket, context: ssl.SSLContext) -> None:
        self._raw = raw
        self._encrypted_in, self._encrypted_out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._encrypted_in, self._encrypted_out)
        self._buffer = memoryview(bytearray(READ_BYTES))
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._send_encrypted()
                self._take_encrypted()
        self._send_encrypted()

    def certificate(self) -> bytes:
        """Return the peer's certificate, DER; b"" without one."""
        return self._tls.getpeercert(binary_form=True) or b""

    def set_timeout(self, seconds: float) -> None:
        """Set the longest wait of one system call."""
        self._raw.settimeout(seconds)

    def send(self, data: bytes) -> None:
        """Send all bytes."""
        view = memoryview(data)
        for start in range(0, len(view), WRITE_BYTES):
            self._tls.write(view[start : start + WRITE_BYTES])
            self._send_encrypted()

    def receive_into(self, view: memoryview) -> int:
        """Fill the beginning of a buffer that is not empty; return the number of bytes, 0 when the peer has closed."""
        while True:
            try:
                count: Any = self._tls.read(len(view), view)  # the number of bytes, where a buffer is given
                return int(count)
            except ssl.SSLWantReadError:
                self._send_encrypted()
                if not self._take_encrypted():
                    return 0
            except ssl.SSLZeroReturnError:
                return 0

    def close(self) -> None:
        """Close the socket."""
        with contextlib.suppress(OSError):
            self._raw.close()

    def _send_encrypted(self) -> None:
        if self._encrypted_out.pending:
            self._raw.sendall(self._encrypted_out.read())

    def _take_encrypted(self) -> int:
        """Take what has arrived; return its size, 0 at the end of the connection."""
        count = self._raw.recv_into(self._buffer)
        if count:
            self._encrypted_in.write(self._buffer[:count])
        else:
            self._encrypted_in.write_eof()
        return count

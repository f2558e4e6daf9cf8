"""Progress of the bytes of a connection, as the kernel knows it: what the peer's kernel has acknowledged, and what waits."""

import fcntl
import socket
import struct
import termios
from typing import Final, NamedTuple

_TCP_INFO_BYTES: Final = 192
_BYTES_ACKED: Final = struct.Struct("=Q")
_BYTES_ACKED_AT: Final = 120
_ROUND_TRIP: Final = struct.Struct("=I")
_ROUND_TRIP_AT: Final = 148
_HELD_AT: Final = 176
"""Offsets in Linux's `struct tcp_info`: `tcpi_bytes_acked`, there since Linux 4.1, `tcpi_min_rtt`, since 4.6, and
`tcpi_rwnd_limited`, since 4.10."""


_UNKNOWN_ROUND_TRIP: Final = (1 << 32) - 1


class TcpProgress(NamedTuple):
    """Progress of one connection.

    Args:
        acknowledged: bytes that the other host's kernel has.
        queued: bytes that it still has to get.
        held_us: microseconds for which it had no buffer space, because its process did not read.
        round_trip_us: microseconds of the shortest round trip of the last minutes; 0: not known.
    """

    acknowledged: int = 0
    queued: int = 0
    held_us: int = 0
    round_trip_us: int = 0


NO_PROGRESS: Final = TcpProgress()
"""Value where the system gives no figures: then nothing moves, and an echo is the only sign of life."""


def progress_of(connection: socket.socket, unsent: int = 0) -> TcpProgress:
    """Return the kernel's figures, with bytes added that it has not yet been given."""
    try:
        tcp_info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        (acknowledged,) = _BYTES_ACKED.unpack_from(tcp_info, _BYTES_ACKED_AT)
        (queued,) = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))
    except (AttributeError, OSError, struct.error):
        return NO_PROGRESS
    if len(tcp_info) < _TCP_INFO_BYTES:
        return TcpProgress(acknowledged, queued + unsent)
    (held,) = _BYTES_ACKED.unpack_from(tcp_info, _HELD_AT)
    (round_trip,) = _ROUND_TRIP.unpack_from(tcp_info, _ROUND_TRIP_AT)
    return TcpProgress(acknowledged, queued + unsent, held, round_trip if round_trip < _UNKNOWN_ROUND_TRIP else 0)


def progress_of_pair(sent: int, unsent: int, now_ns: int) -> TcpProgress:
    """Return the progress of a socket pair: the kernel takes each byte at once, unless the other process does not read.

    Args:
        sent: bytes of all frames; unsent: those among them that the kernel has not taken.
        now_ns: monotonic time.
    """
    return TcpProgress(max(0, sent - unsent), unsent, held_us=now_ns // 1_000 if unsent else 0)

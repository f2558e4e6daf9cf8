"""Source of J3: serves tuples to one client at a pace, each stamped with the time at which it was due.

    python -m benchmarks.engines.paced RATE SECONDS

Prints the port, waits for the client, sends. It sends the due tuples every millisecond; because the stamp is the due time,
a slow receiver cannot hide that tuples waited (no coordinated omission). RATE 0 sends as fast as the socket takes. The
lag of the source itself, due time to send, is part of every latency and is printed with the result.
"""

import ctypes
import socket
import sys
import time

from benchmarks.engines.data import passing, tails
from benchmarks.engines.jobs import print_result

TICK_NS = 1_000_000
DIFFERENT = 20_000
_START_NS = 2_000_000
_TIMER_SLACK = 29
"""PR_SET_TIMERSLACK, in nanoseconds."""

_BLOCK = 500
"""Tuples in one send at full speed."""


def be_punctual() -> None:
    """Have Linux end our sleeps on time; by default it adds 50 µs, which would be part of all latencies."""
    ctypes.CDLL(None).prctl(_TIMER_SLACK, 1)


def paced(client: socket.socket, rate: int, seconds: float, rest: list[bytes]) -> tuple[int, list[int]]:
    """Send at a pace; return (tuples sent, lag of each tick)."""
    tick = max(TICK_NS, 1_000_000_000 // rate)
    per_tick = max(1, round(rate * tick / 1e9))
    total, sent, number = int(rate * seconds), 0, 0
    lags: list[int] = []
    start = time.time_ns() + _START_NS
    while sent < total:
        due = start + number * tick
        wait = due - time.time_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        stamp = b"%d" % due
        lags.append(time.time_ns() - due)
        client.sendall(b"".join([stamp + rest[(sent + i) % DIFFERENT] for i in range(per_tick)]))
        sent += per_tick
        number += 1
    return sent, lags


def unpaced(client: socket.socket, seconds: float, rest: list[bytes]) -> tuple[int, list[int]]:
    """Send prepared blocks stamped with the start; return (tuples sent, no lags)."""
    stamp = b"%d" % time.time_ns()
    blocks = [b"".join([stamp + tail for tail in rest[i : i + _BLOCK]]) for i in range(0, DIFFERENT, _BLOCK)]
    end, sent = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        client.sendall(blocks[sent // _BLOCK % len(blocks)])
        sent += _BLOCK
    return sent, []


def main() -> None:
    """Serve one client."""
    rate, seconds = int(sys.argv[1]), float(sys.argv[2])
    be_punctual()
    drawn = list(tails(DIFFERENT))
    rest = [tail.encode() + b"\n" for tail, _ in drawn]
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"PORT {listener.getsockname()[1]}", flush=True)
    client, _ = listener.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    began_ns = time.time_ns()
    print("CONNECTED", flush=True)
    sent, lags = paced(client, rate, seconds, rest) if rate else unpaced(client, seconds, rest)
    ended_ns = time.time_ns()
    client.shutdown(socket.SHUT_WR)
    lags.sort()
    shown = {f"lag_p{part}": round(lags[len(lags) * part // 100] / 1e6, 4) for part in (50, 99)} if lags else {}
    print_result(
        sent=sent, began_ns=began_ns, ended_ns=ended_ns, passing=passing([fare for _, fare in drawn], sent), **shown
    )
    client.settimeout(30)
    try:
        while client.recv(1):  # until the client has gone
            pass
    except OSError:
        pass


if __name__ == "__main__":
    main()

"""Steps of J3's three processes when a message carrier connects them: parse, filter and derive; aggregate; record.

The carriers (`zenoh_node`, `dora_node`) pass in the functions that send and receive messages. A message is one tuple or,
`batched`, all tuples of one read of the socket. MessagePack by msgspec, as between our own nodes.
"""

import socket
from collections.abc import Callable, Iterable, Iterator

import msgspec

from benchmarks.engines.jobs import FARE, RATIO, TS, ZONE, Derived, Latencies, ZoneAggregate, derive, keep, parse

END = b"END"
ROLES = ("source", "aggregate", "sink")
_READ_BYTES = 64 << 10

Send = Callable[[bytes], object]
Result = tuple[int, int, int, float, float]


def lines_of(port: int) -> Iterator[list[bytes]]:
    """Yield the whole lines of each read."""
    connection = socket.create_connection(("127.0.0.1", port))
    rest = b""
    while data := connection.recv(_READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
    connection.close()


def source(port: int, send: Send, *, batched: bool) -> None:
    """Turn the socket's lines into derived tuples."""
    encode = msgspec.msgpack.Encoder().encode
    for lines in lines_of(port):
        rows: list[Derived] = []
        for line in lines:
            trip = parse(line.decode())
            if not keep(trip):
                continue
            if batched:
                rows.append(derive(trip))
            else:
                send(encode(derive(trip)))
        if rows:
            send(encode(rows))
    send(END)


def aggregate(messages: Iterable[bytes], send: Send, *, batched: bool) -> None:
    """Turn each derived tuple into one result."""
    encode = msgspec.msgpack.Encoder().encode
    kind = list[Derived] if batched else Derived
    decode = msgspec.msgpack.Decoder(kind).decode
    running = ZoneAggregate()
    for message in messages:
        if message == END:
            break
        if not batched:
            row = decode(message)
            send(encode(running.next(row[ZONE], row[TS], row[FARE], row[RATIO])))
            continue
        rows = decode(message)
        send(encode([running.next(row[ZONE], row[TS], row[FARE], row[RATIO]) for row in rows]))
    send(END)


def sink(messages: Iterable[bytes], latencies: Latencies, *, batched: bool) -> None:
    """Record the latencies of results."""
    kind = list[Result] if batched else Result
    decode = msgspec.msgpack.Decoder(kind).decode
    for message in messages:
        if message == END:
            break
        if batched:
            for result in decode(message):
                latencies.now(result[1])
        else:
            latencies.now(decode(message)[1])

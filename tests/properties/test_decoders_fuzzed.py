"""Each decoder against made-up bytes: it never raises, hangs or bloats; its rows can be encoded; all is counted.

Twenty seconds in all by default; `make soak` gives each ten minutes.
"""

import json
import math
import resource
import time
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from agiledart_connectors.codecs.decoder import Decoder, decoded
from agiledart_connectors.codecs.dict_lines import DictLines
from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.codecs.line_block import LineBlock
from agiledart_connectors.codecs.malformed_examples import MalformedExamples
from agiledart_connectors.codecs.record_block import RecordBlock
from agiledart_connectors.codecs.row_parser import RowParser
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.data.position import START
from agiledart_dataflow.data.schema import Alias, ReadTime
from tests.properties.damage import TEXT, damaged

SECONDS: Final = 2.0
SOAK_SECONDS: Final = 600.0
MB: Final = 1 << 20


class Place(NamedTuple):
    house: str
    floor: int = 0


class Row(NamedTuple):
    """Of everything that a decoder knows."""

    at: datetime
    room: Annotated[str, Alias("place", "where")]
    celsius: float
    number: int | None
    is_open: bool
    read: ReadTime
    places: list[Place] = []
    near: Place | None = None


class Flat(NamedTuple):
    at: datetime
    room: str
    celsius: float
    number: int | None
    is_open: bool


class Senml(NamedTuple):
    name: str
    value: float | None
    time: datetime


Loose = dict[str, Any]

GOOD = {
    "at": "2026-01-01T00:00:00Z", "room": "attic", "celsius": 1.5, "number": 7, "is_open": True,
    "places": [{"house": "a"}], "near": {"house": "b", "floor": 2},
}  # fmt: skip
PACK = [{"bn": "urn:x:", "bt": 1.7e9, "n": "t", "u": "Cel", "v": 20.5}, {"n": "h", "v": 5, "t": -5}]

DECODERS: dict[str, tuple[Callable[[], Decoder], Any, list[bytes]]] = {
    "json": (lambda: open_decoder("json", Row), Row, [json.dumps(GOOD).encode(), json.dumps([GOOD, GOOD]).encode()]),
    "json dicts": (lambda: open_decoder("json", Loose), Loose, [json.dumps(GOOD).encode(), b"[{},{}]"]),
    "msgpack": (lambda: open_decoder("msgpack", Row), Row, [msgspec.msgpack.encode(GOOD), msgspec.msgpack.encode([GOOD])]),
    "msgpack dicts": (lambda: open_decoder("msgpack", Loose), Loose, [msgspec.msgpack.encode(GOOD)]),
    "senml": (lambda: open_decoder("senml", Senml), Senml, [json.dumps(PACK).encode()]),
    "csv": (lambda: open_decoder("csv", Flat), Flat, [b"2026-01-01 00:00:00,attic,1.5,7,true", b'2026-01-01 00:00:00,"a,b",1,,0']),
    "text": (lambda: open_decoder("text", str), str, [b"hello"]),
    "raw": (lambda: open_decoder("raw", bytes), bytes, [b"hello"]),
}  # fmt: skip


def judge(decoder: Decoder, row_type: Any, payload: bytes) -> None:
    """Rows or malformed records, one unless the payload holds several; each row is what its type says and can travel."""
    malformed: dict[str, int] = {}
    examples = MalformedExamples()
    rows = decoded(decoder, [payload], 1_000, malformed, examples, lambda _: "here")
    is_array = payload.lstrip()[:1] == b"[" or payload[:1] >= b"\x90" or b"\n" in payload
    assert is_array or sum(malformed.values()) + bool(rows) == 1
    assert all(len(reason) < 40 for reason in malformed)
    assert all(text.isprintable() and len(text) < 2_000 for text in examples.take())
    codec = BatchCodec(row_type, "rows")
    for row in rows:
        assert same(codec.decode(codec.encode(Batch([row], None, START))).held, [row])


def same(left: Any, right: Any) -> bool:
    """Equal; NaN equals itself."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    return bool(left == right)


def fuzz(test: Callable[..., None], seconds: float) -> None:
    """Rounds of made-up examples until the time is over; memory must not grow with them."""
    began, number, before = time.monotonic(), 0, 0
    while time.monotonic() - began < seconds:
        seed(number)(test)()
        number += 1
        if number == 1:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024, "memory grew (KiB)"


_SETTINGS = settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def decoder_test(name: str) -> Callable[..., None]:
    make, row_type, samples = DECODERS[name]
    decoder = make()

    @_SETTINGS
    @given(damaged(samples, TEXT))
    def test(payload: bytes) -> None:
        judge(decoder, row_type, payload)

    return test


def lines_test(kind: str) -> Callable[..., None]:
    """Blocks of lines: each line is a row or is counted, whatever stands in it, however few are taken at one time."""

    @_SETTINGS
    @given(
        st.lists(damaged(DECODERS["csv" if "csv" in kind else "json"][2], TEXT), min_size=1, max_size=20),
        st.integers(1, 7),
    )
    def test(lines: list[bytes], at_once: int) -> None:
        data = b"\n".join(line.replace(b"\n", b" ").replace(b"\r", b" ") for line in lines)
        block: Any
        if kind == "csv":
            block = LineBlock(RowParser(Flat), MalformedExamples(), "x")
        elif kind == "csv dicts":
            dicts = DictLines()
            dicts.takes_header("at,room,celsius,number,is_open")
            block = RecordBlock(dicts, MalformedExamples(), "x")
        else:
            block = RecordBlock(open_decoder("json", Row), MalformedExamples(), "x")
        block.fill(data)
        malformed: dict[str, int] = {}
        rows = turns = 0
        while not block.is_empty:
            before = sum(malformed.values())
            some, count = block.take(at_once, 0, malformed)
            rows += len(some)
            assert len(some) + sum(malformed.values()) - before == count
            turns += 1
            assert turns < 10_000
        given_lines = data.split(b"\n")
        expected = len(given_lines) if kind == "csv" else sum(bool(line.strip()) for line in given_lines)
        arrays = sum(line.lstrip().startswith(b"[") for line in given_lines)
        assert rows + sum(malformed.values()) == expected or (arrays and kind == "json")

    return test


LINED = ("csv", "csv dicts", "json")


@pytest.mark.slow
@pytest.mark.parametrize("name", DECODERS)
def test_mutated_payloads_are_decoded_or_malformed(name: str) -> None:
    fuzz(decoder_test(name), SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LINED)
def test_mutated_lines_are_decoded_or_malformed(kind: str) -> None:
    fuzz(lines_test(kind), SECONDS)


@pytest.mark.soak
@pytest.mark.timeout(2 * SOAK_SECONDS)
@pytest.mark.parametrize("name", DECODERS)
def test_mutated_payloads_are_decoded_or_malformed_in_a_long_run(name: str) -> None:
    fuzz(decoder_test(name), SOAK_SECONDS)


@pytest.mark.soak
@pytest.mark.timeout(2 * SOAK_SECONDS)
@pytest.mark.parametrize("kind", LINED)
def test_mutated_lines_are_decoded_or_malformed_in_a_long_run(kind: str) -> None:
    fuzz(lines_test(kind), SOAK_SECONDS)


@pytest.mark.parametrize("name", ["json", "json dicts", "msgpack", "msgpack dicts", "senml", "csv"])
def test_handmade_hostile_inputs_are_decoded_or_malformed(name: str) -> None:
    make, row_type, samples = DECODERS[name]
    decoder = make()
    hostile = [
        b"[" * 100_000, b'{"a":' * 100_000, b'{"at":' + b"9" * 5_000 + b"}", b"\xff\xfe" * 1_000, b"\0" * 1_000,
        b'"' + b"\\ud800" * 10 + b'"', b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"",
        samples[0] * 100, b'{"at": 1e308}', b'{"at": -1e308}', b'{"at":"9999-12-31T23:59:59-23:59"}', b"\x91" * 100_000,
    ]  # fmt: skip
    for payload in hostile:
        judge(decoder, row_type, payload)


def test_a_hundred_megabytes_are_refused_or_read_in_bounded_memory() -> None:
    payload = b'{"room":"' + b"x" * (100 * MB) + b'"}'
    malformed: dict[str, int] = {}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    decoded(open_decoder("json", Row), [payload], 0, malformed, MalformedExamples(), lambda _: "here")
    assert sum(malformed.values()) == 1
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 700 * MB

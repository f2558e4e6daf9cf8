"""Generated input of sources that poll and listen: register maps, serial bytes, answers of servers.

Nothing but our own errors is raised, nothing is lost between two line feeds, nothing grows.
"""

import contextlib
import http.client
import time
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from agiledart_connectors.http.http_address import http_address
from agiledart_connectors.http.http_client import HttpResponse
from agiledart_connectors.http.http_poller import HttpPoller
from agiledart_connectors.remote.payload_queue import PayloadQueue
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_kernel.errors import AgileDartError
from agiledart_kernel.limits import MAX_LINE_BYTES

SECONDS: Final = 1.5
SOAK_SECONDS: Final = 600.0


def fuzzed(function: Any, seconds: float, **strategies: Any) -> None:
    """Call a function with what is drawn for so long, at least once."""
    end = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        wrapped = settings(max_examples=50, deadline=None, database=None, suppress_health_check=list(HealthCheck))(
            seed(number)(given(**strategies)(function))
        )
        wrapped()
        number += 1


LENGTHS = pytest.mark.parametrize(
    "seconds", [pytest.param(SECONDS, marks=pytest.mark.slow), pytest.param(SOAK_SECONDS, marks=pytest.mark.soak)]
)

_WORDS = st.sampled_from(["holding", "coil", "input", "int16", "float64", "big", "little", "uint16", ""])
_NUMBERS = st.integers(-5, 70_000) | st.integers() | st.floats()
_PLAIN = st.booleans() | _NUMBERS | _WORDS
TABLES = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]),
    st.dictionaries(
        st.sampled_from(["address", "kind", "type", "scale", "offset", "words", "adress"]), _PLAIN, max_size=4
    ),
    max_size=4,
)


def _toml(tables: dict[str, dict[str, Any]]) -> str:
    def text(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return repr(value).replace("'", '"') if isinstance(value, str) else repr(value)

    return "\n".join(
        f"[{name}]\n" + "\n".join(f"{k} = {text(v)}" for k, v in each.items()) for name, each in tables.items()
    )


@LENGTHS
def test_mutated_register_maps_are_handled(seconds: float, tmp_path: Path) -> None:
    pytest.importorskip("pymodbus")
    from agiledart_connectors.modbus.modbus_poller import value_of
    from agiledart_connectors.modbus.register_map import MOST_BITS, MOST_REGISTERS, read_map

    class Given:
        def __init__(self, words: list[int]) -> None:
            self.registers, self.bits = words, [bool(word % 2) for word in words]

    def check(tables: dict[str, Any], noise: bytes, words: list[int]) -> None:
        path = tmp_path / "map.toml"
        path.write_bytes(_toml(tables).encode() + noise)
        with contextlib.suppress(AgileDartError):
            asked = read_map(str(path))
            for question in asked:
                assert 0 < question.count <= (MOST_BITS if question.kind in ("coil", "discrete") else MOST_REGISTERS)
                answer = Given((words * (question.count // len(words) + 1))[: question.count])
                for value in question.values:
                    assert question.address <= value.address
                    assert value.address + value.length <= question.address + question.count
                    assert isinstance(value_of(value, question, answer), bool | int | float | None)
            assert sorted(value.name for question in asked for value in question.values) == sorted(tables)

    noises = st.just(b"") | st.binary(max_size=20)
    fuzzed(check, seconds, tables=TABLES, noise=noises, words=st.lists(st.integers(0, 65_535), min_size=1, max_size=9))


@LENGTHS
def test_mutated_serial_bytes_are_handled(seconds: float) -> None:
    pytest.importorskip("serial")
    from agiledart_connectors.serial_line.serial_listener import SerialLineSplitter

    def check(pieces: list[bytes], long: int) -> None:
        cutter = SerialLineSplitter()
        pieces = [*pieces, b"\n", *[b"x" * 65_536] * long, b"\nend\n"]
        found = [line for piece in pieces for line in cutter.lines(piece)]
        whole = b"".join(pieces).split(b"\n")[:-1]
        wanted = [line.removesuffix(b"\r") for line in whole if len(line) <= MAX_LINE_BYTES]
        assert found == wanted
        assert cutter.too_long == len(whole) - len(wanted)
        assert len(cutter._rest) <= MAX_LINE_BYTES

    lengths = st.sampled_from([0, 0, 0, 1, 15, 17, 40])
    fuzzed(check, seconds, pieces=st.lists(st.binary(max_size=30) | st.sampled_from([b"\r\n", b"\n"])), long=lengths)


@LENGTHS
def test_mutated_server_answers_are_handled(seconds: float) -> None:
    options = ["", "?cursor=id", "?member=rows", "?cursor=id&member=rows&since=a%26b", "?format=text"]

    def check(body: bytes, kind: str, option: str) -> None:
        connector = parse_connector(f"http://h/rows{option}")
        poll, incoming = HttpPoller(connector, http_address(connector)), PayloadQueue("h")
        headers = http.client.HTTPMessage()
        headers["Content-Type"] = kind
        try:
            found = poll._payloads(HttpResponse(200, "OK", headers, body), "GET /rows", incoming)
            assert sum(len(data) for data, _ in found) <= len(body)
            path = poll._path()
            assert path.isascii()
            assert not set(path) & set(" \r\n\0")
        finally:
            incoming.close(_Ended(), lambda: None)  # type: ignore[arg-type]

    jsons = st.sampled_from(
        [
            b'[{"id":1},{"id":"a b&c"}]',
            b'{"rows":[{"id":"\\r\\n"}]}',
            b'{"rows":3}',
            b"[[]]",
            b'{"id":{}}',
            b"[" * 9_000,
        ]
    )
    kinds = st.sampled_from(["application/json", "application/x-ndjson", "text/plain; charset=x", "\u00e9"])
    fuzzed(check, seconds, body=st.binary(max_size=200) | jsons, kind=kinds, option=st.sampled_from(options))


class _Ended:
    def join(self, seconds: float) -> None:
        return None
